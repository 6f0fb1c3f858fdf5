"""Sentence similarity: correlations put together as named, records kept, what is odd said."""

import json
import shutil

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.data.sts import load_sts
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.similarity.sts import combine, run_sts, score_sets, tables
from posenc_jax.evaluation.similarity.vectors import cosine
from posenc_jax.interop.pretrained import load_encoder
from posenc_jax.training.workdir import take_lock
from tests.tiny_workdirs import sentences, write_workdir


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_workdir(tmp_path_factory.mktemp("original") / "run")


@pytest.fixture
def workdir(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for seed, (name, count) in enumerate((("STS12/OnWN", 12), ("STS12/MSRpar", 30), ("STS16/headlines", 9))):
        pairs = zip(sentences(count, 2 * seed, 9), sentences(count, 2 * seed + 1, 9), strict=True)
        path = root / f"{name}.test.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{rng.integers(0, 21) / 4}\t{a}\t{b}\n" for a, b in pairs))
    return root


def test_numbers_are_put_together_as_they_are_named():
    """By hand: sub-sets of 3 and 2 pairs with Spearman 0.5 and -1."""
    parts = {
        "one": (np.array([1.0, 2, 3]), np.array([[0.1], [0.3], [0.2]])),
        "two": (np.array([4.0, 5]), np.array([[0.9], [0.8]])),
    }
    found, why = combine(parts)
    assert not why
    assert {name: one["pairs"] for name, one in found["subsets"].items()} == {"one": 3, "two": 2}
    assert [one["spearman"][0] for one in found["subsets"].values()] == pytest.approx([50, -100])
    assert found["mean"]["spearman"] == pytest.approx([(50 - 100) / 2])
    assert found["wmean"]["spearman"] == pytest.approx([(3 * 50 - 2 * 100) / 5])
    # ranks of scores 1 2 3 4 5, of cosines 1 3 2 5 4: 1 - 6 * 4 / (5 * 24)
    assert found["all"] == {"pairs": 5, "spearman": pytest.approx([80]), "pearson": found["all"]["pearson"]}


def test_correlations_are_those_of_scipy_in_every_layer(rng):
    parts = {name: (rng.integers(0, 6, n).astype(float), rng.normal(size=(n, 3))) for name, n in (("a", 40), ("b", 7))}
    found, _ = combine(parts)
    together = {"all": tuple(np.concatenate(side) for side in zip(*parts.values(), strict=True))}
    for name, (scores, cosines) in {**parts, **together}.items():
        ours = found["subsets"].get(name, found.get(name))
        for e in range(3):
            assert ours["spearman"][e] == pytest.approx(100 * spearmanr(scores, cosines[:, e]).statistic)
            assert ours["pearson"][e] == pytest.approx(100 * pearsonr(scores, cosines[:, e]).statistic)


def test_what_has_no_correlation_is_zero_and_said():
    scores = np.array([1.0, 2, 3])
    found, why = combine(
        {"a": (scores, np.array([[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]])), "b": (scores * 0, scores[:, None] * [1, 2])}
    )
    assert found["subsets"]["a"]["spearman"] == [pytest.approx(100), 0]
    assert found["subsets"]["b"]["pearson"] == [0, 0]
    assert ("a", 1, "spearman is set to 0: every prediction is 1") in why
    assert ("b", 0, "pearson is set to 0: every label is 0") in why


def test_an_encoder_that_knows_no_difference_scores_zero_with_a_note(workdir, data):
    """All cosines are 1 but for rounding, which must not be ranked."""
    encoder = load_encoder(workdir)
    sets, _ = load_sts(data)
    same = np.random.default_rng(0).normal(size=32)
    noise = np.random.default_rng(1)
    record = score_sets(encoder, sets, transform=lambda x_NxExD: same + 1e-7 * noise.normal(size=x_NxExD.shape))
    for one in record["sets"]:
        assert one["all"]["spearman"] == one["mean"]["pearson"] == [0, 0, 0]
    assert "STS12 OnWN layer 1: spearman is set to 0: every prediction is 1" in record["notes"]


