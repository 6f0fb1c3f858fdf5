"""What turns the encoder's vectors into answers."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Dropout, Norm, Projection, gelu, repeated
from posenc_jax.parallel.mesh import constrain, gathered


class MlmHead(nn.Module):
    """Which word stood here: Linear -> gelu -> LayerNorm -> times the word embeddings, plus a bias (tupe.md 1.6)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, hidden_BxMxD: jax.Array, words_VxE: jax.Array) -> jax.Array:
        """Vectors at the predicted positions -> float32 logits [B, M, V]."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        dense = Projection(config, (words_VxE.shape[-1],), ("embed", "embed_out"), dtype=dtype, name="dense")
        x_BxMxE = constrain(Norm(config, dtype, name="norm")(gelu(dense(hidden_BxMxD))), "batch", "length", "width")
        words_VxE = gathered(words_VxE.astype(dtype), "vocab", "embed")
        bias_init = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
        bias_V = self.param("bias", bias_init, (words_VxE.shape[0],))
        exact = jnp.promote_types(dtype, jnp.float32)
        logits_BxMxV = jnp.einsum("BME,VE->BMV", x_BxMxE, words_VxE, preferred_element_type=exact)
        bias_BxMxV = repeated(bias_V, logits_BxMxV.shape[:2])
        return constrain(logits_BxMxV + bias_BxMxV, "batch", "length", "vocab")


class RtdHead(nn.Module):
    """Was this word replaced: Linear -> gelu -> Linear to one logit (ELECTRA; convbert_and_electra.md 3.4)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, hidden_BxLxD: jax.Array) -> jax.Array:
        """Every word's vector -> logit [B, L], at least float32; above 0 is "replaced"."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        dense = Projection(config, (config.width,), ("embed", "embed_out"), dtype=dtype, name="dense")
        exact = jnp.promote_types(dtype, jnp.float32)
        glorot = nn.initializers.glorot_uniform() if config.init == "truncated_normal" else None
        output = Projection(config, (1,), ("embed", "classes"), dtype=exact, init=glorot, name="output")
        inner = constrain(gelu(dense(hidden_BxLxD)), "batch", "length", "width")
        return constrain(output(inner)[..., 0], "batch", "length")


class ClassificationHead(nn.Module):
    """Linear(d, d) -> tanh -> dropout -> Linear(d, classes), float32, fresh for every task (tupe.md 1.6).

    Weights and biases start uniform in +-1 / sqrt(width), as the published code leaves them.
    """

    classes: int
    config: ModelConfig

    @nn.compact
    def __call__(self, hidden_BxD: jax.Array, train: bool = False) -> jax.Array:
        """The vector of [CLS] -> float32 logits [B, classes]."""
        pooled_BxD = jnp.tanh(self._linear("dense", hidden_BxD.astype(jnp.float32), self.config.width))
        return self._linear("output", Dropout(self.config.dropout)(pooled_BxD, train), self.classes)

    def _linear(self, name: str, x_BxD: jax.Array, features: int) -> jax.Array:
        bound = x_BxD.shape[-1] ** -0.5
        axes = ("embed", "embed_out" if name == "dense" else "classes")
        kernel = self.param(
            f"{name}_kernel", nn.with_logical_partitioning(_uniform(bound), axes), (x_BxD.shape[-1], features)
        )
        bias = self.param(f"{name}_bias", nn.with_logical_partitioning(_uniform(bound), axes[1:]), (features,))
        return x_BxD @ gathered(kernel, *axes) + gathered(bias, *axes[1:])[None]


class SingleHead(nn.Module):
    """Dropout -> Linear(d, classes), float32, fresh for every task: ELECTRA's and ConvBERT's own, which transformers'
    classes are not (convbert_and_electra.md 5, trap 27). The weights start as TensorFlow starts a layer: uniform after
    Glorot, biases 0.
    """

    classes: int
    config: ModelConfig

    @nn.compact
    def __call__(self, hidden_BxD: jax.Array, train: bool = False) -> jax.Array:
        """The vector of [CLS] -> float32 logits [B, classes]."""
        x_BxD = Dropout(self.config.dropout)(hidden_BxD.astype(jnp.float32), train)
        glorot = nn.initializers.glorot_uniform()
        return Projection(self.config, (self.classes,), ("embed", "classes"), init=glorot, name="output")(x_BxD)


def _uniform(bound: float) -> nn.initializers.Initializer:
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)
