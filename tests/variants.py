"""The five variants at a size with no round numbers in it, with every parameter away from its start value."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig

VARIANTS = {
    "none": dict(scheme="none"),
    "bert_a": dict(scheme="learned"),
    "bert_r": dict(scheme="learned+t5"),
    "tupe_a": dict(scheme="tupe", untie_cls=True),
    "tupe_a_tie_cls": dict(scheme="tupe"),
    "tupe_r": dict(scheme="tupe+t5", untie_cls=True),
    "tupe_r_paper": dict(scheme="tupe+t5", untie_cls=True, relative_reset="theta_alone"),
}
WITH_POSITIONS = [name for name in VARIANTS if name != "none"]


def small_model(variant: str, **changes) -> ModelConfig:
    positions = PositionConfig(**VARIANTS[variant], max_length=37, buckets=12, max_distance=20)
    settings = dict(layers=2, width=30, heads=3, feed_forward_width=50, vocab_size=71, positions=positions, scan=False)
    return ModelConfig(**{**settings, **changes})


def random_params(module: nn.Module, *args, seed: int = 0):
    """Parameters for `module` with no zero and no one among them: N(0, 0.3), gains of norms around 1."""
    shapes = nn.unbox(jax.eval_shape(module.init, jax.random.key(0), *args))["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if jax.tree_util.keystr(path).endswith("['scale']") else 0.0
        return jnp.asarray(rng.normal(centre, 0.3, leaf.shape), leaf.dtype)

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
