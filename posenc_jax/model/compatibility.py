"""How a query meets a key: what the queries and keys of a layer are, their product being the logit.

Each position scheme works on queries and keys, so it fits every compatibility.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, weights
from posenc_jax.positions import Meet


def compatibility(config: ModelConfig) -> Meet:
    """The map x [..., D] -> queries, keys [..., H, d], to be made inside a compact module, which owns the parameters.

    dot_product  q_i . k_j, two projections (Vaswani et al. 2017). With `matched_init` the queries' weights start
                 sqrt(d) times wider: the arm that sets pairwise's start apart from its structure.
    symmetric    q_i . q_j, one projection; logits are symmetric and positive semidefinite (Courtois et al. 2024).
    pairwise     q_i M_h q_j, one projection and a d x d matrix a head, without a bias. M is unconstrained, so these
                 logits are not symmetric; it starts from N(0, 1) whatever `init_std` is, as in the published code.
    """
    heads, axes = (config.attention_heads, config.head_width), ("embed", "heads", "head_width")
    dtype, kind = jnp.dtype(config.dtype), config.compatibility
    query = Projection(config, heads, axes, dtype=dtype, init=_matched(config), name="query")
    if kind.name == "dot_product":
        key = Projection(config, heads, axes, dtype=dtype, name="key")
        return lambda x: (query(x), key(x))
    if kind.name == "symmetric":
        return lambda x: (query(x),) * 2
    meeting = Meeting(config, name="meeting")

    def meet(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = query(x)
        return q, meeting(q)

    return meet


class Meeting(nn.Module):
    """M_h q for every head: with it as the key, the logit is q_i M_h q_j (ddrp_mth_and_symmetric.md 2.1)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, q: jax.Array) -> jax.Array:
        """[..., H, d] -> [..., H, d]."""
        kernel = self.param("kernel", *_kernel(self.config))
        if self.config.compatibility.form == "diagonal":
            return q * kernel.reshape((1,) * (q.ndim - 2) + kernel.shape).astype(q.dtype)
        return jnp.einsum("...Hd,Hed->...He", q, meeting_matrix(self.config, kernel).astype(q.dtype))


def meeting_matrix(config: ModelConfig, kernel: jax.Array) -> jax.Array:
    """The parameter [H, d, d], or [H, d] for a diagonal -> M [H, d, d], row by the query's axis."""
    form = config.compatibility.form
    if form == "diagonal":
        return kernel[:, :, None] * jnp.eye(kernel.shape[-1], dtype=kernel.dtype)[None]
    return (kernel + jnp.swapaxes(kernel, -1, -2)) / 2 if form == "symmetrised" else kernel


def _kernel(config: ModelConfig) -> tuple[nn.initializers.Initializer, tuple[int, ...]]:
    d, form, start = config.head_width, config.compatibility.form, config.compatibility.start
    is_diagonal = form == "diagonal"
    shape = (config.attention_heads, d) if is_diagonal else (config.attention_heads, d, d)

    def init(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> jax.Array:
        if start == "identity":
            return (1 if is_diagonal else jnp.eye(d, dtype=dtype)[None]) + weights(config)(key, shape, dtype)
        return jax.random.normal(key, shape, dtype) * (1 if start == "normal" else d**-0.5)

    # A name may stand once: the mesh refuses ("heads", "head_width", "head_width").
    return nn.with_logical_partitioning(init, ("heads", "head_width", None)[: len(shape)]), shape


def _matched(config: ModelConfig) -> nn.initializers.Initializer | None:
    """Pairwise's first logits are sqrt(d) times as wide as dot-product's (ddrp_mth_and_symmetric.md 2.8)."""
    if not config.compatibility.matched_init:
        return None
    factor = config.head_width**0.5
    return lambda key, shape, dtype=jnp.float32: factor * weights(config)(key, shape, dtype)
