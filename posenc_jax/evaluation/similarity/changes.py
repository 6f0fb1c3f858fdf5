"""What `sts` and `wic` do to vectors, when asked to, before they take cosines; the vectors as they are stand beside it.

What has to be estimated is estimated on the subwords of the task's own sentences, without their labels, a layer at a
time, and is linear, so that it may be done to a mean of vectors.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from posenc_jax.analysis.outliers import find_outliers, persistent_outliers
from posenc_jax.analysis.states import moments_of, states_of
from posenc_jax.analysis.texts import mark_texts, sample_texts
from posenc_jax.analysis.transforms import Transform, all_but_the_top, center, clip_dims, standardize
from posenc_jax.errors import UsageError, UserError
from posenc_jax.interop.pretrained import FrozenEncoder, layer_names

TEXTS, TOKENS = 2000, 10_000
"""Most sentences of the sample, and most subwords where their states are kept: 400 MB of a 12-layer base model."""
TRANSFORMS = ("center", "standardize", "all_but_the_top")


class Change(NamedTuple):
    """A transform and what it is."""

    transform: Transform
    record: dict[str, Any]
    """{"name": as it was asked for, "what": in words, "dims": those clipped}."""


def parse_clip(change: str, width: int) -> list[int]:
    """The dimensions of "clip 557,77", ascending. Raises `UsageError` for what is no dimension of the encoder."""
    try:
        dims = sorted({int(part) for part in change.removeprefix("clip ").split(",")})
    except ValueError:
        raise UsageError(
            f"--clip wants dimensions, as 557,77, or auto; it got {change.removeprefix('clip ')}"
        ) from None
    if wrong := [dim for dim in dims if not 0 <= dim < width]:
        raise UsageError(f"--clip {wrong[0]}: this encoder's dimensions are 0 to {width - 1}")
    return dims


def make_change(encoder: FrozenEncoder, change: str, texts: Sequence[str], specials: bool) -> Change:
    """`change` is "clip 557,77", "clip auto" or one of `TRANSFORMS`; `texts` are the task's sentences.

    "clip auto" clips, in every layer, the `persistent_outliers`: those of at least half of the layers, and of two.
    `specials`: [CLS] and [SEP] are part of the sample. Raises `UsageError` for a change that is none of these,
    `UserError` where the texts have no word.
    """
    if change != "clip auto" and change.startswith("clip "):
        dims = parse_clip(change, encoder.pretrained.model.width)
        return Change(clip_dims(dims), {"name": change, "dims": dims, "what": _clipped(dims)})
    if change != "clip auto" and change not in TRANSFORMS:
        raise UsageError(f"--transform {change} is none of {', '.join(TRANSFORMS)}")
    sampled, _ = sample_texts(dict.fromkeys(texts), TEXTS, seed=0)
    if next(mark_texts(encoder.pretrained.tokenizer, sampled, encoder.pretrained.length), None) is None:
        raise UserError(f"{change}: none of the task's sentences has a word to estimate it from")
    if change == "all_but_the_top":
        states = states_of(encoder, sampled, special=specials, max_tokens=TOKENS)
        components = max(1, encoder.pretrained.model.width // 100)
        what = f"the mean and the first {components} principal directions of {len(states):,} subwords are taken away"
        return Change(all_but_the_top(states.states_ExNxD, components), {"name": change, "dims": [], "what": what})
    moments = moments_of(encoder, sampled, special=specials)
    if change == "clip auto":
        found = find_outliers(moments.mean_ExD, moments.min_share_ExD, moments.max_share_ExD)
        dims = sorted(persistent_outliers(found, layer_names(encoder.pretrained.model)))
        what = f"{_clipped(dims)}: outliers of at least half of the layers in {moments.count:,} subwords"
        return Change(clip_dims(dims), {"name": change, "dims": dims, "what": what})
    what = f"the mean of {moments.count:,} subwords is taken away"
    if change == "center":
        return Change(center(moments.mean_ExD), {"name": change, "dims": [], "what": what})
    transform = standardize(moments.mean_ExD, moments.variance_ExD**0.5)
    return Change(transform, {"name": change, "dims": [], "what": f"{what}, and every dimension gets their spread 1"})


def _clipped(dims: Sequence[int]) -> str:
    if len(dims) == 1:
        return f"dimension {dims[0]} is set to 0"
    return f"dimensions {', '.join(map(str, dims))} are set to 0" if dims else "no dimension is set to 0"
