"""Layer-wise decay of the learning rate, for fine-tuning (convbert_and_electra.md 5).

A parameter near the words moves less than one near the answer: its update is multiplied by factor^(steps below the
head). The published code leaves one step too many between the last layer and the head ("official"; electra #51 calls
it the rest of a pooler that was taken out); "corrected" leaves it out.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

Form = Literal["official", "corrected"]

EMBEDDINGS = ("words", "types", "positions", "norm", "widen")
"""Parts of the encoder that come before its first layer; "positions" is all that a scheme shares between layers."""


def layer_decay(factor: float, layers: int, form: Form = "official") -> optax.GradientTransformation:
    """Multiplies each parameter's update; chain it behind `make_optimizer`, whose decay of weights it then scales too.

    Depth: embeddings 0, layer l (from 0) l + 1, head layers + 2; the multiple is factor^(layers + 2 - depth), so that
    the head has 1, the last layer factor^2 and the embeddings factor^(layers + 2). "corrected" has one step less below
    the head. Parameters are {"encoder": ..., "head": ...}, or any top-level name that ends with "head"; the encoder's
    layers lie stacked on their leading axis. A LayerNorm behind the last layer goes with that layer (our choice).
    Raises `ValueError` at `init` for a parameter that no rule names.
    """
    gap = {"official": 1, "corrected": 0}[form]

    def multiple(path: tuple, leaf: Any) -> jax.Array:
        names = [str(entry.key) for entry in path if hasattr(entry, "key")]
        if names[0].endswith("head"):
            return jnp.ones((1,) * leaf.ndim)
        part = names[1] if names[0] == "encoder" and len(names) > 1 else None
        if part in EMBEDDINGS:
            return jnp.full((1,) * leaf.ndim, factor ** (layers + 1 + gap))
        if part == "final_norm":
            return jnp.full((1,) * leaf.ndim, factor ** (1 + gap))
        if part == "layers" and leaf.shape[:1] == (layers,):
            steps = layers - jnp.arange(layers) + gap
            return (factor ** steps.astype(jnp.float32)).reshape(layers, *(1,) * (leaf.ndim - 1))
        raise ValueError(f"layer decay has no rule for the parameter {'/'.join(names)} of shape {leaf.shape}")

    def multiples(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(multiple, params)

    def init(params: optax.Params) -> optax.EmptyState:
        multiples(params)
        return optax.EmptyState()

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        del params
        return jax.tree.map(lambda u, m: u * m.astype(u.dtype), updates, multiples(updates)), state

    return optax.GradientTransformation(init, update)
