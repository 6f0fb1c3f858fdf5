import numpy as np
import pytest

from posenc_jax.analysis.attention_measures import (
    FORMS,
    attention_by_distance,
    attention_distance,
    attention_entropy,
    diagonal_concentration,
    head_similarity,
    token_similarity,
)
from tests.oracle import softmax

SEGMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 2], [0, 0, 1, 1, 1, 1, 1, 0], [0] * 8])


def some_weights(rng, segments, layers=2, heads=3, spread=2.0):
    may_meet_BxLxL = (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]
    may_meet_BxLxL |= (segments == 0)[:, :, None]  # the model's queries at padding meet everything
    logits = rng.normal(0, spread, (layers, len(segments), heads, *segments.shape[1:] * 2))
    return np.float32(softmax(np.where(may_meet_BxLxL[:, None], logits, -1e30)))


def queries(segments):
    for row, query in zip(*np.nonzero(segments), strict=True):
        yield row, query, np.flatnonzero(segments[row] == segments[row, query])


@pytest.mark.parametrize("n", [4, 5, 16, 33])
def test_uniform_attention_has_its_known_share_near_the_diagonal(n):
    weights = np.full((2, 3, 4, n, n), 1 / n)
    found = diagonal_concentration(weights, np.ones((3, n), int))
    assert found.uniform == pytest.approx((7 * n - 12) / n**2)
    np.testing.assert_allclose(found.share_ExH, found.uniform)
    far = 1 - found.uniform
    np.testing.assert_allclose(found.ratio_ExH, found.uniform / far if far > 1e-9 else np.inf)


def test_identity_attention_is_all_near_sharp_and_at_no_distance():
    weights, segments = np.eye(9)[None, None, None], np.ones((1, 9), int)
    found = diagonal_concentration(weights, segments)
    assert found.share_ExH == 1 and found.ratio_ExH == np.inf
    assert attention_entropy(weights, segments).value_ExH == 0
    assert attention_distance(weights, segments).value_ExH == 0


def test_all_measures_equal_the_loop_over_the_words_of_each_segment(rng):
    weights = some_weights(rng, SEGMENTS)
    near, distance, entropy = (np.zeros((2, 3)) for _ in range(3))
    plain = [0.0, 0.0, 0.0]
    count = 0
    for row, query, keys in queries(SEGMENTS):
        kept = np.float64(weights[:, row, :, query][..., keys])
        gap = np.abs(keys - query)
        near += kept[..., gap < 3].sum(-1)
        distance += (kept * gap).sum(-1)
        entropy -= (kept * np.log(kept)).sum(-1)
        uniform = (gap < 3).mean(), gap.mean(), np.log(len(keys))
        plain = [total + value for total, value in zip(plain, uniform, strict=True)]
        count += 1
    found = diagonal_concentration(weights, SEGMENTS, width=3)
    np.testing.assert_allclose(found.share_ExH, near / count, rtol=1e-6)
    np.testing.assert_allclose(found.ratio_ExH, near / (count - near), rtol=1e-5)
    for measure, want in ((attention_distance, distance), (attention_entropy, entropy)):
        np.testing.assert_allclose(measure(weights, SEGMENTS).value_ExH, want / count, rtol=1e-6)
    got = (found.uniform, attention_distance(weights, SEGMENTS).uniform, attention_entropy(weights, SEGMENTS).uniform)
    np.testing.assert_allclose(got, np.array(plain) / count)


def test_attention_by_distance_is_what_falls_on_each_diagonal_and_adds_up(rng):
    weights = some_weights(rng, SEGMENTS)
    found = attention_by_distance(weights, SEGMENTS, 7)
    words = list(queries(SEGMENTS))
    for distance, measure in zip(range(-7, 8), found, strict=True):
        want = sum(
            weights[:, row, :, query, query + distance] for row, query, keys in words if query + distance in keys
        )
        np.testing.assert_allclose(measure.value_ExH, np.zeros((2, 3)) + want / len(words), atol=1e-6)
        assert measure.uniform == pytest.approx(
            np.mean([(keys - query == distance).mean() for _, query, keys in words])
        )
    np.testing.assert_allclose(sum(measure.value_ExH for measure in found), 1, rtol=1e-6)


