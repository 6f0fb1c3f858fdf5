"""Word in Context: the right slots, thresholds that recover what was planted, an exact test, records kept."""

import json
import shutil
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_jax.analysis.mean_vectors import mean_vectors
from posenc_jax.data.wic import Place, load_wic
from posenc_jax.data.wordpiece import JsonTokenizer
from posenc_jax.errors import UserError
from posenc_jax.evaluation.similarity.vectors import cosine
from posenc_jax.evaluation.similarity.wic import (
    mcnemar,
    run_wic,
    score_splits,
    standard_error,
    tables,
    word_cosines,
    word_rows,
)
from posenc_jax.interop.pretrained import Pretrained, load_encoder
from posenc_jax.interop.tokenizer_files import find_tokenizer
from tests.tiny_tokenizers import write_byte_level, write_word_piece
from tests.tiny_workdirs import LENGTH, sentences, write_workdir


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_workdir(tmp_path_factory.mktemp("original") / "run")


@pytest.fixture
def workdir(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for seed, (split, count) in enumerate((("train", 30), ("dev", 11))):
        (root / split).mkdir()
        pairs = list(zip(sentences(count, 2 * seed, 10), sentences(count, 2 * seed + 1, 10), strict=True))
        indices = [[rng.integers(0, len(text.split())) for text in pair] for pair in pairs]
        lines = [f"w\tN\t{i}-{j}\t{a}\t{b}\n" for (i, j), (a, b) in zip(indices, pairs, strict=True)]
        (root / split / f"{split}.data.txt").write_text("".join(lines))
        (root / split / f"{split}.gold.txt").write_text("".join(f"{'TF'[n % 2]}\n" for n in range(count)))
    return root


# ---- slots --------------------------------------------------------------------------------------------------------


def place_of(text: str, index: int) -> Place:
    tokens = text.split(" ")
    start = len(" ".join(tokens[:index])) + (index > 0)
    return Place(text, start, start + len(tokens[index]))


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece", "byte_level"])
def pretrained(request, original, tmp_path_factory):
    tokenizer = load_encoder(original).pretrained.tokenizer
    if request.param != "sentencepiece":
        write = {"wordpiece": write_word_piece, "byte_level": write_byte_level}[request.param]
        tokenizer = find_tokenizer(write(tmp_path_factory.mktemp(request.param)))
        assert isinstance(tokenizer, JsonTokenizer)
    return Pretrained(original, load_encoder(original).pretrained.model, tokenizer, LENGTH)


def test_the_slots_are_those_of_the_word_in_every_tokenizer(pretrained):
    text = "the old bank . the slowly bank over house"
    for index, word in enumerate(text.split(" ")):
        (row,), cut = word_rows(pretrained, [place_of(text, index)])
        tokenizer = pretrained.tokenizer
        assert cut == 0 and list(row.ids[1:-1]) == tokenizer.encode(text)
        assert (row.ids[0], row.ids[-1]) == (tokenizer.cls, tokenizer.sep)
        assert tokenizer.decode(row.ids[row.start : row.stop]).strip() == word
        before = tokenizer.decode(row.ids[1 : row.start])
        assert before.replace(" ", "") == "".join(text.split(" ")[:index])


def test_a_long_sentence_is_cut_to_a_window_around_the_word(pretrained):
    words = ["old"] * 60
    for index in (0, 1, 30, 58, 59):
        text = " ".join([*words[:index], "bank", *words[index + 1 :]])
        (row,), cut = word_rows(pretrained, [place_of(text, index)])
        assert cut == 1 and len(row.ids) == LENGTH
        assert 1 <= row.start < row.stop <= LENGTH - 1
        assert pretrained.tokenizer.decode(row.ids[row.start : row.stop]).strip() == "bank"


def test_a_word_longer_than_the_encoder_keeps_its_middle(pretrained):
    (row,), cut = word_rows(pretrained, [Place("the " + "Xq7" * 90, 4, 274)])
    if cut:  # WordPiece knows no word so long: one [UNK]
        assert len(row.ids) == LENGTH and (row.start, row.stop) == (1, LENGTH - 1)


def test_vectors_are_means_over_the_words_own_slots(original, data):
    encoder, split = load_encoder(original), load_wic(data, "dev")
    (found,), notes = word_cosines(encoder, split)
    assert not notes and found.shape == (11, 3)
    rows = [word_rows(encoder.pretrained, side)[0] for side in (split.places_a, split.places_b)]
    a, b = (mean_vectors(encoder, side) for side in rows)
    for e in range(3):
        np.testing.assert_allclose(found[:, e], cosine(a[:, e], b[:, e]), rtol=0, atol=1e-6)
    assert np.ptp(found[:, 2]) > 0.05


# ---- thresholds ---------------------------------------------------------------------------------------------------


def planted(rng, count, border, noise=0.0):
    """Cosines of which layer 1 tells the senses apart at `border`, and layers 0 and 2 know nothing."""
    same = np.arange(count) % 2 == 0
    cosines = rng.uniform(-1, 1, (count, 3))
    gap = rng.uniform(0.01, 0.04, count)
    cosines[:, 1] = border + np.where(same, gap, -gap)
    flipped = rng.random(count) < noise
    return cosines, same ^ flipped


@pytest.mark.parametrize("border", [0.1, 0.5, 0.9])
def test_the_grid_recovers_what_was_planted(rng, border):
    fit, held = planted(rng, 400, border), planted(rng, 300, border, noise=0.2)
    found = score_splits({"train": fit[0], "dev": held[0]}, {"train": fit[1], "dev": held[1]}, "train")
    for rule in ("grid", "quantiles"):
        best = found[rule]["best"]
        assert best["layer"] == 1 and best["threshold"] == pytest.approx(border, abs=0.02)
        assert best["accuracy"]["train"] == 100
        assert 70 < best["accuracy"]["dev"] < 90
    best = found["grid"]["best"]
    right = (held[0][:, 1] > best["threshold"]) == held[1]
    assert best["threshold"] == border and best["accuracy"]["dev"] == pytest.approx(100 * right.mean())
    assert best["standard error"]["dev"] == pytest.approx(100 * np.sqrt(right.mean() * (1 - right.mean()) / 300))


def test_quantiles_find_a_border_between_the_thresholds_of_the_grid(rng):
    """Where all cosines crowd between two of the grid's, the grid knows nothing (positional_artefacts.md 2.1)."""
    cosines, same = planted(rng, 400, 0.95)
    found = score_splits({"train": cosines[:, 1:2]}, {"train": same}, "train")
    assert found["grid"]["best"]["accuracy"]["train"] < 60
    assert found["quantiles"]["best"]["accuracy"]["train"] == 100


def test_the_grid_is_the_papers_and_above_means_above():
    cosines, same = np.array([[0.5], [0.5], [0.6]]), np.array([False, False, True])
    entry = score_splits({"dev": cosines}, {"dev": same}, "dev")["grid"]["best"]
    assert (entry["threshold"], entry["accuracy"]["dev"]) == (0.5, 100)


def test_of_equals_the_lowest_layer_and_threshold_are_taken():
    cosines, same = np.array([[0.05, 0.05], [0.95, 0.95]]), np.array([False, True])
    best = score_splits({"train": cosines}, {"train": same}, "train")["grid"]["best"]
    assert (best["layer"], best["threshold"]) == (0, 0.1)


def test_held_out_labels_choose_nothing(rng):
    (cosines, same), (held, labels) = planted(rng, 200, 0.3), planted(rng, 100, 0.7)
    one = score_splits({"train": cosines, "dev": held}, {"train": same, "dev": labels}, "train")
    other = score_splits({"train": cosines, "dev": held}, {"train": same, "dev": ~labels}, "train")
    for rule in ("grid", "quantiles"):
        assert one[rule]["best"]["threshold"] == other[rule]["best"]["threshold"]
        both = [found[rule]["best"]["accuracy"]["dev"] for found in (one, other)]
        assert sum(both) == pytest.approx(100)


def test_standard_error_of_the_papers_size():
    """0.63 points at 5,428 pairs (positional_artefacts.md 2.1)."""
    assert 100 * standard_error(0.675, 5428) == pytest.approx(0.63, abs=0.01)


# ---- McNemar ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_test(pairs):
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    only_a, only_b, p = mcnemar(a, b)
    assert (only_a, only_b) == (sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs))
    n, k = only_a + only_b, min(only_a, only_b)
    assert p == pytest.approx(min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0)
    assert mcnemar(b, a) == (only_b, only_a, pytest.approx(p))


