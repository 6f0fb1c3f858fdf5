"""What a model does without a dimension: LayerNorms zeroed in the model itself, its loss and its predictions.

Not the same as clipping vectors that were read out (`transforms.clip_dims`), which leaves the model alone; this changes
every later layer, and published models lose their masked-word loss by it (Kovaleva et al. 2021). Shape letters: B rows,
L slots, M predicted words of a row, V vocabulary, K dimensions asked about.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.checks import check_choice
from posenc_jax.analysis.texts import Batch
from posenc_jax.config import MlmConfig, ModelConfig
from posenc_jax.data.masking import mask_tokens
from posenc_jax.data.wordpiece import AnyTokenizer
from posenc_jax.errors import UserError
from posenc_jax.interop.pretrained import Pretrained, load_pretrained, split_checkpoint
from posenc_jax.objectives.cross_entropy import cross_entropy
from posenc_jax.objectives.mlm import MlmNetwork
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.training.checkpoint import read_params

Which = Literal["output", "attention", "embedding"]
OfLayer = Literal["output", "attention"]
Examples = Mapping[str, np.ndarray | jax.Array]
"""A batch of hidden words: "tokens" and "segments" [B, L]; "predicted", "target" and "predicted_weight" [B, M]."""


@dataclasses.dataclass(frozen=True)
class MaskedModel:
    """An encoder with the head that predicts hidden words."""

    pretrained: Pretrained
    params: Any
    """{"encoder", "head"}, in the host's memory."""


def load_masked_model(path: str | Path) -> MaskedModel:
    """Of a workdir, its newest checkpoint, or of WORKDIR/checkpoints/STEP.

    Raises `UserError` for what `load_pretrained` refuses, and where the model has no such head: a discriminator of
    replaced-token detection, or weights imported without one.
    """
    workdir, step = split_checkpoint(path)
    pretrained = load_pretrained(workdir)
    params, _ = read_params(workdir, step=step)
    if "head" not in params:
        raise UserError(
            f"{workdir} has no head that predicts hidden words, only {', '.join(sorted(params))}; take a run with "
            "objective=mlm, or import a checkpoint that has one"
        )
    return MaskedModel(pretrained, {name: params[name] for name in ("encoder", "head")})


def hide_words(
    batches: Iterable[Batch], tokenizer: AnyTokenizer, seed: int, mlm: MlmConfig = MlmConfig()
) -> list[Examples]:
    """The batches of `texts.batches` with 15 % of their words hidden as in BERT, unless `mlm` says otherwise; which
    ones depends on `seed` and the number of the text alone. `mlm.unit` must be "token"."""
    hidden = []
    for batch in batches:
        rows = len(batch.tokens_BxL)
        number_B = np.array([text.sentence for text in batch.texts] + [0] * (rows - len(batch.texts)))
        tokens_BxL = np.where(batch.segments_BxL > 0, batch.tokens_BxL, tokenizer.pad)
        key = jax.random.key(seed)
        masked = _mask_tokens(key, tokens_BxL, number_B, tokenizer.vocab_size, mlm, tokenizer.specials)
        is_text_Bx1 = np.arange(rows)[:, None] < len(batch.texts)
        weight_BxM = np.where(is_text_Bx1, np.asarray(masked["predicted_weight"]), 0)
        hidden.append({**masked, "segments": batch.segments_BxL, "predicted_weight": weight_BxM})
    return hidden


def zero_ln(encoder: Any, dims: Collection[int], which: Which = "output", layers: Collection[int] | None = None) -> Any:
    """An encoder's parameters with scale and bias of these dimensions 0 in LayerNorms of `layers`, 1 to n (None: all).

    With LayerNorm after the blocks "output" is the one that closes a layer, so that its states are 0 there (Kovaleva et
    al. 2021), and "attention" the one after attention. With LayerNorm before the blocks none closes a layer: then these
    are the norms that read what the layer, or its attention, added to the sum: for "output" the first of the next
    layer, or the final one (Timkey and van Schijndel 2021, for GPT-2); the sum itself keeps the dimension. "embedding"
    is the LayerNorm of the embeddings and takes no `layers`. Raises `ValueError` for a dimension or layer that is not
    there.
    """
    check_choice("which", which, Which)
    if which == "embedding":
        if layers is not None:
            raise ValueError(f"layers={layers}: the LayerNorm of the embeddings is of none of them")
        return {**encoder, "norm": _zeroed(encoder["norm"], (), dims)}
    count = len(encoder["layers"]["attention_norm"]["scale"])
    layers = range(1, count + 1) if layers is None else layers
    if wrong := [layer for layer in layers if not 1 <= layer <= count]:
        raise ValueError(f"layers {wrong} of an encoder with 1 to {count}")
    is_pre = "final_norm" in encoder
    if is_pre and which == "output":
        name, places = "attention_norm", [layer for layer in layers if layer < count]
    else:
        name = "attention_norm" if which == "attention" and not is_pre else "feed_forward_norm"
        places = [layer - 1 for layer in layers]
    changed = {**encoder, "layers": {**encoder["layers"], name: _zeroed(encoder["layers"][name], places, dims)}}
    if is_pre and which == "output" and count in layers:
        changed["final_norm"] = _zeroed(encoder["final_norm"], (), dims)
    return changed


