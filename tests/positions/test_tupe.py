import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.positions import Places, Scheme

THETA_1, THETA_2 = [-0.188054, 0.306246], [-0.065999, 0.204725]
TUPE_A = [
    [[-0.188054] * 4, [-0.065999, 0.054525, 0.389989, -0.070566], [-0.065999, 0.241853, -0.262541, 0.604488],
     [-0.065999, -0.071433, -0.351192, 0.332910]],
    [[0.306246] * 4, [0.204725, 0.038814, -0.242026, 0.148404], [0.204725, 0.651297, -0.387998, 0.330992],
     [0.204725, 0.467047, -0.458303, 0.083074]],
]  # fmt: skip
TUPE_R_HEAD_0 = [
    [-0.188054] * 4, [0.094001, -0.105475, 0.399989, -0.050566], [0.094001, 0.091853, -0.422541, 0.614488],
    [0.094001, -0.211433, -0.501192, 0.172910],
]  # fmt: skip


def places(length):
    return Places(jnp.arange(length)[None], aligned=True)


def golden_params():
    """The closed-form parameters of tupe.md 1.2: two heads, width 8, four positions."""
    r, c = np.mgrid[:5, :8]
    i, j = np.mgrid[:8, :8]
    tupe = {
        "table": ((3 * r + 5 * c) % 7) - 3.0,
        "norm": {"scale": 1 + 0.1 * np.arange(8), "bias": 0.05 * np.arange(8)},
        "query": {
            "kernel": ((((2 * i + 3 * j) % 5) - 2) / 10).reshape(8, 2, 4),
            "bias": np.arange(8).reshape(2, 4) / 100,
        },
        "key": {"kernel": ((((i + 2 * j) % 7) - 3) / 10).reshape(8, 2, 4), "bias": -np.arange(8).reshape(2, 4) / 50},
    }
    bucket, head = np.mgrid[:33, :2]
    t5 = {"table": (bucket - 16) / 100 * (head + 1)}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), {"tupe": tupe, "t5": t5})


def bias(scheme, **positions):
    config = ModelConfig(
        width=8,
        heads=2,
        vocab_size=9,
        positions=PositionConfig(scheme=scheme, untie_cls=True, max_length=4, **positions),
    )
    params = {name: golden_params()[name] for name in scheme.split("+")}
    if positions:  # no entries of [CLS]'s own
        params["t5"]["table"] = params["t5"]["table"][:32]
    return Scheme(config, "encoder").apply({"params": params}, places(4), method="shared_bias")[0]


def test_tupe_a_equals_the_golden_vector():
    np.testing.assert_allclose(bias("tupe"), TUPE_A, atol=1e-6)
    assert bias("tupe").dtype == jnp.float32


def test_tupe_r_as_coded_equals_the_golden_vector():
    np.testing.assert_allclose(bias("tupe+t5")[0], TUPE_R_HEAD_0, atol=1e-6)


def test_tupe_r_as_in_the_paper_shows_theta_alone_at_cls():
    got = bias("tupe+t5", relative_reset="theta_alone")
    np.testing.assert_allclose(got[:, 0, :], np.repeat(np.array(THETA_1)[:, None], 4, 1), atol=1e-6)
    np.testing.assert_allclose(got[:, 1:, 0], np.repeat(np.array(THETA_2)[:, None], 3, 1), atol=1e-6)
    np.testing.assert_allclose(got[:, 1:, 1:], bias("tupe+t5")[:, 1:, 1:], atol=1e-7)


@pytest.mark.parametrize(("scheme", "rows"), [("tupe", 513), ("tupe+t5", 513)])
def test_tables_have_the_published_rows(scheme, rows):
    config = ModelConfig(vocab_size=9, positions=PositionConfig(scheme=scheme, untie_cls=True))
    make = lambda key: Scheme(config, "encoder").init(key, places(8), method="shared_bias")  # noqa: E731
    params = nn.unbox(jax.eval_shape(make, jax.random.key(0)))["params"]
    assert params["tupe"]["table"].shape == (rows, 768)
    extra = sum(leaf.size for leaf in jax.tree.leaves(params)) - 512 * 768
    assert extra == 1_183_488 + (33 * 12 if "t5" in scheme else 0)


def test_initial_positional_logits_are_as_wide_as_the_spec_says():
    """tupe.md 1.5: standard deviation 0.211 at base size; eps 1e-5 is what makes it less than 0.217."""
    config = ModelConfig(vocab_size=9, positions=PositionConfig(scheme="tupe", untie_cls=True))
    scheme = Scheme(config, "encoder")
    draw = jax.jit(lambda key: scheme.init_with_output(key, places(128), method="shared_bias")[0])
    values = []
    for seed in range(3):
        logits = draw(jax.random.key(seed))
        values.append(float(logits[0, :, 1:, 1:].std()))
    assert abs(np.mean(values) - 0.2172 * 0.9877**2) < 0.004


def test_untied_is_tied_but_for_the_row_and_the_column_of_cls():
    """A table with two more rows in front holds theta_1 and theta_2 (in place of the position of [CLS])."""
    params = golden_params()["tupe"]
    config = ModelConfig(width=8, heads=2, vocab_size=9, positions=PositionConfig(scheme="tupe", max_length=4))
    tied = {"tupe": {**params, "table": params["table"][1:]}}
    got = Scheme(config, "encoder").apply({"params": tied}, places(4), method="shared_bias")[0]
    np.testing.assert_allclose(got[:, 1:, 1:], bias("tupe")[:, 1:, 1:], atol=1e-7)
    np.testing.assert_allclose(got[:, 0, 0], THETA_2, atol=1e-6)  # row 1 with itself, without a reset
    assert np.abs(got[:, 0] - bias("tupe")[:, 0]).max() > 0.1
