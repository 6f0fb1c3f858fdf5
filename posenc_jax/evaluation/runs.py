"""Workdirs as they lie there, finished or not: what a report and its curves are made of. Starts no JAX backend."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.config import Config, describe
from posenc_jax.data.rows import INFO_FILE
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.scores import Record, read_scores
from posenc_jax.interop.origin import Origin, read_origin
from posenc_jax.interop.pretrained import split_checkpoint
from posenc_jax.training.trackers import read_metrics
from posenc_jax.training.workdir import read_config


@dataclasses.dataclass(frozen=True)
class Run:
    """What a workdir says of its run."""

    name: str
    workdir: Path
    config: Config
    events: Sequence[dict[str, Any]]
    """The lines of metrics.jsonl."""
    rows: dict[str, Any]
    """rows.json of what it is trained on; empty where there is none."""
    scores: Sequence[Record]
    origin: Origin | None = None
    """Of a model that was not trained here."""

    @property
    def unigram_entropy(self) -> float | None:
        """Nats a word of the rows it is validated on."""
        return self.rows.get("validation", {}).get("unigram_entropy")

    @property
    def imported(self) -> str | None:
        """The family of a model that was not trained here."""
        return self.origin.model_type if self.origin else None

    def curve(self, kind: str) -> list[tuple[int, float]]:
        """(step, loss in nats a masked word) of every "train" or "validation" line; with replaced-token detection that
        is the generator's."""
        return [
            (event["step"], float(event.get("mlm_loss", event["loss"])))
            for event in self.events
            if event["kind"] == kind
        ]

    @property
    def last_validation(self) -> dict[str, Any]:
        """The last "validation" line; empty before there is one."""
        return next((event for event in reversed(self.events) if event["kind"] == "validation"), {})

    @property
    def summary(self) -> dict[str, Any]:
        """The last line of a finished run; empty before that."""
        return self.events[-1] if self.events and self.events[-1]["kind"] == "summary" else {}

    @property
    def step(self) -> int:
        return max((event["step"] for event in self.events), default=0)

    @property
    def validation_loss(self) -> float | None:
        return self.curve("validation")[-1][1] if self.curve("validation") else None

    @property
    def tokens_per_second(self) -> float | None:
        """Median over the logged windows."""
        speeds = [e["tokens_per_second"] for e in self.events if e["kind"] == "train" and "tokens_per_second" in e]
        return statistics.median(speeds) if speeds else None

    @property
    def variant(self) -> str:
        return describe(self.config)


def read_runs(workdirs: Sequence[str | Path]) -> list[Run]:
    """The runs of some workdirs, named by their folders. Raises `UserError` for a folder that is none."""
    for workdir in workdirs:
        if Path(workdir).is_file():
            raise UserError(f"{workdir} is a file; name workdirs of `pretrain`")
        if not str(workdir) or not Path(workdir).is_dir():
            raise UserError(f"there is no folder {str(workdir) or repr('')}; name workdirs of `pretrain`")
        whole, step = split_checkpoint(workdir)
        if step is not None:
            raise UserError(f"{workdir} is a checkpoint; name its workdir, {whole}: the newest one is shown")
    paths = list(dict.fromkeys(Path(workdir).absolute() for workdir in workdirs))
    return [_read_run(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def _read_run(workdir: Path, name: str) -> Run:
    config, events = read_config(workdir), read_metrics(workdir)
    return Run(name, workdir, config, events, _read_rows(workdir), read_scores(workdir), read_origin(workdir))


def _read_rows(workdir: Path) -> dict[str, Any]:
    try:
        rows = json.loads((workdir / INFO_FILE).read_text("utf-8"))
        rows.get("validation", {}).get("unigram_entropy")
        return rows
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise UserError(f"{workdir / INFO_FILE} is damaged ({error}); copy it from the rows of this run") from error


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as few as tell them apart."""
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]
