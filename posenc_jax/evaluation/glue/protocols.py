"""How to fine-tune and what number to print, as published: one `Protocol` a paper, all of it data.

What a spec leaves open is said where we chose. In all of them batches hold texts of one length class (our choice: the
published ones pad to the longest of a batch or of all), the state after the last step is scored, and a metric is of
the whole dev set, never a mean over batches.
"""

import dataclasses
import difflib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from posenc_jax.config import ModelConfig, OptimizerConfig
from posenc_jax.data.tasks import TaskSpec
from posenc_jax.errors import UsageError
from posenc_jax.objectives.supervised import Head
from posenc_jax.training.layer_decay import Form

ByWidth = Mapping[int, float]
"""Width of the encoder -> a number. A width between two has that of the narrower, one below all that of the narrowest
(our choice)."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A grid of learning rates and seeds, how each run is trained, and how the runs become one number."""

    name: str
    source: str
    seeds: tuple[int, ...]
    aggregation: Literal["median", "mean"]
    """Of the seeds at one rate. Of several rates the one whose aggregate is best on the dev set is reported."""
    learning_rates: tuple[float, ...] | ByWidth | None
    """Peak rates of the grid; None is `default_learning_rate`."""
    epochs: int
    epochs_of: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Tasks that differ from that."""
    epochs_beyond: tuple[int, int] | None = None
    """(rows, epochs): what a task with more training rows gets."""
    batch_size: int = 32
    length: int | None = None
    """Most word pieces of a row; None is what the encoder was trained on, which is never exceeded."""
    warmup: float = 0.06
    """Share of all updates."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """All but rate and warm-up; the clip is of the whole gradient's norm."""
    layer_decay: ByWidth | None = None
    layer_decay_form: Form = "official"
    head: Head = "pooler"
    loss: Literal["mean", "sum"] = "mean"
    """Over the rows of a batch, before the clip."""
    doubled: tuple[str, ...] = ()
    """Tasks whose training pairs also come with their texts exchanged."""
    separators: Literal[1, 2] | None = None
    """[SEP]s between the texts of a pair; None: one where the model has token types (BERT), else two (RoBERTa)."""
    most_rows: int | None = None
    """More training rows than that are not used; which ones is drawn once."""
    metrics_of: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Metrics whose mean is a task's score, where it is not the task's first one alone."""
    average: str = "TUPE"
    """Name in `evaluation.averages` of the mean the paper prints."""
    changes: tuple[str, ...] = ()
    """What `override` changed, in words."""

    @property
    def label(self) -> str:
        """The name, and what differs from the protocol of that name."""
        return ", ".join((self.name, *self.changes))

    def rates(self, model: ModelConfig) -> tuple[float, ...]:
        if self.learning_rates is None:
            return (default_learning_rate(model),)
        if isinstance(self.learning_rates, Mapping):
            return (by_width(self.learning_rates, model.width),)
        return self.learning_rates

    def epochs_for(self, task: str, rows: int) -> int:
        """Passes over the `rows` training examples of a task."""
        if self.epochs_beyond and rows > self.epochs_beyond[0]:
            return self.epochs_beyond[1]
        return self.epochs_of.get(task, self.epochs)

    def metrics_for(self, task: TaskSpec) -> tuple[str, ...]:
        return self.metrics_of.get(task.name, task.metrics[:1])

    def settings(self, task: TaskSpec, model: ModelConfig, length: int, rows: int) -> "Settings":
        """For a task with `rows` training examples and an encoder trained on rows of `length` word pieces."""
        return Settings(
            protocol=self.label,
            epochs=self.epochs_for(task.name, rows),
            batch_size=self.batch_size,
            length=min(self.length or length, length),
            warmup=self.warmup,
            optimizer=self.optimizer,
            layer_decay=by_width(self.layer_decay, model.width) if self.layer_decay else None,
            layer_decay_form=self.layer_decay_form,
            head=self.head,
            loss=self.loss,
            doubled=task.name in self.doubled,
            separators=self.separators,
            most_rows=self.most_rows if self.most_rows and rows > self.most_rows else None,
            metrics=self.metrics_for(task),
        )

    def aggregate(self, scores: Sequence[float]) -> float:
        """The seeds' scores as one."""
        return {"median": statistics.median, "mean": statistics.fmean}[self.aggregation](scores)


@dataclasses.dataclass(frozen=True)
class Settings:
    """All that decides a run's score but encoder, data, rate and seed. The fields are those of `Protocol`."""

    protocol: str
    epochs: int
    batch_size: int
    length: int
    warmup: float
    optimizer: OptimizerConfig
    layer_decay: float | None
    layer_decay_form: Form
    head: Head
    loss: Literal["mean", "sum"]
    doubled: bool
    separators: Literal[1, 2] | None
    most_rows: int | None
    """None where the task has no more."""
    metrics: tuple[str, ...]
    """The score is their mean."""

    def as_json(self) -> dict[str, Any]:
        """As a record holds them; the optimizer without its own rate and warm-up, which say nothing here."""
        values = dataclasses.asdict(self) | {"metrics": list(self.metrics)}
        for unused in ("learning_rate", "warmup"):
            del values["optimizer"][unused]
        return values


