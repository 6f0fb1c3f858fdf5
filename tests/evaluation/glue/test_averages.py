"""Averages against the numbers that papers print beside the scores they are of."""

import pytest

from posenc_jax.data.tasks import GLUE_TASKS, TASKS, column
from posenc_jax.evaluation.glue.averages import AVERAGES, averages, compute
from posenc_jax.evaluation.metrics import METRICS

# Ke, He, Liu 2021, Tables 1, 3 and 4: MNLI-m, MNLI-mm, QNLI, QQP, SST-2, CoLA, MRPC, RTE, STS-B; average.
TUPE = """
BERT-A 84.93 84.91 91.34 91.04 92.88 55.19 88.29 68.61 89.43 82.96
BERT-R 85.81 85.84 92.16 91.12 92.90 55.43 89.26 71.46 88.94 83.66
TUPE-A 86.05 85.99 91.92 91.16 93.19 63.09 88.37 71.61 88.88 84.47
TUPE-R 86.21 86.19 92.17 91.30 93.26 63.56 89.89 73.56 89.23 85.04
TUPE-A-mid 84.76 84.83 90.96 91.00 92.25 62.13 87.1 68.79 88.16 83.33
TUPE-R-mid 84.86 85.21 91.23 91.14 92.41 62.47 87.29 69.85 88.63 83.68
TUPE-A-tie-cls 85.91 85.73 91.90 91.05 93.17 59.46 88.53 69.54 88.97 83.81
BERT-A-d 85.26 85.28 91.56 91.02 92.70 59.73 88.46 71.31 87.47 83.64
BERT-Large 88.21 88.18 93.56 91.66 94.08 58.42 90.46 77.63 90.15 85.82
TUPE-Large 88.22 88.21 93.55 91.69 94.98 67.46 90.06 81.66 90.67 87.39
TUPE-Large-mid 86.92 86.80 92.61 91.48 93.97 63.88 89.26 75.82 89.34 85.56
ELECTRA 86.42 86.14 92.19 91.45 92.97 65.92 89.74 73.56 89.99 85.38
ELECTRA-TUPE 86.98 87.01 92.03 91.75 93.97 66.51 89.74 76.53 90.13 86.07
ELECTRA-TUPE-mid 86.72 86.74 91.84 91.72 93.30 66.42 89.34 75.64 89.67 85.71
"""
# Jiang et al. 2020, the table of GLUE test scores: MNLI, QNLI, QQP, RTE, SST-2, MRPC, CoLA, STS-B; average.
CONVBERT = """
TinyBERT 84.6 90.4 89.1 70.0 93.1 82.6 51.1 83.7 80.6
MobileBERT 84.3 91.6 88.3 70.4 92.6 84.5 51.1 84.8 81.0
ELECTRA-small 79.7 87.7 88.0 60.8 89.1 83.7 54.6 80.3 78.0
ELECTRA-small-longer 81.6 88.3 88.0 63.6 91.1 84.9 55.6 84.6 79.7
GPT 82.1 88.1 88.5 56.0 91.3 75.7 45.4 80.0 75.9
BERT-base 84.6 90.5 89.2 66.4 93.5 84.8 52.1 85.8 80.9
ELECTRA-base 85.8 92.7 89.1 73.1 93.4 86.7 59.7 87.7 83.5
ELECTRA-base-longer 88.5 93.1 89.5 75.2 96.0 88.1 64.6 90.2 85.7
ConvBERT-small 81.5 88.5 88.0 62.2 89.2 83.3 54.8 83.4 78.9
ConvBERT-small-4M 82.1 88.5 88.4 65.1 91.2 85.1 56.7 83.8 80.1
ConvBERT-medium-small 82.1 88.7 88.4 65.3 89.2 84.6 56.4 82.9 79.7
ConvBERT-medium-small-4M 82.9 89.2 88.6 66.0 92.3 85.7 59.1 85.3 81.1
ConvBERT-base 85.3 92.4 89.6 74.7 95.0 88.2 66.0 88.2 84.9
ConvBERT-base-4M 88.3 93.2 90.0 77.9 95.7 88.3 67.8 89.7 86.4
"""
# ddrp_mth_and_symmetric.md 2.5. Per column of the table: MRPC acc, F1, CoLA, MNLI-m, -mm, QQP acc, F1, RTE, STS-B (mean
# of Pearson and Spearman), QNLI, SST-2, WNLI; nine, ten.
SYMMETRIC = """
small-vanilla 77.25 84.83 21.39 77.16 77.76 87.95 84.22 54.87 82.20 85.45 88.49 38.87 72.72 69.33
small-symmetric 71.72 81.91 10.29 75.25 75.72 86.99 83.28 55.74 77.83 82.79 86.90 41.97 69.61 66.84
small-pairwise 79.41 85.27 24.21 76.37 76.89 88.62 84.73 56.25 84.13 84.97 88.60 41.41 73.38 70.18
base-vanilla 82.75 87.85 44.35 81.66 82.07 90.54 87.18 59.42 87.30 88.76 90.92 34.08 78.74 74.27
base-symmetric 74.26 82.46 35.22 78.66 79.05 89.59 85.80 53.43 84.47 86.90 89.56 39.72 74.82 71.31
base-pairwise 85.88 89.78 46.91 81.60 82.02 90.54 87.23 60.58 86.88 88.78 90.78 34.93 79.36 74.92
"""
# Rows of gluebenchmark.com, as the README of alexa/bort repeats them: CoLA, SST-2, MRPC F1, accuracy, STS-B Pearson,
# Spearman, QQP F1, accuracy, MNLI-m, -mm, QNLI, RTE, WNLI; score.
LEADERBOARD = """
BERT-Large 60.5 94.9 89.3 85.4 87.6 86.5 72.1 89.3 86.7 85.9 92.7 70.1 65.1 80.5
Bort 63.9 96.2 94.1 92.3 89.2 88.3 66.0 85.9 88.1 87.8 92.3 82.7 71.2 83.6
"""


