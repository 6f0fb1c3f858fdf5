"""How to fine-tune on SQuAD, as published (convbert_and_electra.md 5) and in a hurry; all of it data.

The last state is scored. Batches hold windows of one length class (our choice: the published code pads all to 512).
"""

import dataclasses
from typing import Any, Literal

import optax

from posenc_jax.config import ModelConfig, OptimizerConfig
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.glue.protocols import ByWidth, by_width, default_learning_rate
from posenc_jax.objectives.spans import HeadName
from posenc_jax.training.layer_decay import layer_decay
from posenc_jax.training.optimizer import make_optimizer

LEAST_LENGTH = 16
"""Half of a row is the question's at most; less than this leaves no passage worth the name."""


@dataclasses.dataclass(frozen=True)
class SquadProtocol:
    """Everything that decides a score but encoder, data and seed."""

    name: str
    learning_rate: float
    epochs: int
    batch_size: int
    length: int
    """Most slots of a window."""
    stride: int = 128
    """Tokens from the start of a window to that of the next."""
    warmup: float = 0.1
    """Share of all updates."""
    layer_decay: float = 1.0
    layer_decay_form: Literal["official", "corrected"] = "official"
    head: HeadName = "joint"
    loss: Literal["mean", "sum"] = "mean"
    """Over the rows of a batch, before the clip."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """All but rate and warm-up."""

    def make_optimizer(self, model: ModelConfig, steps: int) -> optax.GradientTransformation:
        config = dataclasses.replace(self.optimizer, learning_rate=self.learning_rate)
        optimizer = make_optimizer(config, steps, round(self.warmup * steps))
        if self.layer_decay == 1:
            return optimizer
        return optax.chain(optimizer, layer_decay(self.layer_decay, model.layers, self.layer_decay_form))

    def settings(self) -> dict[str, Any]:
        """For a record: the fields, the name as "protocol"."""
        fields = dataclasses.asdict(self)
        for name in ("learning_rate", "warmup"):
            del fields["optimizer"][name]
        return {"protocol": fields.pop("name"), **fields}


@dataclasses.dataclass(frozen=True)
class _Published:
    """A protocol whose rate and decay depend on the encoder's width."""

    source: str
    learning_rates: ByWidth | None
    epochs: int
    batch_size: int
    length: int
    layer_decay: ByWidth
    optimizer: OptimizerConfig
    loss: Literal["mean", "sum"]


_ELECTRA = _Published(
    source="convbert_and_electra.md 5",
    learning_rates={256: 1e-4, 768: 1e-4, 1024: 5e-5},
    epochs=2,
    batch_size=32,
    length=512,
    layer_decay={256: 0.8, 1024: 0.9},
    optimizer=OptimizerConfig(schedule="linear_product", bias_correction=False, decay_norms_and_biases=False),
    loss="sum",
)
_CONVBERT = dataclasses.replace(_ELECTRA, learning_rates={256: 3e-4, 384: 3e-4, 768: 1e-4}, layer_decay={256: 0.8})

PROTOCOLS: dict[str, _Published] = {
    "electra": _ELECTRA,
    "convbert": _CONVBERT,
    "paddle": dataclasses.replace(
        _CONVBERT,
        source="convbert_and_electra.md 5 and 6.4: the re-run of the released ConvBERT-base; optimizer as in ConvBERT",
        learning_rates={768: 1e-4},
        batch_size=16,
    ),
    "quick": _Published(
        source="our choice: minutes, to see whether an encoder is worth more",
        learning_rates=None,
        epochs=2,
        batch_size=16,
        length=384,
        layer_decay={1: 1.0},
        optimizer=OptimizerConfig(),
        loss="mean",
    ),
}


def squad_protocol(name: str, model: ModelConfig, limit: int, **changes: Any) -> SquadProtocol:
    """The protocol of that name for an encoder, with `changes` of its fields where they are not None.

    A length that is not asked for is never more than `limit`, the slots the encoder was trained on. Raises `UsageError`
    for a name that is not in `PROTOCOLS`, or a length the encoder or a question does not fit.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"there is no protocol {name!r} for SQuAD; known are {', '.join(PROTOCOLS)}")
    known = PROTOCOLS[name]
    protocol = SquadProtocol(
        name=name,
        learning_rate=(
            by_width(known.learning_rates, model.width) if known.learning_rates else default_learning_rate(model)
        ),
        epochs=known.epochs,
        batch_size=known.batch_size,
        length=min(known.length, limit),
        layer_decay=by_width(known.layer_decay, model.width),
        loss=known.loss,
        optimizer=known.optimizer,
    )
    protocol = dataclasses.replace(protocol, **{key: value for key, value in changes.items() if value is not None})
    if protocol.length > limit:
        raise UsageError(f"--length {protocol.length} is more than the {limit} slots this encoder was trained on")
    if protocol.length < LEAST_LENGTH:
        raise UsageError(
            f"windows of {protocol.length} slots hold no question and passage; {LEAST_LENGTH} is the least"
        )
    return protocol
