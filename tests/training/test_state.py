import jax
import jax.numpy as jnp
import optax

from posenc_jax.config import MeshConfig
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.state import abstract_state


class Widest:
    """Parameters as wide as they may be."""

    def init(self, key):
        return {"words": jnp.zeros(8, jnp.result_type(float))}


def test_the_types_of_a_state_are_those_of_the_moment():
    mesh, objective, optimizer = make_mesh(MeshConfig()), Widest(), optax.sgd(1.0)
    for x64 in (False, True, False):
        with jax.enable_x64(x64):
            words = abstract_state(objective, optimizer, mesh).params["words"]
        assert words.dtype == ("float64" if x64 else "float32")