def default_learning_rate(model: ModelConfig) -> float:
    """5e-5 at width 768, the largest of the published grid, and in inverse proportion for other widths (our choice):
    3e-4 at 128."""
    return 5e-5 * 768 / model.width


def by_width(values: ByWidth, width: int) -> float:
    return values[max((known for known in values if known <= width), default=min(values))]


_ELECTRA = Protocol(
    name="electra",
    source="convbert_and_electra.md 5; dev scores are medians over at least 10 seeds (electra #98)",
    seeds=tuple(range(10)),
    aggregation="median",
    learning_rates={256: 1e-4, 768: 1e-4, 1024: 5e-5},
    epochs=3,
    epochs_of={"RTE": 10, "STS-B": 10},
    length=128,
    warmup=0.1,
    optimizer=OptimizerConfig(schedule="linear_product", bias_correction=False, decay_norms_and_biases=False),
    layer_decay={256: 0.8, 1024: 0.9},
    head="single",
    loss="sum",
    doubled=("MRPC", "STS-B"),
    separators=1,
    metrics_of={"STS-B": ("spearman",)},
    average="ELECTRA",
)

_TWICE = {"MRPC": ("accuracy", "f1"), "QQP": ("accuracy", "f1"), "STS-B": ("pearson", "spearman")}

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="tupe",
            source="tupe.md 3; last state where the code may have taken the best evaluation, which the spec calls open",
            seeds=tuple(range(5)),
            aggregation="median",
            learning_rates=(2e-5, 3e-5, 4e-5, 5e-5),
            epochs=10,
            epochs_of={"MNLI": 5, "QNLI": 5, "QQP": 5},
            length=512,
        ),
        _ELECTRA,
        dataclasses.replace(
            _ELECTRA,
            name="convbert",
            source="convbert_and_electra.md 5; seeds and their aggregation are not stated: ELECTRA's",
            learning_rates={256: 3e-4, 384: 3e-4, 768: 1e-4},
            layer_decay={256: 0.8},
        ),
        Protocol(
            name="symmetric",
            source="ddrp_mth_and_symmetric.md 2.4; the head starts as TUPE's, where the code draws N(0, 0.02^2)",
            seeds=(1, 2, 3, 4, 5),
            aggregation="mean",
            learning_rates=(1e-5,),
            epochs=5,
            batch_size=16,
            length=128,
            warmup=0.1,
            optimizer=OptimizerConfig(eps=1e-8, weight_decay=0.0),
            separators=1,
            metrics_of=_TWICE,
            average="symmetric",
        ),
        Protocol(
            name="quick",
            source="our choice: minutes, to see whether an encoder is worth more",
            seeds=(0,),
            aggregation="median",
            learning_rates=None,
            epochs=3,
            length=128,
            most_rows=10_000,
        ),
        Protocol(
            name="default",
            source="our choice: TUPE's recipe at one rate, 3 epochs where there are over 10,000 training rows",
            seeds=(0,),
            aggregation="median",
            learning_rates=None,
            epochs=10,
            epochs_beyond=(10_000, 3),
        ),
    )
}


def find_protocol(name: str) -> Protocol:
    """The protocol of that name. Raises `UsageError` with the nearest one."""
    if name not in PROTOCOLS:
        close = difflib.get_close_matches(name, PROTOCOLS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"there is no protocol {name!r}; known are {', '.join(PROTOCOLS)}{hint}")
    return PROTOCOLS[name]


def override(
    protocol: Protocol,
    *,
    seeds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rates: Sequence[float] | None = None,
) -> Protocol:
    """The protocol with other settings, whose label says so; None leaves a setting as it is.

    `seeds` is how many, from the protocol's first on: it makes no other runs, only more or fewer.
    """
    changes: dict[str, Any] = {}
    words: list[str] = []
    if seeds is not None:
        changes["seeds"] = tuple(range(protocol.seeds[0], protocol.seeds[0] + seeds))
    if epochs is not None:
        changes |= {"epochs": epochs, "epochs_of": {}, "epochs_beyond": None}
        words.append(f"{epochs} epoch{'s' * (epochs > 1)}")
    if batch_size is not None and batch_size != protocol.batch_size:
        changes["batch_size"] = batch_size
        words.append(f"{batch_size} rows a step")
    if learning_rates is not None:
        changes["learning_rates"] = tuple(learning_rates)
        words.append(f"learning rate {', '.join(f'{rate:g}' for rate in learning_rates)}")
    return dataclasses.replace(protocol, **changes, changes=(*protocol.changes, *words))