def mlm_loss(model: ModelConfig, params: Any, examples: Iterable[Examples]) -> float:
    """Mean cross-entropy of the hidden words, in nats. `params` {"encoder", "head"}; no dropout.

    Raises `ValueError` where no word is hidden.
    """
    sums = [jax.device_get(_loss(model, params, dict(batch))) for batch in examples]
    return _mean(sums)


def kl_influence(
    model: ModelConfig,
    params: Any,
    examples: Iterable[Examples],
    layer: int,
    dims: Sequence[int],
    which: OfLayer = "output",
) -> np.ndarray:
    """Float64 [K], nats: how far the predictions of hidden words move when one dimension is zeroed in one layer.

    KL(P whole || P without) averaged over the hidden words, a pass over the examples for each dimension (Timkey and van
    Schijndel 2021, who ask the last four layers). `zero_ln` says what is zeroed.
    """
    check_choice("which", which, OfLayer)
    sums: list[list[Any]] = [[] for _ in dims]
    for batch in examples:
        batch = dict(batch)
        whole_BxMxV = _log_probabilities(model, params, batch)
        for each, dim in zip(sums, dims, strict=True):
            changed = {**params, "encoder": zero_ln(params["encoder"], [dim], which, [layer])}
            each.append(jax.device_get(_divergence(model, changed, batch, whole_BxMxV)))
    return np.array([_mean(each) for each in sums])


_mask_tokens = jax.jit(mask_tokens, static_argnames=("vocab_size", "config", "specials"))


def _zeroed(norm: Mapping[str, Any], places: Sequence[int] | tuple[()], dims: Collection[int]) -> dict[str, jax.Array]:
    """Scale and bias [D], or of these places [n, D], with 0 in `dims`."""
    width = norm["scale"].shape[-1]
    if wrong := [dim for dim in dims if not 0 <= dim < width]:
        raise ValueError(f"dimensions {wrong} of a LayerNorm over {width}")
    index = np.array(sorted(dims), int)
    at = index if norm["scale"].ndim == 1 else np.ix_(np.array(places, int), index)
    return {name: jnp.asarray(norm[name]).at[at].set(0) for name in ("scale", "bias")}


def _mean(sums: Sequence[tuple[Any, Any]]) -> float:
    total, weight = (float(np.sum(part, dtype=np.float64)) for part in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    if not weight:
        raise ValueError("no word is hidden in these examples")
    return total / weight


@functools.partial(jit_forward, static_argnums=0)
def _loss(model: ModelConfig, params: Any, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    logits_BxMxV = MlmNetwork(model).apply({"params": params}, batch, batch["predicted"])
    loss_BxM, _ = cross_entropy(logits_BxMxV, batch["target"])
    return (loss_BxM * batch["predicted_weight"]).sum(), batch["predicted_weight"].sum()


@functools.partial(jit_forward, static_argnums=0)
def _log_probabilities(model: ModelConfig, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    return jax.nn.log_softmax(MlmNetwork(model).apply({"params": params}, batch, batch["predicted"]))


@functools.partial(jit_forward, static_argnums=0)
def _divergence(
    model: ModelConfig, params: Any, batch: dict[str, jax.Array], whole_BxMxV: jax.Array
) -> tuple[jax.Array, jax.Array]:
    without_BxMxV = _log_probabilities(model, params, batch)
    kl_BxM = (jnp.exp(whole_BxMxV) * (whole_BxMxV - without_BxMxV)).sum(-1)
    return (kl_BxM * batch["predicted_weight"]).sum(), batch["predicted_weight"].sum()