def test_a_record_holds_what_the_vectors_give(workdir, data):
    record = run_sts(workdir, data)
    assert record == json.loads((workdir / "sts" / "scores.json").read_text())[0]
    assert record["layers"] == ["0", "1", "2"] and [one["set"] for one in record["sets"]] == ["STS12", "STS16"]
    assert [*record["absent"]] == ["STS-B", "SICK-R", "STS13", "STS14", "STS15"]
    encoder, (sts12, _) = load_encoder(workdir), load_sts(data)[0]
    onwn = next(part for part in sts12.parts if part.name == "OnWN")
    vectors = [
        mean_vectors(encoder, sentence_rows(encoder.pretrained, side)[0]) for side in (onwn.texts_a, onwn.texts_b)
    ]
    for e in range(3):
        expected = spearmanr(cosine(vectors[0][:, e], vectors[1][:, e]), onwn.scores_N).statistic
        assert record["sets"][0]["subsets"]["OnWN"]["spearman"][e] == pytest.approx(100 * expected, abs=1e-6)


def test_tables_name_what_they_show_and_what_lacks(workdir, data):
    record = run_sts(workdir, data)
    by_layer, by_subset = tables(record)
    assert by_layer.columns == ("layer", "STS12", "STS16")
    assert [row[0] for row in by_layer.rows] == ["0", "1", "2", "best on these same scores"]
    means = record["sets"][0]["mean"]["spearman"]
    assert by_layer.rows[3][1] == f"{max(means):.2f} (layer {int(np.argmax(means))})"
    assert [row[1] for row in by_subset.rows] == [
        "MSRpar", "OnWN", "mean of 2 sub-sets", "wmean of 2 sub-sets", "all pairs", "headlines"
    ]  # fmt: skip
    assert [row[2] for row in by_subset.rows] == ["30", "12", "42", "42", "42", "9"]
    assert "STS12 lacks MSRvid, SMTeuroparl, SMTnews." in by_subset.caption
    assert "STS13 is not here" in by_subset.caption and "test split" in by_layer.caption
    assert "[SEP] not in the mean" in by_layer.caption and "Chance is 0" in by_layer.caption
    report = (workdir / "report.md").read_text()
    assert report.count("## Sentence similarity") == 1 and by_subset.markdown() in report


def test_one_layer_and_specials_are_records_of_their_own(workdir, data):
    every, heard = run_sts(workdir, data), []
    again = run_sts(workdir, data)
    last = run_sts(workdir, data, layers="last")
    specials = run_sts(workdir, data, layers="2", specials=True, say=heard.append)
    assert heard == ["STS12: 42 pairs, 1 of 2 sets done", "STS16: 9 pairs, 2 of 2 sets done"]
    records = json.loads((workdir / "sts" / "scores.json").read_text())
    assert records == [again, last, specials] and every["sets"] == again["sets"]
    assert last["layers"] == ["2"] == specials["layers"]
    assert last["sets"][0]["all"]["spearman"] == every["sets"][0]["all"]["spearman"][2:]
    assert specials["sets"][0]["all"]["spearman"] != last["sets"][0]["all"]["spearman"]
    report = (workdir / "report.md").read_text()
    assert "[SEP] in the mean" in report and "[SEP] not in the mean" in report


def test_cut_and_empty_sentences_are_said(workdir, tmp_path):
    (tmp_path / "STSB").mkdir()
    long = " ".join(sentences(9, 3))
    rows = [f"g\tf\ty\t1\t{score}\t{a}\tthe dog" for score, a in ((1, long), (2, "the old man"), (3, "\u200b"))]
    (tmp_path / "STSB" / "sts-test.csv").write_text("\n".join(rows) + "\n")
    notes = run_sts(workdir, tmp_path)["notes"]
    assert notes == [
        "STS-B test: 1 sentences cut at 48 slots",
        "STS-B test: 1 sentences have no word in the vocabulary's eyes",
    ]
    assert f"- {notes[0]}" in (workdir / "report.md").read_text()


def test_wrong_use_and_damage_are_refused_before_any_work(workdir, data, tmp_path):
    with pytest.raises(UsageError, match="--layers 3"):
        run_sts(workdir, data, layers="3")
    with pytest.raises(UserError, match="there is no folder"):
        run_sts(tmp_path / "nowhere", data)
    (workdir / "sts").mkdir(exist_ok=True)
    with take_lock(workdir / "sts", "held"), pytest.raises(UserError, match="another process runs `sts`"):
        run_sts(workdir, data)
    for damage in ("{", "[1]", '[{"encoder": "x"}]', "{}x"):
        (workdir / "sts" / "scores.json").write_text(damage)
        with pytest.raises(UserError, match=r"sts/scores\.json is damaged"):
            run_sts(workdir, data)
        assert (workdir / "sts" / "scores.json").read_text() == damage
