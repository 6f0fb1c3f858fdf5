"""Vectors raw and changed side by side: the changes are what they say, and their records stay apart."""

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.data.sts import load_sts
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.similarity import sts, wic
from posenc_jax.evaluation.similarity.changes import make_change
from posenc_jax.evaluation.similarity.sts import run_sts
from posenc_jax.evaluation.similarity.vectors import cosine
from posenc_jax.evaluation.similarity.wic import mcnemar, run_wic
from posenc_jax.interop.pretrained import load_encoder
from posenc_jax.model.encoder import all_states
from tests.tiny_workdirs import sentences, write_workdir

TEXTS = sentences(40, 7, 9)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_workdir(tmp_path_factory.mktemp("original") / "run")


@pytest.fixture
def workdir(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture(scope="module")
def encoder(original):
    return load_encoder(original)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """STS12 with two sub-sets, and WiC with a train and a dev split."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for seed, (name, count) in enumerate((("STS12/OnWN", 12), ("STS12/MSRpar", 17))):
        pairs = zip(sentences(count, 2 * seed, 9), sentences(count, 2 * seed + 1, 9), strict=True)
        path = root / f"{name}.test.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{rng.integers(0, 21) / 4}\t{a}\t{b}\n" for a, b in pairs))
    for seed, (split, count) in enumerate((("train", 30), ("dev", 11))):
        (root / split).mkdir()
        pairs = zip(sentences(count, 2 * seed + 20, 10), sentences(count, 2 * seed + 21, 10), strict=True)
        (root / split / f"{split}.data.txt").write_text("".join(f"w\tN\t0-0\t{a}\t{b}\n" for a, b in pairs))
        (root / split / f"{split}.gold.txt").write_text("".join(f"{'TF'[n % 2]}\n" for n in range(count)))
    return root


# ---- what a change does -------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def states(config, params, tokens, segments):
    return all_states(config, params, tokens, segments)


def subwords(encoder, specials: bool = False) -> np.ndarray:
    """[E, N, D]: the states of all subwords of `TEXTS`, from rows of one length, padding left out."""
    rows, _ = sentence_rows(encoder.pretrained, TEXTS)
    longest = max(len(row.ids) for row in rows)
    tokens = np.array([[*row.ids] + [encoder.pretrained.tokenizer.pad] * (longest - len(row.ids)) for row in rows])
    keep = np.array([[specials or 0 < slot < len(row.ids) - 1 for slot in range(longest)] for row in rows])
    keep &= np.array([[slot < len(row.ids) for slot in range(longest)] for row in rows])
    real = np.array([[int(slot < len(row.ids)) for slot in range(longest)] for row in rows])
    params = jax.device_get(encoder.params)
    return np.asarray(states(encoder.pretrained.model, params, jnp.asarray(tokens), jnp.asarray(real)))[:, keep]


@pytest.mark.parametrize("specials", [False, True])
def test_changes_are_fit_on_the_subwords_of_the_tasks_sentences(encoder, rng, specials):
    sample, vectors = subwords(encoder, specials).astype(np.float64), rng.normal(size=(3, 5, 32)).astype(np.float32)
    mean, std = sample.mean(1, keepdims=True), sample.std(1, keepdims=True)
    made = {name: make_change(encoder, name, TEXTS, specials) for name in ("center", "standardize", "all_but_the_top")}
    np.testing.assert_allclose(made["center"].transform(vectors), vectors - mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(made["standardize"].transform(vectors), (vectors - mean) / std, rtol=1e-4, atol=1e-4)
    for e in range(3):
        first = PCA(1).fit(sample[e]).components_
        expected = (vectors[e] - mean[e]) - (vectors[e] - mean[e]) @ first.T @ first
        np.testing.assert_allclose(made["all_but_the_top"].transform(vectors)[e], expected, rtol=0, atol=1e-4)
    assert f"the mean of {sample.shape[1]:,} subwords" in made["center"].record["what"]


def test_clip_auto_finds_the_outlier_that_persists_and_no_spike_of_one_layer(encoder):
    """Biases of the LayerNorms that close the layers: one coordinate in both, another in one."""
    params = jax.device_get(encoder.params)
    bias = np.array(params["layers"]["feed_forward_norm"]["bias"])
    bias[:, 7] = -25
    bias[1, 20] = 25
    layers = params["layers"] | {"feed_forward_norm": params["layers"]["feed_forward_norm"] | {"bias": bias}}
    planted = dataclasses.replace(encoder, params={**params, "layers": layers})
    change = make_change(planted, "clip auto", TEXTS, False)
    assert change.record["dims"] == [7] and "dimension 7 is set to 0" in change.record["what"]
    clipped = change.transform(np.ones((3, 2, 32), np.float32))
    assert (clipped == (np.arange(32) != 7)[None, None]).all()


def test_clip_auto_without_outliers_changes_nothing(encoder, rng):
    change = make_change(encoder, "clip auto", TEXTS, False)
    vectors = rng.normal(size=(3, 2, 32)).astype(np.float32)
    assert change.record["dims"] == [] and (change.transform(vectors) == vectors).all()
    assert change.record["what"].startswith("no dimension is set to 0")


@pytest.mark.parametrize(
    "change, text",
    [
        ("clip 32", "--clip 32: this encoder's dimensions are 0 to 31"),
        ("clip 3,x", "--clip wants dimensions, as 557,77, or auto; it got 3,x"),
        ("whiten", "--transform whiten is none of center, standardize, all_but_the_top"),
    ],
)
def test_a_change_that_is_not_there_is_refused_before_any_work(workdir, data, change, text):
    with pytest.raises(UsageError, match=text):
        run_sts(workdir, data, change=change)
    with pytest.raises(UsageError, match=text):
        run_wic(workdir, data, change=change)
    assert not (workdir / "sts").exists()


def test_texts_without_a_word_fit_nothing(encoder):
    with pytest.raises(UserError, match="center: none of the task's sentences has a word"):
        make_change(encoder, "center", ["", " "], False)


# ---- sts ----------------------------------------------------------------------------------------------------------


def test_sts_scores_raw_and_clipped_vectors_side_by_side(workdir, data, encoder):
    plain, record = run_sts(workdir, data), run_sts(workdir, data, change="clip 9,5,5")
    assert record["plain"] == plain["sets"] != record["sets"] and record["change"]["dims"] == [5, 9]
    onwn = next(part for part in load_sts(data)[0][0].parts if part.name == "OnWN")
    a, b = (
        mean_vectors(encoder, sentence_rows(encoder.pretrained, side)[0]) * ~np.isin(np.arange(32), [5, 9])
        for side in (onwn.texts_a, onwn.texts_b)
    )
    for e in range(3):
        expected = spearmanr(cosine(a[:, e], b[:, e]), onwn.scores_N).statistic
        assert record["sets"][0]["subsets"]["OnWN"]["spearman"][e] == pytest.approx(100 * expected, abs=1e-6)
    by_layer, by_subset = sts.tables(record)
    assert by_layer.columns == ("layer", "STS12, raw", "STS12, changed")
    means = [one[0]["mean"]["spearman"] for one in (record["plain"], record["sets"])]
    assert by_layer.rows[1] == ("1", f"{means[0][1]:.2f}", f"{means[1][1]:.2f}")
    assert "Changed (clip 9,5,5): dimensions 5, 9 are set to 0." in by_layer.caption
    assert by_subset.columns[3:5] == ("Spearman, layer 2, raw", "Spearman, layer 2, changed")
    assert [row[1] for row in by_subset.rows][-1] == "all pairs" and len(by_subset.rows[0]) == 9


def test_sts_records_of_changes_and_of_plain_vectors_stay_apart(workdir, data):
    run_sts(workdir, data)
    run_sts(workdir, data, change="clip 5")
    center = run_sts(workdir, data, change="center")
    clip = run_sts(workdir, data, change="clip 5")
    again = run_sts(workdir, data)
    assert json.loads((workdir / "sts" / "scores.json").read_text()) == [center, clip, again]
    assert center["sets"] != clip["sets"] and center["plain"] == clip["plain"] == again["sets"]
    report = (workdir / "report.md").read_text()
    assert report.count("Changed (") == 2 and report.count("STS12, changed") == 2


# ---- wic ----------------------------------------------------------------------------------------------------------


def test_wic_chooses_for_raw_and_changed_vectors_apart(workdir, data, encoder):
    half = f"clip {','.join(map(str, range(16)))}"
    plain, record = run_wic(workdir, data), run_wic(workdir, data, change=half)
    assert record["plain"] == {rule: plain[rule] for rule in ("grid", "quantiles")}
    assert record["quantiles"] != record["plain"]["quantiles"]
    assert json.loads((workdir / "wic" / "scores.json").read_text()) == [plain, record]
    change = make_change(encoder, half, [], False)
    for split in (wic.load_wic(data, name) for name in ("train", "dev")):
        cosines, _ = wic.word_cosines(encoder, split, (None, change.transform))
        right = []
        for place, chosen in enumerate((record["plain"], record)):
            best = chosen["quantiles"]["best"]
            right.append((cosines[place][:, best["layer"]] > best["threshold"]) == split.same_N)
            assert best["accuracy"][split.name] == pytest.approx(100 * right[-1].mean())
        assert tuple(record["mcnemar"]["quantiles"][split.name]) == mcnemar(*right)
        assert (right[0] != right[1]).any()
    summary, by_layer, differ = wic.tables(record)
    assert [row[0].rsplit(", ", 1)[1] for row in summary.rows[:4]] == ["raw", "changed"] * 2
    assert f"Changed ({half}): dimensions 0, 1," in summary.caption
    heads = [f"grid, {variant}: {what}" for variant in ("raw", "changed") for what in ("threshold", "train", "dev")]
    assert by_layer.columns[1:7] == tuple(heads)
    assert differ.columns[2:] == ("only raw is right", "only changed is right", "p") and len(differ.rows) == 4
    assert differ.markdown() in (workdir / "report.md").read_text()


def test_wic_of_a_change_that_changes_nothing_differs_in_nothing(workdir, data):
    record = run_wic(workdir, data, change="clip auto")
    assert record["change"]["dims"] == []
    assert record["plain"] == {rule: record[rule] for rule in ("grid", "quantiles")}
    assert all(one == [0, 0, 1.0] for by_split in record["mcnemar"].values() for one in by_split.values())