def rows(text):
    return [(name, [float(value) for value in values]) for name, *values in map(str.split, text.strip().splitlines())]


def scores(names, values):
    """{"CoLA": {"matthews": 55.19}, ...} from "CoLA/matthews" and so on; a bare name is an accuracy."""
    table = {}
    for name, value in zip(names.split(), values, strict=True):
        part, _, metric = name.partition("/")
        table.setdefault(part, {})[metric or "accuracy"] = value
    return table


def value(name, table):
    return {average.name: average.value for average in averages(table)}[name]


@pytest.mark.parametrize(("row", "values"), rows(TUPE))
def test_tupe_prints_the_mean_of_nine(row, values):
    table = scores("MNLI-m MNLI-mm QNLI QQP SST-2 CoLA/matthews MRPC RTE STS-B/pearson", values[:-1])
    assert value("TUPE", table) == pytest.approx(values[-1], abs=0.01)


@pytest.mark.parametrize(("row", "values"), rows(CONVBERT))
def test_convbert_prints_the_mean_of_eight(row, values):
    table = scores("MNLI-m QNLI QQP RTE SST-2 MRPC CoLA/matthews STS-B/spearman", values[:-1])
    assert value("ELECTRA", table) == pytest.approx(values[-1], abs=0.05 + 1e-9)


@pytest.mark.parametrize(("row", "values"), rows(SYMMETRIC))
def test_symmetric_prints_means_of_nine_and_of_ten(row, values):
    names = "MRPC MRPC/f1 CoLA/matthews MNLI-m MNLI-mm QQP QQP/f1 RTE STS-B/pearson QNLI SST-2 WNLI"
    table = scores(names, values[:-2])
    table["STS-B"]["spearman"] = table["STS-B"]["pearson"]  # the table prints only their mean
    assert value("symmetric", table) == pytest.approx(values[-2], abs=0.01)
    assert value("symmetric + WNLI", table) == pytest.approx(values[-1], abs=0.01)


@pytest.mark.parametrize(("row", "values"), rows(LEADERBOARD))
def test_the_leaderboard_averages_metrics_then_tasks(row, values):
    names = "CoLA/matthews SST-2 MRPC/f1 MRPC STS-B/pearson STS-B/spearman QQP/f1 QQP MNLI-m MNLI-mm QNLI RTE WNLI"
    table = scores(names, values[:-1])
    assert value("leaderboard", table) == pytest.approx(values[-1], abs=0.05 + 1e-9)


def test_the_columns_and_metrics_are_those_of_the_tasks():
    known = {
        (column(TASKS[task], split), metric)
        for task in GLUE_TASKS
        for split in TASKS[task].dev_splits
        for metric in TASKS[task].metrics
    }
    for average in AVERAGES.values():
        assert set(average.scores) <= known
        assert all(metric in METRICS for _, metric in average.scores)
        assert len(set(average.scores)) == len(average.scores)
        assert ("WNLI" in average.formula) == (average.name.endswith("+ WNLI") or average.name == "leaderboard")


@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
def test_nothing_is_averaged_over_fewer_columns(average):
    table = {}
    for part, metric in average.scores:
        table.setdefault(part, {})[metric] = 0.5
    assert compute(average, table).value == pytest.approx(0.5)
    for part, metric in average.scores:
        without = {**table, part: {name: value for name, value in table[part].items() if name != metric}}
        assert compute(average, without).value is None
        assert compute(average, without).missing == (f"{part} {metric}",)
        del without[part]
        assert compute(average, without).value is None and compute(average, without).missing == (part,)


def test_a_term_counts_once_however_many_metrics_it_has():
    table = {part: {metric: 0.0 for column, metric in AVERAGES["leaderboard"].scores if column == part} for part in
             {column for column, _ in AVERAGES["leaderboard"].scores}}  # fmt: skip
    for part, gain in {"MRPC": 1, "MNLI-m": 0.5, "CoLA": 1}.items():
        with_part = {**table, part: dict.fromkeys(table[part], 1.0)}
        assert value("leaderboard", with_part) == pytest.approx(gain / 9)
