"""What a config may not be: ranges, and fields that must fit each other. Messages hold the numbers and the mend."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from posenc_jax.config import Config, ModelConfig
from posenc_jax.durations import split_duration
from posenc_jax.errors import UsageError
from posenc_jax.typed import build, flatten

MOST_DISTANCE = 2**20
"""Beyond any row; a table of that many distances is still made in no time."""


def config_from_dict(settings: Mapping[str, Any]) -> Config:
    """Typed and checked `Config` from nested dicts, such as a workdir's `config.json`. Raises `UsageError`."""
    config = build(Config, settings)
    check(config)
    return config


def check(config: Config) -> None:
    """Raises `UsageError` where a value is out of its range, or two do not fit together."""
    model, train = config.model, config.train
    for key, value in flatten(dataclasses.asdict(config)).items():
        _check_range(key, value)
    _check_model(model)
    if config.mlm.random_share + config.mlm.kept_share > 1:
        raise UsageError(
            f"mlm.random_share={config.mlm.random_share} and mlm.kept_share={config.mlm.kept_share} are more than all "
            "of the predicted words"
        )
    _check_objective(config)
    if train.batch_size % train.accumulate:
        raise UsageError(f"train.batch_size={train.batch_size} is not divisible by train.accumulate={train.accumulate}")
    if config.data.length is not None and config.data.length < 8:
        raise UsageError(f"data.length={config.data.length} is too short; the least is 8")
    for name in ("steps", "log_every", "eval_every", "checkpoint_every", "keep_every"):
        split_duration(getattr(train, name), f"train.{name}")
    split_duration(config.optimizer.warmup, "optimizer.warmup")


def _check_objective(config: Config) -> None:
    """Raises `UsageError` where masks, objective and model do not fit, or a setting would not be read."""
    mlm, rtd, extra, model = config.mlm, config.rtd, config.differentiation, config.model
    if mlm.with_replacement and (mlm.unit != "token" or mlm.random_share or mlm.mask_special):
        raise UsageError(
            "mlm.with_replacement=True is ELECTRA's drawing, which knows no random words, no special tokens and no "
            f"whole words; set mlm.random_share=0 (it is {mlm.random_share}), mlm.mask_special=False and "
            "mlm.unit='token'"
        )
    if mlm.span_words < 1:
        raise UsageError(f"mlm.span_words={mlm.span_words} must be at least 1")
    if extra.head_weight and model.attention_heads < 2:
        raise UsageError(
            f"differentiation.head_weight={extra.head_weight} compares attention heads, and this model has one; set "
            "it to 0 or raise model.heads"
        )
    idle = {}
    if mlm.unit != "span":
        idle["mlm.span_words"] = "mlm.unit='span'"
    if config.objective != "rtd":
        idle |= {f"rtd.{field.name}": "objective='rtd'" for field in dataclasses.fields(rtd)}
    elif rtd.generator != "own":
        # Its size may stand there: the shipped configs set it, and another generator is one line beside them.
        idle |= {f"rtd.{name}": "rtd.generator='own'" for name in ("generator_scheme", "share_embeddings")}
    for part in ("token", "head"):
        if not getattr(extra, f"{part}_weight"):
            idle[f"differentiation.{part}_form"] = f"differentiation.{part}_weight above 0"
    _refuse_idle(config, Config(), idle)


def _check_model(model: ModelConfig) -> None:
    """Raises `UsageError` where the sizes of a model do not fit each other."""
    positions, convolution, groups = model.positions, model.convolution, model.feed_forward_groups
    if model.width % model.heads:
        raise UsageError(
            f"model.width={model.width} is not divisible by model.heads={model.heads}; "
            f"{model.heads * max(1, round(model.width / model.heads))} is the nearest width that is"
        )
    if positions.buckets % 4:
        raise UsageError(
            f"model.positions.buckets={positions.buckets} must be a multiple of 4: "
            "two directions, each half exact and half logarithmic"
        )
    if max(positions.max_distance, positions.clip) > MOST_DISTANCE:
        raise UsageError(
            f"model.positions.max_distance={positions.max_distance} and model.positions.clip={positions.clip} must "
            f"be at most {MOST_DISTANCE:,}"
        )
    if positions.max_distance <= positions.buckets // 4:
        raise UsageError(
            f"model.positions.max_distance={positions.max_distance} must be above a quarter of "
            f"model.positions.buckets={positions.buckets}, where the exact buckets end"
        )
    if convolution.width % 2 == 0:
        raise UsageError(
            f"model.convolution.width={convolution.width} must be odd, for as many words on the left as on the right"
        )
    ratio = convolution.head_ratio
    if model.mixer == "mixed" and model.heads % ratio and model.heads >= ratio:
        raise UsageError(
            f"model.heads={model.heads} is not divisible by model.convolution.head_ratio={ratio}, "
            "so that no whole number of attention heads remains"
        )
    for name in ("width", "feed_forward_width"):
        if getattr(model, name) % groups:
            raise UsageError(
                f"model.{name}={getattr(model, name)} is not divisible by model.feed_forward_groups={groups}"
            )
    _check_idle(model)


