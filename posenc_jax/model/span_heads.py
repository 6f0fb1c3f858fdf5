"""Which words of a passage answer a question: where the answer starts and ends, and whether there is one.

Both heads work in at least float32 on the encoder's vectors. `allowed_BxL` is 1 where an answer may start or end: the
passage with its [SEP], and slot 0, [CLS], which stands for "not here". All new weights start glorot-uniform, biases 0
(convbert_and_electra.md 1.8).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, gelu
from posenc_jax.parallel.mesh import gathered

FORBIDDEN = -1000.0
"""Added to the logit of a slot that may not be chosen."""
HIDDEN = 512
"""Units of the joint head's hidden layers, at any width."""


class SpanLogits(NamedTuple):
    """What training compares with the truth."""

    start_BxL: jax.Array
    end_BxL: jax.Array
    """Of the joint head given the true start."""
    impossible_B: jax.Array | None
    """Above 0: there is no answer. None: the head does not say so apart."""


class Beams(NamedTuple):
    """The most likely spans of each row, K starts with K ends each."""

    start_BxK: jax.Array
    start_score_BxK: jax.Array
    end_BxKxK: jax.Array
    end_score_BxKxK: jax.Array
    null_B: jax.Array
    """How much speaks for no answer: the joint head's logit, the plain head's two logits of slot 0 together."""


class PlainSpanHead(nn.Module):
    """Two logits a word, start and end apart from each other (BERT)."""

    config: ModelConfig

    def setup(self) -> None:
        glorot = nn.initializers.glorot_uniform()
        self.output = Projection(self.config, (2,), ("embed", "classes"), dtype=_exact(self.config), init=glorot)

    def __call__(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array, start_B: jax.Array) -> SpanLogits:
        """Logits at every slot; the true starts are not looked at."""
        del start_B
        return self._logits(hidden_BxLxD, allowed_BxL)

    def search(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array, beam: int) -> Beams:
        """The `beam` best starts, each with the `beam` best ends; scores are logits."""
        logits = self._logits(hidden_BxLxD, allowed_BxL)
        beam = min(beam, allowed_BxL.shape[1])
        start_score_BxK, start_BxK = jax.lax.top_k(logits.start_BxL, beam)
        ends = jax.lax.top_k(logits.end_BxL, beam)
        end_score_BxKxK, end_BxKxK = (jnp.repeat(x_BxK[:, None], beam, 1) for x_BxK in ends)
        null_B = logits.start_BxL[:, 0] + logits.end_BxL[:, 0]
        return Beams(start_BxK, start_score_BxK, end_BxKxK, end_score_BxKxK, null_B)

    def _logits(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array) -> SpanLogits:
        logits_BxLx2 = self.output(hidden_BxLxD)
        start_BxL, end_BxL = (forbid(logits_BxLx2[..., which], allowed_BxL) for which in (0, 1))
        return SpanLogits(start_BxL, end_BxL, None)


