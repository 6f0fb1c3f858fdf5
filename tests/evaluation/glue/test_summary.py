"""Runs become numbers as each protocol says: a paper's averages, best rates, chance, what failed."""

import statistics

import pytest

from posenc_jax.data.tasks import GLUE_TASKS
from posenc_jax.evaluation.glue.summary import mean_lines, notes, summarise
from tests.evaluation.glue.score_records import record

SYMMETRIC = {
    "base vanilla": ((79.53, 78.59, 77.84, 79.06, 78.67), 78.74, 0.63),
    "base symmetric": ((74.18, 74.91, 75.00, 75.07, 74.93), 74.82, 0.36),
    "base pairwise": ((79.67, 79.44, 79.08, 79.73, 78.88), 79.36, 0.37),
    "small vanilla": ((72.76, 72.68, 72.72, 72.61, 72.80), 72.72, 0.07),
    "small symmetric": ((70.06, 69.40, 69.58, 69.76, 69.23), 69.61, 0.32),
    "small pairwise": ((73.78, 73.69, 73.44, 72.93, 73.06), 73.38, 0.37),
}
"""The mean of nine of each fine-tuning seed, and the mean and deviation printed (ddrp_mth_and_symmetric.md 2.5)."""


@pytest.mark.parametrize("name", SYMMETRIC)
def test_the_symmetric_protocol_gives_the_published_mean_and_deviation(name):
    of_seeds, mean, std = SYMMETRIC[name]
    shift = dict(zip(GLUE_TASKS, (20.0, -9.0, 5.0, -16.0, 0.0, 1.0, -4.0, 2.0, 99.0), strict=True))
    shift["MNLI"] = 1.0  # counts twice; the shifts of the nine columns add up to 0, WNLI's is left out
    assert sum(shift[task] for task in GLUE_TASKS if task != "WNLI") + shift["MNLI"] == pytest.approx(0.0)
    records = [
        record(task, *[(value + shift[task]) / 100] * (2 if task == "MNLI" else 1), seed=seed, protocol="symmetric")
        for task in GLUE_TASKS
        for seed, value in enumerate(of_seeds, 1)
    ]
    (average,) = [average for average in mean_lines(records) if average.name == "symmetric"]
    assert average.own and average.value * 100 == pytest.approx(mean, abs=0.01)
    assert average.std * 100 == pytest.approx(std, abs=0.01)
    assert [100 * value for value in average.seeds.values()] == pytest.approx(of_seeds)
    (mnli_m, mnli_mm) = [line for line in summarise(records) if line.task == "MNLI"]
    assert (mnli_m.column, mnli_mm.column) == ("MNLI-m", "MNLI-mm") and mnli_m.planned == (1, 5)
    assert mnli_m.score == pytest.approx(statistics.fmean(mnli_m.runs))


def test_tupe_reports_the_median_of_the_best_rate():
    scores = {2e-5: (0.1, 0.9, 0.2, 0.2, 0.2), 3e-5: (0.3, 0.1, 0.5, 0.4, 0.1), 4e-5: (0.1,) * 5, 5e-5: (0.2,) * 5}
    records = [
        record("CoLA", score, seed=seed, rate=rate, protocol="tupe")
        for rate, runs in scores.items()
        for seed, score in enumerate(runs)
    ]
    (line,) = summarise(records[::-1])
    assert (line.rate, line.score, line.runs) == (3e-5, 0.3, [0.3, 0.1, 0.5, 0.4, 0.1])
    assert line.std == pytest.approx(statistics.stdev(line.runs)) and line.aggregation == "median"
    assert not any("grid" in note for note in notes(records))
    (started,) = summarise(records[:6])  # one run at 3e-5 is not held against five at 2e-5
    assert started.rate == 2e-5 and any("the grid is not done, runs so far: 6" in note for note in notes(records[:6]))


def test_starts_settings_and_data_are_never_mixed():
    records = [
        record("RTE", 0.6),
        record("RTE", 0.7, seed=1),
        record("RTE", 0.1, start="from scratch"),
        record("RTE", 0.2, protocol="quick"),
        record("RTE", 0.3, data="z"),
    ]
    assert [line.runs for line in summarise(records)] == [[0.6, 0.7], [0.1], [0.2], [0.3]]


def test_an_average_says_what_it_lacks():
    records = [record(task, 0.5) for task in ("CoLA", "RTE")] + [record("order", 0.9)]
    averages = {average.name: average for average in mean_lines(records)}
    assert averages["TUPE"].value is None and averages["TUPE"].own
    assert set(averages["TUPE"].missing) == {"MNLI-m", "MNLI-mm", "QNLI", "QQP", "SST-2", "MRPC", "STS-B"}
    assert not mean_lines([record("order", 0.9)])


def test_chance_and_failures_are_noted():
    failed = record("RTE", 0.0, seed=1, failed="the loss is not finite at step 3")
    found = notes([record("RTE", 0.5), failed, record("CoLA", 0.6, notes=["odd"])])
    assert found[0] == "RTE seed 1: failed, not scored: the loss is not finite at step 3"
    assert found[1] == "CoLA seed 0: odd"
    assert len(found) == 3 and "RTE" in found[2] and "no run is better than the majority" in found[2]
    assert summarise([failed]) == []