@pytest.mark.parametrize("by_rows", [True, False])
def test_similarity_of_heads_equals_the_loop_over_pairs(by_rows, rng):
    weights = some_weights(rng, SEGMENTS)
    want = np.zeros((2, 3))
    groups = []
    for row, query, keys in queries(SEGMENTS):
        groups.append((row, np.float64(weights[:, row, :, query][..., keys]), len(keys)))
    if not by_rows:
        groups = [
            (r, np.concatenate([x for row, x, _ in groups if row == r], -1), [n for row, x, n in groups if row == r])
            for r in (0, 1)
        ]
    for _, vectors_ExHxP, size in groups:
        each = np.concatenate([np.full(n, 1 / n) for n in np.atleast_1d(size)])
        for e, vectors_HxP in enumerate(vectors_ExHxP):
            for f, (centre, power) in enumerate(((0, 1), (0, 2), (each, 1))):
                shifted = vectors_HxP - centre
                norms = np.sqrt((shifted**2).sum(-1) + 1e-8)
                cosines = (shifted @ shifted.T / np.outer(norms, norms)) ** power
                want[e, f] += (cosines.sum() - np.trace(cosines)) / 6 / len(groups)
    got = head_similarity(weights, SEGMENTS, by_rows=by_rows)
    np.testing.assert_allclose(np.stack([got[form] for form in FORMS], 1), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("by_rows", [True, False])
def test_equal_heads_have_similarity_one_and_their_order_means_nothing(by_rows, rng):
    weights = some_weights(rng, SEGMENTS)
    same = head_similarity(np.repeat(weights[:, :, :1], 3, 2), SEGMENTS, by_rows=by_rows)
    for form in FORMS:
        np.testing.assert_allclose(same[form], 1, atol=1e-4)
    mixed = head_similarity(weights[:, :, [2, 0, 1]], SEGMENTS, by_rows=by_rows)
    plain = head_similarity(weights, SEGMENTS, by_rows=by_rows)
    for form in FORMS:
        np.testing.assert_allclose(mixed[form], plain[form], rtol=1e-5)


@pytest.mark.parametrize("by_rows", [True, False])
def test_uniform_heads_are_alike_by_the_plain_form_and_nothing_by_the_centred(by_rows):
    weights, segments = np.full((1, 2, 3, 6, 6), 1 / 6), np.ones((2, 6), int)
    found = head_similarity(weights, segments, by_rows=by_rows)
    np.testing.assert_allclose([found["plain"][0], found["centred"][0]], [1, 0], atol=1e-4)


def test_similarity_of_words_is_the_mean_over_pairs_within_each_text(rng):
    states = rng.normal(0.4, 1, (2, 3, 8, 5))
    got = token_similarity(np.float32(states), SEGMENTS)
    want = np.zeros((2, 3))
    texts = [(0, [0, 1, 2, 3, 4]), (0, [5, 6, 7]), (1, [2, 3, 4, 5, 6])]
    for row, slots in texts:
        for e in range(2):
            x = states[e, row, slots]
            for f, (centre, power) in enumerate(((0, 1), (0, 2), (x.mean(0), 1))):
                unit = (x - centre) / np.linalg.norm(x - centre, axis=-1, keepdims=True)
                cosines = (unit @ unit.T) ** power
                want[e, f] += (cosines.sum() - len(x)) / len(x) / (len(x) - 1) / len(texts)
    np.testing.assert_allclose(np.stack([got[form] for form in FORMS], 1), want, atol=1e-5)


def test_padding_changes_nothing(rng):
    weights = some_weights(rng, SEGMENTS[:1])
    padded = np.zeros((2, 1, 3, 11, 11), np.float32)
    padded[..., 2:10, 2:10] = weights
    padded[..., [0, 1, 10], :] = 1 / 11  # what a model has there means nothing
    segments = np.pad(SEGMENTS[:1], ((0, 0), (2, 1)))
    for measure in (attention_distance, attention_entropy):
        before, after = measure(weights, SEGMENTS[:1]), measure(padded, segments)
        np.testing.assert_allclose(after.value_ExH, before.value_ExH, rtol=1e-6)
        assert after.uniform == pytest.approx(before.uniform)
    before, after = diagonal_concentration(weights, SEGMENTS[:1]), diagonal_concentration(padded, segments)
    np.testing.assert_allclose(after.share_ExH, before.share_ExH, rtol=1e-6)
    for by_rows in (True, False):
        before, after = (
            head_similarity(*pair, by_rows=by_rows) for pair in ((weights, SEGMENTS[:1]), (padded, segments))
        )
        for form in FORMS:
            np.testing.assert_allclose(after[form], before[form], rtol=1e-5)


def test_arrays_that_do_not_fit_are_refused_by_their_shapes():
    weights = np.full((1, 2, 1, 4, 4), 0.25)
    with pytest.raises(ValueError, match=r"\(1, 2, 1, 4, 4\) are not .* segments \(2, 5\)"):
        attention_distance(weights, np.ones((2, 5), int))
    with pytest.raises(ValueError, match="without a word"):
        attention_entropy(weights, np.zeros((2, 4), int))
    with pytest.raises(ValueError, match="one head"):
        head_similarity(weights, np.ones((2, 4), int))
    with pytest.raises(ValueError, match="without a text of two words"):
        token_similarity(np.zeros((1, 1, 2, 3), np.float32), np.array([[1, 2]]))
