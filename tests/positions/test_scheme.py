from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder
from posenc_jax.positions import PARTS, Part, Scheme, check_scheme, is_relative
from tests.variants import SCHEMES, random_params, rows, small_model


class Meeting(Part):
    """A learned table at the encoder that words meet in every layer, and a projection of each layer's own."""

    knobs: ClassVar[tuple[str, ...]] = ("clip",)

    @classmethod
    def extra_terms(cls, positions):
        return 2

    def setup(self):
        normal = jax.nn.initializers.normal(0.3)
        d = self.config.head_width
        if self.place == "encoder":
            self.table = self.param("table", normal, (self.config.positions.max_length, d))
        else:
            self.own = self.param("own", normal, (d, d))

    def shared_tables(self):
        return self.table

    def content_terms(self, q_BxLxHxd, k_BxLxHxd, places, tables, meet):
        return jnp.einsum("BQHd,de,BKe->BHQK", q_BxLxHxd, self.own, tables[places.position_BxL])


def test_a_new_part_needs_no_change_to_the_encoder(rng, monkeypatch):
    monkeypatch.setitem(PARTS, "new", Meeting)
    encoder = Encoder(small_model("none", positions=PositionConfig(scheme="learned+new", max_length=40, clip=7)))
    tokens, segments = rows(rng)
    params = random_params(encoder, tokens, segments)
    assert params["layers"]["attention"]["positions"]["new"]["own"].shape == (2, 10, 10)
    assert Scheme(encoder.config, "layer").terms == 3
    silent = {**params, "positions": {**params["positions"], "learned": {"table": jnp.zeros((40, 30))}}}

    @jax.jit
    def look(params, tokens):
        loss = lambda params: jnp.square(encoder.apply({"params": params}, tokens, segments)[:, 15]).sum()  # noqa: E731
        return jax.value_and_grad(loss)(params)

    swapped = tokens.at[:, 5].set(tokens[:, 6]).at[:, 6].set(tokens[:, 5])
    (value, gradient), (other, _) = look(silent, tokens), look(silent, swapped)
    assert np.abs(gradient["positions"]["new"]["table"][:23]).max(1).all()
    assert np.abs(gradient["layers"]["attention"]["positions"]["new"]["own"]).max() > 0
    assert abs(float(value - other)) > 1e-3


@pytest.mark.parametrize(
    ("positions", "length", "words"),
    [
        (dict(scheme="tupee"), 8, r"names 'tupee'; the parts are none, learned, sinusoidal, rope, .*, tupe"),
        (dict(scheme="learned+"), 8, r"names ''"),
        (dict(scheme="t5+t5"), 8, r"twice"),
        (dict(scheme="none+t5"), 8, r"'none' stands alone"),
        (dict(scheme="t5", relative_reset="theta_alone"), 8, r"theta_alone' would change nothing without .*untie_cls"),
        (dict(scheme="ddrp", ddrp_form="direction", clip=7), 8, r"clip=7 would change nothing with .*'direction'"),
        (dict(scheme="learned"), 65, r"65 slots .*max_length=64"),
        (dict(scheme="tupe+t5"), 65, r"65 slots .*the table of 'tupe'"),
        (dict(scheme="rope+bert_ad"), 65, r"65 slots .*the table of 'bert_ad'"),
        (dict(scheme="learned", clip=5), 8, r"clip=5 would change nothing: .* 'learned' .* only shaw, ddrp, deberta"),
        (dict(scheme="none", untie_cls=True), 8, r"untie_cls=True would change nothing"),
        (dict(scheme="shaw", ddrp_form="sum"), 8, r"ddrp_form='sum' would change nothing"),
        (dict(scheme="deberta", content_to_position=False, position_to_content="none"), 8, r"adds nothing"),
    ],
)
def test_a_scheme_that_makes_no_sense_is_refused(positions, length, words):
    with pytest.raises(UsageError, match=words):
        check_scheme(ModelConfig(positions=PositionConfig(**{"max_length": 64, **positions})), length)


def test_rope_wants_pairs_of_axes():
    with pytest.raises(UsageError, match=r"model.width=15 / model.heads=3 .* of 5"):
        check_scheme(ModelConfig(width=15, heads=3, positions=PositionConfig(scheme="rope")), 8)


@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "rope", "alibi", "t5", "shaw", "ddrp", "deberta"])
def test_schemes_without_a_table_of_positions_have_no_length_limit(scheme):
    check_scheme(ModelConfig(positions=PositionConfig(scheme=scheme, max_length=64)), 10_000)


def test_terms_and_scale_are_those_of_the_papers():
    """tupe.md 1.0: 1 BERT, 2 TUPE, 4 BERT-A^d; 3 DeBERTa, or 2 with one of its terms off."""
    terms = {name: Scheme(small_model(name), "layer").terms for name in SCHEMES}
    others = {"tupe": 2, "tupe+t5": 2, "bert_ad": 4, "deberta": 3, "bert_ad+deberta": 6, "tupe+deberta+learned": 4}
    for name, settings in SCHEMES.items():
        want = 2 if name.startswith(("deberta_c2p", "deberta_p2c")) else others.get(settings["scheme"], 1)
        assert terms[name] == want, name
    assert Scheme(ModelConfig(positions=PositionConfig(scheme="tupe")), "layer").scale == pytest.approx(0.0883883476)


def test_is_relative_is_what_it_says():
    absolute = {"learned", "sinusoidal", "tupe", "bert_ad"}
    for name, settings in SCHEMES.items():
        parts = set(settings["scheme"].split("+"))
        want = not parts & absolute and not settings.get("untie_cls", False)
        assert is_relative(small_model(name).positions) == want, name
