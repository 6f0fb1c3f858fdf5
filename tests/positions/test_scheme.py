from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder
from posenc_jax.positions import PARTS, Part, Scheme, check_scheme
from tests.variants import apply, random_params, rows, small_model


class Rotating(Part):
    """Turns pairs of a head's axes by the position: the bare RoPE formula."""

    is_relative: ClassVar[bool] = True

    def rotate(self, q_BxLxHxd, k_BxLxHxd, position_BxL):
        half = q_BxLxHxd.shape[-1] // 2
        angle = position_BxL[..., None, None] * (100.0 ** -(jnp.arange(half) / half))[None, None, None]

        def turn(x):
            a, b = x[..., :half], x[..., half:]
            return jnp.concatenate(
                [a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1
            )

        return turn(q_BxLxHxd), turn(k_BxLxHxd)


class Meeting(Part):
    """A learned table at the encoder that words meet in every layer, and a projection of each layer's own."""

    extra_terms: ClassVar[int] = 2

    def setup(self):
        normal = jax.nn.initializers.normal(0.3)
        d = self.config.width // self.config.heads
        if self.place == "encoder":
            self.table = self.param("table", normal, (self.config.positions.max_length, d))
        else:
            self.own = self.param("own", normal, (d, d))

    def shared_tables(self):
        return self.table

    def content_terms(self, q_BxLxHxd, k_BxLxHxd, position_BxL, tables):
        return jnp.einsum("BQHd,de,BKe->BHQK", q_BxLxHxd, self.own, tables[position_BxL])


@pytest.mark.parametrize("part", [Rotating, Meeting])
def test_a_new_part_needs_no_change_to_the_encoder(part, rng, monkeypatch):
    monkeypatch.setitem(PARTS, "new", part)
    encoder = Encoder(small_model("none", positions=PositionConfig(scheme="learned+new", max_length=40), scan=True))
    tokens, segments = rows(rng)
    params = random_params(encoder, tokens, segments)
    assert Scheme(encoder.config, "layer").terms == 1 + part.extra_terms

    def loss(params):
        return jnp.square(apply(encoder, params, tokens, segments)[:, 3]).sum()

    gradient = jax.jit(jax.grad(loss))(params)
    if part is Meeting:
        assert params["layers"]["attention"]["positions"]["new"]["own"].shape == (2, 10, 10)
        for leaf in (
            gradient["positions"]["new"]["table"][:23],
            gradient["layers"]["attention"]["positions"]["new"]["own"],
        ):
            assert np.abs(leaf).max() > 0
    swapped = tokens.at[:, 5].set(tokens[:, 6]).at[:, 6].set(tokens[:, 5])
    without = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "learned" in jax.tree_util.keystr(path) else leaf, params
    )
    a, b = (apply(encoder, without, t, segments)[:, 15] for t in (tokens, swapped))
    assert float(jnp.abs(a - b).max()) > 1e-4


@pytest.mark.parametrize(
    ("scheme", "length", "words"),
    [
        ("tupee", 8, r"names 'tupee'; the parts are none, learned, t5, tupe"),
        ("learned+", 8, r"names ''"),
        ("t5+t5", 8, r"twice"),
        ("learned", 65, r"65 slots .*max_length=64"),
        ("tupe+t5", 65, r"65 slots .*the table of 'tupe'"),
    ],
)
def test_a_scheme_that_makes_no_sense_is_refused(scheme, length, words):
    with pytest.raises(UsageError, match=words):
        check_scheme(PositionConfig(scheme=scheme, max_length=64), length)


def test_relative_and_no_schemes_have_no_length_limit():
    for scheme in ("t5", "none"):
        check_scheme(PositionConfig(scheme=scheme, max_length=64), 10_000)
