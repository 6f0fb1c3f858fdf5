"""Every variant at a size with no round numbers in it, with every parameter away from its start value."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from posenc_jax.config import CompatibilityConfig, ConvolutionConfig, ModelConfig, PositionConfig

SCHEMES = {
    "none": dict(scheme="none"),
    "bert_a": dict(scheme="learned"),
    "learned_offset": dict(scheme="learned", offset=2),
    "sinusoidal": dict(scheme="sinusoidal"),
    "sinusoidal_high": dict(scheme="sinusoidal", sinusoid_amplitude=1.0),
    "rope": dict(scheme="rope"),
    "rope_base": dict(scheme="rope", rope_base=50.0),
    "alibi": dict(scheme="alibi"),
    "t5": dict(scheme="t5"),
    "t5_per_layer": dict(scheme="t5", shared_over_layers=False),
    "t5_untied": dict(scheme="t5", untie_cls=True),
    "t5_untied_per_layer": dict(scheme="t5", untie_cls=True, shared_over_layers=False),
    "shaw": dict(scheme="shaw"),
    "shaw_values": dict(scheme="shaw", on_values=True),
    "shaw_shared": dict(scheme="shaw", on_values=True, shared_over_layers=True),
    "shaw_beyond_the_row": dict(scheme="shaw", on_values=True, clip=29),
    "ddrp": dict(scheme="ddrp"),
    "ddrp_values": dict(scheme="ddrp", on_values=True),
    "ddrp_shared": dict(scheme="ddrp", on_values=True, shared_over_layers=True),
    "ddrp_distance": dict(scheme="ddrp", ddrp_form="distance"),
    "ddrp_direction": dict(scheme="ddrp", ddrp_form="direction", clip=128),  # not read: one vector for all distances
    "ddrp_sum": dict(scheme="ddrp", ddrp_form="sum"),
    "deberta": dict(scheme="deberta"),
    "deberta_as_written": dict(scheme="deberta", position_to_content="as_written"),
    "deberta_c2p": dict(scheme="deberta", position_to_content="none"),
    "deberta_p2c": dict(scheme="deberta", content_to_position=False),
    "deberta_p2c_as_written": dict(scheme="deberta", content_to_position=False, position_to_content="as_written"),
    "deberta_words": dict(scheme="deberta", projections="words"),
    "bert_ad": dict(scheme="bert_ad"),
    "tupe_a": dict(scheme="tupe", untie_cls=True),
    "tupe_a_tie_cls": dict(scheme="tupe"),
    "tupe_r": dict(scheme="tupe+t5", untie_cls=True),
    "tupe_r_paper": dict(scheme="tupe+t5", untie_cls=True, relative_reset="theta_alone"),
    "bert_r": dict(scheme="learned+t5"),
    "learned+ddrp": dict(scheme="learned+ddrp"),
    "rope+shaw+alibi": dict(scheme="rope+shaw+alibi"),
    "bert_ad+deberta": dict(scheme="bert_ad+deberta"),
    "sinusoidal+shaw+ddrp": dict(scheme="sinusoidal+shaw+ddrp", on_values=True),
    "tupe+deberta+learned": dict(scheme="tupe+deberta+learned", untie_cls=True),
}
"""An arm for each knob that a spec names, and sums of parts."""

MAIN = ("none", "bert_a", "sinusoidal", "rope", "alibi", "t5", "shaw_values", "ddrp", "deberta", "bert_ad", "tupe_r")
"""One arm of each part."""

VARIANTS = {
    name: SCHEMES[name] for name in ("none", "bert_a", "bert_r", "tupe_a", "tupe_a_tie_cls", "tupe_r", "tupe_r_paper")
}
"""Those of the TUPE paper."""

SMALL = {
    "t5": dict(buckets=12, max_distance=20),
    "shaw": dict(clip=5),
    "ddrp": dict(clip=5),
    "deberta": dict(clip=5),
}
"""So that a row of 23 words reaches the last bucket and beyond the clip."""

COMPATIBILITIES = {
    "dot_product": {},
    "matched": dict(matched_init=True),
    "symmetric": dict(name="symmetric"),
    "pairwise": dict(name="pairwise"),
    "pairwise_symmetrised": dict(name="pairwise", form="symmetrised", start="inverse_width"),
    "pairwise_diagonal": dict(name="pairwise", form="diagonal", start="identity"),
}

MIXERS = {
    "attention": None,
    "mixed": dict(width=5),
    "leaking": dict(width=5, mask=False),
    "dynamic": dict(width=5, kind="dynamic"),
    "light": dict(width=5, kind="light"),
    "light_leaking": dict(width=5, kind="light", mask=False),
    "separable": dict(width=5, kind="separable"),
    "no_convolution": dict(kind="none"),
    "one_slot": dict(width=1),
    "wide": dict(width=9),
    "third_of_the_heads": dict(width=3, head_ratio=3),
    "one_head": dict(width=3, head_ratio=7),
}
"""Settings of the convolution heads. The last two: 2 x heads x head width is not the width (TF's rule)."""


def small_model(scheme: str, compatibility: str = "dot_product", mixer: str = "attention", **changes) -> ModelConfig:
    """Two layers with 3 heads that attend, 10 wide, or 6 wide beside as many convolution heads."""
    settings = dict(SCHEMES[scheme])
    for part in settings["scheme"].split("+"):
        settings = {**SMALL.get(part, {}), **settings}
    model = dict(
        layers=2,
        width=30,
        heads=3,
        feed_forward_width=50,
        vocab_size=71,
        positions=PositionConfig(**settings, max_length=37),
        compatibility=CompatibilityConfig(**COMPATIBILITIES[compatibility]),
    )
    if MIXERS[mixer] is not None:
        model |= dict(width=36, heads=6, mixer="mixed", convolution=ConvolutionConfig(**MIXERS[mixer]))
    return ModelConfig(**{**model, **changes})


def random_params(module: nn.Module, *args, seed: int = 0, std: float = 0.3):
    """Parameters for `module` with no zero and no one among them: N(0, std), gains of norms N(1, std)."""
    shapes = nn.unbox(jax.eval_shape(module.init, jax.random.key(0), *args))["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if jax.tree_util.keystr(path).endswith(("['scale']", "['factor']")) else 0.0
        return jnp.asarray(rng.normal(centre, std, leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("train", "contiguous"))
def apply(module: nn.Module, params, *args, **options):
    """The module's output, compiled once a module and shape."""
    return module.apply({"params": params}, *args, **options)


def float64(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def rows(rng: np.random.Generator, batch: int = 3, length: int = 23, vocab: int = 71):
    """Random tokens, all one segment."""
    tokens = rng.integers(5, vocab, (batch, length)).astype(np.int32)
    return jnp.asarray(tokens), jnp.ones((batch, length), jnp.int32)