def _check_idle(model: ModelConfig) -> None:
    """Refuses settings that nothing would read: a comparison whose arms are the same is worse than an error."""
    compatibility = model.compatibility
    idle: dict[str, str] = {}
    if compatibility.name != "dot_product":
        idle["compatibility.matched_init"] = "model.compatibility.name=dot_product"
    if compatibility.name != "pairwise":
        idle["compatibility.form"] = idle["compatibility.start"] = "model.compatibility.name=pairwise"
    if model.mixer != "mixed":
        for field in dataclasses.fields(model.convolution):
            idle[f"convolution.{field.name}"] = "model.mixer=mixed"
    elif model.convolution.kind == "none":
        idle["convolution.width"] = idle["convolution.mask"] = "a convolution, model.convolution.kind,"
    _refuse_idle(model, ModelConfig(), idle, "model.")


def _refuse_idle(settings: Any, defaults: Any, idle: Mapping[str, str], prefix: str = "") -> None:
    """Raises `UsageError` for a key of `idle` (key -> who would read it) that is not at its default."""
    now, default = flatten(dataclasses.asdict(settings)), flatten(dataclasses.asdict(defaults))
    for key, reader in idle.items():
        if now[key] != default[key]:
            raise UsageError(f"{prefix}{key}={now[key]!r} would change nothing; only {reader} reads it")


_AT_LEAST_ONE = {
    "model.layers", "model.width", "model.heads", "model.feed_forward_width", "model.vocab_size", "data.prefetch",
    "model.feed_forward_groups", "model.embedding_width", "model.convolution.width", "model.convolution.head_ratio",
    "model.positions.max_length", "model.positions.buckets", "model.positions.clip", "train.batch_size",
    "train.accumulate", "train.eval_rows", "train.keep_checkpoints", "mesh.fsdp", "mesh.tensor",
}  # fmt: skip
_SHARES = {
    "mlm.random_share",
    "mlm.kept_share",
    "model.dropout",
    "model.attention_dropout",
    "optimizer.b1",
    "optimizer.b2",
}
_AT_LEAST_ZERO = {
    "model.token_types", "model.positions.offset", "optimizer.weight_decay", "rtd.generator_weight",
    "rtd.discriminator_weight", "differentiation.token_weight", "differentiation.head_weight",
    "train.keep_best", "train.skipped_updates", "train.watchdog_minutes",
}  # fmt: skip
_POSITIVE = {
    "model.positions.rope_base", "model.positions.sinusoid_amplitude", "model.norm_eps", "model.init_std",
    "optimizer.learning_rate", "optimizer.eps", "optimizer.clip_norm", "rtd.generator_size", "rtd.generator_layers",
    "mlm.span_words",
}  # fmt: skip


def _check_range(key: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    if isinstance(value, int) and value >= 2**31 and key != "train.seed":
        raise UsageError(f"{key}={value} must be below 2^31")
    if key in _AT_LEAST_ONE and value < 1:
        raise UsageError(f"{key}={value} must be at least 1")
    if key in _AT_LEAST_ZERO and not 0 <= value < math.inf:
        raise UsageError(f"{key}={value} must be at least 0" + ("" if value < 0 else ", and finite"))
    if key in _SHARES and not 0 <= value < 1:
        raise UsageError(f"{key}={value} must be at least 0 and below 1")
    if key in _POSITIVE and not 0 < value < math.inf:
        raise UsageError(f"{key}={value} must be above 0" + ("" if value <= 0 else ", and finite"))
    if key == "mlm.rate" and not 0 < value < 1:
        raise UsageError(f"mlm.rate={value} must lie between 0 and 1; BERT uses 0.15")
    if key == "mesh.data" and value != -1 and value < 1:
        raise UsageError(f"mesh.data={value} must be at least 1, or -1 for all devices that are left")
    if key == "train.seed" and not 0 <= value < 2**32:
        raise UsageError(f"train.seed={value} must lie between 0 and 2^32 - 1")
