"""A linear classifier a layer: it finds what is planted, is scikit-learn's where both converge, and knows no test."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.analysis.sentence_probe import _train, linear_sentence_probe, probe_task
from posenc_jax.analysis.transforms import clip_dims
from posenc_jax.errors import UsageError, UserError
from posenc_jax.interop.pretrained import load_encoder
from tests.tiny_workdirs import sentences, write_workdir


def planted(rng, count=400, width=12):
    """Three classes along coordinate 2 of layer 1; layer 0 is noise."""
    labels = rng.integers(0, 3, count)
    vectors = rng.normal(size=(2, count, width)).astype(np.float32)
    vectors[1, :, 2] = 5 * (labels - 1) + 0.3 * vectors[1, :, 2]
    return vectors, labels


@pytest.fixture
def sides(rng):
    return *planted(rng), *planted(rng, 300)


def test_a_probe_finds_the_layer_and_the_coordinate_that_know(sides):
    probe = linear_sentence_probe(*sides, batch=32, learning_rate=0.02)
    assert probe.accuracy_E[1] > 0.98 and probe.accuracy_E[0] < 0.45
    assert abs(probe.weights_ExDxC[1]).max(1).argmax() == 2
    assert probe.majority == np.mean(sides[3] == np.bincount(sides[1]).argmax())
    assert (probe.train_sentences, probe.test_sentences) == (400, 300)
    share = probe.accuracy_E[0]
    assert probe.error_E[0] == pytest.approx(np.sqrt(share * (1 - share) / 300))


def test_a_transform_takes_away_what_was_known(sides):
    raw = linear_sentence_probe(*sides, batch=32, learning_rate=0.02)
    clipped = linear_sentence_probe(*sides, batch=32, learning_rate=0.02, transform=clip_dims([2]))
    assert clipped.accuracy_E[1] < 0.45 < raw.accuracy_E[1]
    assert not clipped.weights_ExDxC[:, 2].any()


def test_a_trained_probe_is_scikit_learns(rng):
    """Classes that overlap, so that the likelihood has one finite maximum."""
    labels = rng.integers(0, 2, 500)
    vectors = (rng.normal(size=(1, 500, 4)) + 0.7 * labels[None, :, None]).astype(np.float32)
    probe = linear_sentence_probe(vectors, labels, vectors, labels, batch=500, epochs=2000, learning_rate=0.02)
    theirs = LogisticRegression(C=np.inf, tol=1e-8).fit(vectors[0], labels)
    ours = probe.weights_ExDxC[0, :, 1] - probe.weights_ExDxC[0, :, 0]
    np.testing.assert_allclose(ours, theirs.coef_[0], rtol=0, atol=1e-3)
    assert probe.bias_ExC[0, 1] - probe.bias_ExC[0, 0] == pytest.approx(theirs.intercept_[0], abs=1e-3)
    assert probe.accuracy_E[0] == probe.train_accuracy_E[0] == pytest.approx(theirs.score(vectors[0], labels), abs=0.01)


def test_a_layer_is_trained_as_if_alone_and_a_seed_is_an_order(sides):
    both = linear_sentence_probe(*sides, batch=64, seed=1)
    alone = linear_sentence_probe(sides[0][1:], sides[1], sides[2][1:], sides[3], batch=64, seed=1)
    np.testing.assert_allclose(both.weights_ExDxC[1:], alone.weights_ExDxC, rtol=0, atol=1e-6)
    other = linear_sentence_probe(*sides, batch=64, seed=2)
    assert abs(other.weights_ExDxC - both.weights_ExDxC).max() > 1e-5


def test_test_labels_teach_nothing(sides):
    train, labels, test, test_labels = sides
    one = linear_sentence_probe(train, labels, test, test_labels, batch=64)
    other = linear_sentence_probe(train, labels, -test, 2 - test_labels, batch=64)
    assert (one.weights_ExDxC == other.weights_ExDxC).all() and (one.train_accuracy_E == other.train_accuracy_E).all()


def test_arrays_that_do_not_go_together_are_refused(sides):
    train, labels, test, test_labels = sides
    for wrong in ((train[0], labels, test, test_labels), (train, labels[1:], test, test_labels),
                  (train, labels, test[:1], test_labels), (train, labels, test[..., 1:], test_labels),
                  (train, labels, test, test_labels[1:]), (train[:, :0], labels[:0], test, test_labels)):  # fmt: skip
        with pytest.raises(ValueError, match="do not go together"):
            linear_sentence_probe(*wrong)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("run") / "run"))


def test_a_task_is_probed_on_mean_vectors_of_its_files(encoder, tmp_path):
    texts = sentences(60, 3, 9)
    labels = np.array([int("dog" in text) for text in texts])
    (tmp_path / "SST-2").mkdir()
    for split, part in (("train", slice(0, 40)), ("dev", slice(40, 60))):
        lines = [f"{text}\t{label}\n" for text, label in zip(texts[part], labels[part], strict=True)]
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("".join(["sentence\tlabel\n", *lines]))
    found = probe_task(encoder, tmp_path, most=32, transforms={"raw": None, "clipped": clip_dims([3])})
    vectors = mean_vectors(encoder, sentence_rows(encoder.pretrained, texts)[0]).swapaxes(0, 1)
    sides = vectors[:, :32], labels[:32], vectors[:, 40:], labels[40:]
    expected = linear_sentence_probe(*sides)
    np.testing.assert_allclose(found["raw"].weights_ExDxC, expected.weights_ExDxC, rtol=0, atol=1e-5)
    assert found["raw"].train_sentences == 32 and found["raw"].majority == expected.majority
    assert not found["clipped"].weights_ExDxC[:, 3].any()


def test_a_task_that_cannot_be_probed_so_is_refused(encoder, tmp_path):
    with pytest.raises(UsageError, match="RTE is no classification of single sentences"):
        probe_task(encoder, tmp_path, "RTE")
    with pytest.raises(UserError, match="SST-2"):
        probe_task(encoder, tmp_path)


def test_variants_of_the_same_shape_share_one_program(sides):
    linear_sentence_probe(*sides, batch=64)
    before = _train._cache_size()
    linear_sentence_probe(*sides, batch=64, seed=5, transform=clip_dims([2]))
    assert _train._cache_size() == before
