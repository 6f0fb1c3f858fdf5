"""Runs side by side: what was trained, how far it came, what it scores, as tables and loss curves.

Reads workdirs only, finished or not, and starts no JAX backend.
"""

import dataclasses
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.config import Config, config_diff
from posenc_jax.data.rows import INFO_FILE
from posenc_jax.errors import UserError
from posenc_jax.evaluation.curves import CURVES_FILE, draw_curves
from posenc_jax.evaluation.scores import Record, read_scores
from posenc_jax.evaluation.tables import REPORT_FILE, Table, notes, score_table, write_sections
from posenc_jax.training.trackers import read_metrics
from posenc_jax.training.workdir import read_config

NOTHING = "-"
COLUMNS = (
    "run", "scheme", "parameters", "steps", "seed", "validation loss", "unigram entropy", "below", "tokens/s", "time"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
    """What a workdir says of its run."""

    name: str
    config: Config
    events: Sequence[dict[str, Any]]
    """The lines of metrics.jsonl."""
    unigram_entropy: float | None
    """Nats a word of the rows it is validated on."""
    scores: Sequence[Record]

    def curve(self, kind: str) -> list[tuple[int, float]]:
        """(step, loss) of every "train" or "validation" line."""
        return [(event["step"], event["loss"]) for event in self.events if event["kind"] == kind]

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
        speeds = [event["tokens_per_second"] for event in self.events if event["kind"] == "train"]
        return statistics.median(speeds) if speeds else None

    @property
    def scheme(self) -> str:
        positions = self.config.model.positions
        return positions.scheme + (", [CLS] untied" if positions.untie_cls else "")


def read_runs(workdirs: Sequence[str | Path]) -> list[Run]:
    """The runs of some workdirs, named by their folders. Raises `UserError` for a folder that is none."""
    for workdir in workdirs:
        if not Path(workdir).is_dir():
            raise UserError(f"there is no folder {workdir}; name workdirs of `pretrain`")
    paths = list(dict.fromkeys(Path(workdir).absolute() for workdir in workdirs))
    return [_read_run(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def _read_run(workdir: Path, name: str) -> Run:
    config = read_config(workdir)
    return Run(name, config, read_metrics(workdir), _unigram_entropy(workdir), read_scores(workdir))


def _unigram_entropy(workdir: Path) -> float | None:
    try:
        return json.loads((workdir / INFO_FILE).read_text("utf-8"))["validation"]["unigram_entropy"]
    except (FileNotFoundError, KeyError):
        return None
    except (ValueError, TypeError) as error:
        raise UserError(f"{workdir / INFO_FILE} is damaged ({error}); copy it from the rows of this run") from error


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as few as tell them apart."""
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


# ---- pre-training -------------------------------------------------------------------------------------------------


def training_table(runs: Sequence[Run]) -> Table:
    """A line a run, and a line for each group of finished runs that differ by their seed only."""
    lines = [_cells(run) for run in runs]
    for group in _groups(runs):
        lines.append(_group_cells(group))
    return Table(_caption(runs), COLUMNS, lines, numbers=COLUMNS[2:])


def _caption(runs: Sequence[Run]) -> str:
    rows = Counter(run.config.train.eval_rows for run in runs)
    sentences = [
        "Validation loss: nats a masked word, mean over the masked words of "
        f"{next(iter(rows)) if len(rows) == 1 else 'the first'} held-out rows (all where there are fewer), the same "
        "masks for every run and step, last parameters. Unigram entropy: nats a word of the held-out text for whoever "
        "knows how frequent each word is and no more; below: by how much the loss is less. "
        "tokens/s: median over the logged windows. One seed a line; lines of several seeds give the median and (least "
        "to most)."
    ]
    if len({run.unigram_entropy for run in runs}) > 1:
        sentences.append("These runs were validated on different rows: compare each with its own unigram entropy.")
    return " ".join(sentences)


def _cells(run: Run) -> tuple[str, ...]:
    summary = run.summary
    steps = f"{run.step:,}" if summary else f"{run.step:,} of {_whole(run.config.train.steps)}, not finished"
    return (
        run.name,
        run.scheme,
        _whole(summary.get("parameters")),
        steps,
        str(run.config.train.seed),
        _nats(run.validation_loss),
        _nats(run.unigram_entropy),
        _nats(_below(run)),
        _whole(run.tokens_per_second),
        duration(summary["seconds"]) if summary else NOTHING,
    )


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    groups: list[list[Run]] = []
    for run in runs:
        if run.summary:
            group = next((group for group in groups if _differ_by_seed_only(group[0], run)), None)
            groups.append([run]) if group is None else group.append(run)
    return [group for group in groups if len(group) > 1]


def _differ_by_seed_only(one: Run, other: Run) -> bool:
    differing = {line.partition(":")[0] for line in config_diff(one.config, other.config)}
    return differing == {"train.seed"} and one.unigram_entropy == other.unigram_entropy


def _group_cells(runs: Sequence[Run]) -> tuple[str, ...]:
    runs = sorted(runs, key=lambda run: run.config.train.seed)
    first = runs[0]
    return (
        f"{len(runs)} seeds",
        first.scheme,
        _whole(first.summary["parameters"]),
        f"{first.step:,}",
        " ".join(str(run.config.train.seed) for run in runs),
        _spread([run.validation_loss for run in runs]),
        _nats(first.unigram_entropy),
        _spread([_below(run) for run in runs]),
        _whole(statistics.median(run.tokens_per_second or 0 for run in runs)),
        duration(statistics.median(run.summary["seconds"] for run in runs)),
    )


def _below(run: Run) -> float | None:
    if run.validation_loss is None or run.unigram_entropy is None:
        return None
    return run.unigram_entropy - run.validation_loss


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    return f"{statistics.median(known):.3f} ({min(known):.3f} to {max(known):.3f})"


def _nats(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _whole(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value or NOTHING)


def duration(seconds: float) -> str:
    """As "43 s", "2 min 31 s" or "5 h 02 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# ---- the whole ----------------------------------------------------------------------------------------------------


def write_report(runs: Sequence[Run], out: str | Path) -> Path:
    """Writes OUT/report.md (its sections "Pre-training" and "Fine-tuning") and OUT/curves.png; returns the former."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    training = [training_table(runs).markdown()]
    if draw_curves(runs, out / CURVES_FILE):
        training.append(f"![loss curves]({CURVES_FILE})")
    sections = {"Pre-training": "\n\n".join(training)}
    if scored := _scored(runs):
        lines = [f"- {note}" for note in _notes(scored)]
        sections["Fine-tuning"] = "\n\n".join([score_table(scored).markdown(), *(["\n".join(lines)] if lines else [])])
    write_sections(out / REPORT_FILE, sections)
    return out / REPORT_FILE


def print_report(runs: Sequence[Run]) -> None:
    """The same tables on the terminal."""
    training_table(runs).show()
    if scored := _scored(runs):
        score_table(scored).show()
        for note in _notes(scored):
            print(note)


def _scored(runs: Sequence[Run]) -> dict[str, Sequence[Record]]:
    return {run.name: run.scores for run in runs} if any(run.scores for run in runs) else {}


def _notes(scored: dict[str, Sequence[Record]]) -> list[str]:
    start = "{name}, " if len(scored) > 1 else ""
    return [start.format(name=name) + note for name, records in scored.items() for note in notes(records)]