class JointSpanHead(nn.Module):
    """ELECTRA's: the end knows the start, and a classifier says whether there is an answer (convbert_and_electra.md 5).

    end_t = w . gelu(W [h_start; h_t]), start the true one in training;
    impossible = w' . gelu(W' [h_0; sum_t softmax(start)_t h_t]).
    """

    config: ModelConfig

    def setup(self) -> None:
        glorot = nn.initializers.glorot_uniform()
        self.start = Projection(self.config, (1,), ("embed", "classes"), dtype=_exact(self.config), init=glorot)
        self.end, self.impossible = PairScore(self.config), PairScore(self.config)

    def __call__(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array, start_B: jax.Array) -> SpanLogits:
        """Logits at every slot, those of the end given that the answer starts at `start_B`."""
        start_BxL = self._starts(hidden_BxLxD, allowed_BxL)
        end_BxL = self._ends(hidden_BxLxD, allowed_BxL, start_B[:, None])[:, 0]
        return SpanLogits(start_BxL, end_BxL, self._impossible(hidden_BxLxD, start_BxL))

    def search(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array, beam: int) -> Beams:
        """The `beam` best starts and for each its own `beam` best ends; scores are log-probabilities."""
        beam = min(beam, allowed_BxL.shape[1])
        start_BxL = self._starts(hidden_BxLxD, allowed_BxL)
        start_score_BxK, start_BxK = jax.lax.top_k(jax.nn.log_softmax(start_BxL), beam)
        end_BxKxL = jax.nn.log_softmax(self._ends(hidden_BxLxD, allowed_BxL, start_BxK))
        end_score_BxKxK, end_BxKxK = jax.lax.top_k(end_BxKxL, beam)
        null_B = self._impossible(hidden_BxLxD, start_BxL)
        return Beams(start_BxK, start_score_BxK, end_BxKxK, end_score_BxKxK, null_B)

    def _starts(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array) -> jax.Array:
        return forbid(self.start(hidden_BxLxD)[..., 0], allowed_BxL)

    def _ends(self, hidden_BxLxD: jax.Array, allowed_BxL: jax.Array, start_BxK: jax.Array) -> jax.Array:
        chosen_BxKxD = jnp.take_along_axis(hidden_BxLxD, start_BxK[..., None], 1)
        return forbid(self.end(chosen_BxKxD, hidden_BxLxD), allowed_BxL[:, None])

    def _impossible(self, hidden_BxLxD: jax.Array, start_BxL: jax.Array) -> jax.Array:
        share_Bx1xL = jax.nn.softmax(start_BxL)[:, None]
        answer_Bx1xD = share_Bx1xL @ hidden_BxLxD.astype(share_Bx1xL.dtype)
        return self.impossible(hidden_BxLxD[:, :1], answer_Bx1xD)[:, 0, 0]


class PairScore(nn.Module):
    """w . gelu(W [first; second] + b) + c for every pair of a first and a second vector.

    W is applied to the firsts and to the seconds once each, not to every pair.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, first_BxKxD: jax.Array, second_BxLxD: jax.Array) -> jax.Array:
        """-> [B, K, L]."""
        exact = _exact(self.config)
        kernel_2DxF = self._param("kernel", ("embed", "embed_out"), 2 * self.config.width, HIDDEN)
        bias_F = self._param("bias", ("embed_out",), HIDDEN)
        output_F = self._param("output", ("embed_in", "classes"), HIDDEN, 1)[:, 0]
        output_bias_1 = self._param("output_bias", ("classes",), 1)
        first_DxF, second_DxF = jnp.split(kernel_2DxF, 2)
        first_BxKxF = first_BxKxD.astype(exact) @ first_DxF + bias_F[None, None]
        second_BxLxF = second_BxLxD.astype(exact) @ second_DxF

        def one(first_BxF: jax.Array) -> jax.Array:
            return gelu(first_BxF[:, None] + second_BxLxF) @ output_F

        # One first after the other: all pairs at once are B * K * L * 512 numbers.
        score_KxBxL = jax.lax.map(one, first_BxKxF.swapaxes(0, 1))
        return score_KxBxL.swapaxes(0, 1) + output_bias_1[None, None]

    def _param(self, name: str, axes: tuple[str, ...], *shape: int) -> jax.Array:
        init = nn.initializers.glorot_uniform() if len(shape) == 2 else nn.initializers.zeros
        parameter = self.param(name, nn.with_logical_partitioning(init, axes), shape)
        return gathered(parameter.astype(_exact(self.config)), *axes)


def forbid(logits: jax.Array, allowed: jax.Array) -> jax.Array:
    """-1000 on top where `allowed` is 0."""
    return logits + FORBIDDEN * (1 - allowed.astype(logits.dtype))


def _exact(config: ModelConfig) -> jnp.dtype:
    return jnp.promote_types(config.dtype, jnp.float32)


SPAN_HEADS = {"joint": JointSpanHead, "plain": PlainSpanHead}