def test_mcnemar_refuses_answers_to_other_pairs():
    with pytest.raises(ValueError, match="same pairs"):
        mcnemar(np.ones(3, bool), np.ones(4, bool))


# ---- the whole ----------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_record_and_a_section(workdir, data):
    heard = []
    record = run_wic(workdir, data, say=heard.append)
    assert heard == ["train: 30 pairs, 1 of 2 splits done", "dev: 11 pairs, 2 of 2 splits done"]
    assert record["pairs"] == {"train": 30, "dev": 11} and record["layers"] == ["0", "1", "2"]
    assert record["always same"] == {"train": 50.0, "dev": pytest.approx(100 * 6 / 11)}
    assert record["notes"] == [f"not held out: {data} has no test/test.gold.txt"]
    again = run_wic(workdir, data)
    assert json.loads((workdir / "wic" / "scores.json").read_text()) == [again]
    other = run_wic(workdir, data, split="dev")
    assert json.loads((workdir / "wic" / "scores.json").read_text()) == [again, other]
    summary, by_layer = tables(record)
    assert summary.columns == ("rule", "layer", "threshold", "train", "dev")
    assert summary.rows[-1] == ("always the same sense", "-", "-", "50.0", "54.5")
    assert "chosen on train (30 pairs), so that train flatters; dev held out" in summary.caption
    assert [row[0] for row in by_layer.rows] == ["0", "1", "2"] and len(by_layer.columns) == 7
    report = (workdir / "report.md").read_text()
    assert report.count("## Word in Context") == 1 and summary.markdown() in report


def test_missing_files_and_damaged_records_are_refused(workdir, data, tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        run_wic(workdir, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"test/test\.data\.txt"):
        run_wic(workdir, data, split="test")
    (workdir / "wic").mkdir()
    (workdir / "wic" / "scores.json").write_text("[3]")
    with pytest.raises(UserError, match=r"wic/scores\.json is damaged .* run `wic` again"):
        run_wic(workdir, data)
