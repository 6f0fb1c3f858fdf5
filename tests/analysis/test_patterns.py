import numpy as np
import pytest

from posenc_jax.analysis.patterns import attention_of, classify, diagonal_means, distances, entropy, profile

N = 32


def planted(**logit_of_distance):
    difference = np.arange(N)[None] - np.arange(N)[:, None]
    return np.stack([np.vectorize(function, otypes=[float])(difference) for function in logit_of_distance.values()])


PLANTED = dict(
    everywhere=lambda r: 0.01 * r,
    near=lambda r: -np.abs(r),
    wide=lambda r: -20.0 * (np.abs(r) > 6),
    word_before=lambda r: 20.0 * (r == -1),
    all_before=lambda r: 4.0 * (r < 0),
    word_after=lambda r: 20.0 * (r == 1),
    itself=lambda r: 20.0 * (r == 0),
)


def test_planted_patterns_get_their_names():
    labels = [pattern.label for pattern in classify(planted(**PLANTED))]
    assert labels == ["global", "local", "broad", "previous", "previous", "next", "local"]


def test_reversing_the_positions_exchanges_previous_and_next_and_nothing_else():
    maps_HxLxL = planted(**PLANTED)
    there, back = classify(maps_HxLxL), classify(maps_HxLxL[:, ::-1, ::-1])
    swap = {"previous": "next", "next": "previous"}
    for a, b in zip(there, back, strict=True):
        assert b.label == swap.get(a.label, a.label)
        np.testing.assert_allclose((b.entropy, b.near, b.before, b.after), (a.entropy, a.near, a.after, a.before))


def test_cut_offs_are_arguments():
    broad = planted(wide=PLANTED["wide"])
    assert classify(broad, local=0.1)[0].label == "local"
    assert classify(broad, global_entropy=0.5)[0].label == "global"
    assert classify(broad, window=N)[0].near == pytest.approx(1)


def test_profiles_are_the_means_of_the_diagonals_of_the_softmax(rng):
    maps_HxLxL = rng.normal(0, 2, (2, 5, 5))
    weights_HxLxL = np.exp(maps_HxLxL) / np.exp(maps_HxLxL).sum(-1, keepdims=True)
    np.testing.assert_allclose(attention_of(maps_HxLxL), weights_HxLxL)
    got_HxC = profile(maps_HxLxL)
    assert got_HxC.shape == (2, 9) and list(distances(5)) == list(range(-4, 5))
    for c, distance in enumerate(distances(5)):
        cells = [weights_HxLxL[:, i, i + distance] for i in range(5) if 0 <= i + distance < 5]
        np.testing.assert_allclose(got_HxC[:, c], np.mean(cells, 0))
    np.testing.assert_allclose(profile(maps_HxLxL + rng.normal(size=(2, 5, 1))), got_HxC)  # rows may shift


def test_entropy_is_log_n_of_uniform_attention_and_zero_of_certain():
    maps_HxLxL = np.stack([np.zeros((6, 6)), 1e5 * np.eye(6)])
    np.testing.assert_allclose(entropy(maps_HxLxL), [np.log(6), 0], atol=1e-12)


def test_diagonal_means_of_a_toeplitz_matrix_are_its_diagonals():
    difference = np.arange(4)[None] - np.arange(4)[:, None]
    np.testing.assert_array_equal(diagonal_means(difference[None])[0], distances(4))


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 5), (2, 1, 1)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        classify(np.zeros(shape))
