"""The whole way in minutes, on text that is already on the machine: does telling the encoder where its words are help?

Six acts: text to rows, probe tasks, pre-training of two arms that differ in their position scheme alone, fine-tuning
of both, a table and a picture. Each act leaves its result in the folder and is skipped when it is there, so the same
call goes on after any interruption.
"""

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from posenc_jax.config_files import load_config
from posenc_jax.data.prepare import prepare
from posenc_jax.data.probes import write_probes
from posenc_jax.data.progress import show_progress
from posenc_jax.data.rows import RowsInfo
from posenc_jax.data.sentences import split_sentences
from posenc_jax.data.sources import documents
from posenc_jax.evaluation.curves import CURVES_FILE
from posenc_jax.evaluation.glue.grid import run_glue
from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.report import duration, write_report
from posenc_jax.evaluation.runs import Run, read_runs
from posenc_jax.evaluation.tables import Table
from posenc_jax.objectives.pretraining import pretrain

# ---- what it consists of, in one place ----------------------------------------------------------------------------

LENGTH, VOCAB_SIZE, PACKING = 64, 8192, "documents"
ARMS = {
    "bert_a": "learned absolute positions, added to the words (BERT)",
    "tupe_r": "words and positions correlated apart, plus relative positions (TUPE)",
}
PROBES = {
    "order": "were two neighbouring words of a sentence exchanged?",
    "next": "does the second sentence follow the first one?",
}
PROBE_ROWS, PROBE_DEV_ROWS = 10_000, 2_000
FINE_TUNING = dict(seeds=1, epochs=2, batch_size=32, learning_rate=1e-3)

# -------------------------------------------------------------------------------------------------------------------

Stopping = Callable[[], AbstractContextManager[Callable[[], bool]]]
"""Entered around a pre-training; gives its `should_stop`."""


@contextlib.contextmanager
def never_stopping() -> Iterator[Callable[[], bool]]:
    yield lambda: False


@dataclasses.dataclass(frozen=True)
class Acts:
    """Announces each act and says how long it took."""

    total: int
    began: float = dataclasses.field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def act(self, number: int, title: str, *lines: str) -> Iterator[None]:
        print(f"\n[{number}/{self.total}] {title}", *(f"      {line}" for line in lines), sep="\n", flush=True)
        began = time.monotonic()
        yield
        took, whole = time.monotonic() - began, time.monotonic() - self.began
        print(f"      took {duration(took)}, {duration(whole)} since the start", flush=True)


def quickstart(
    out: str | Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    source: str = "docstrings:",
    stopping: Stopping = never_stopping,
) -> bool:
    """Goes through the acts in the folder `out`, printing as it goes; False when it was stopped while pre-training.

    `seed` decides start and order of the pre-training; rows, probes and fine-tuning are the same for all seeds, and
    several seeds may share a folder. `steps` shortens the pre-training. Raises `UserError` for bad text, and
    `UsageError` for a folder begun with other settings.
    """
    out, acts = Path(out), Acts(4 + len(ARMS))
    print(
        "Two small encoders learn to guess hidden words; they differ only in how they are told where the words are.\n"
        f"Everything is kept in {out}. Interrupted? The same line again goes on."
    )
    info = _rows(out / "rows", source, acts)
    _probes(out / "probes", source, acts)
    workdirs = {arm: out / f"{arm}_seed{seed}" for arm in ARMS}
    for number, arm in enumerate(ARMS):
        if not _pretrain(arm, workdirs[arm], info, seed, steps, 3 + number, acts, stopping):
            return False
    records = _fine_tune(workdirs, out / "probes", 3 + len(ARMS), acts)
    _report(workdirs, records, out, 4 + len(ARMS), acts)
    _what_next()
    return True


def _rows(out: Path, source: str, acts: Acts) -> RowsInfo:
    where = "the documentation of the Python packages installed here" if source == "docstrings:" else source
    with acts.act(
        1,
        "Text to rows",
        f"Reads {where}, learns a vocabulary of {VOCAB_SIZE:,} word pieces from it,",
        f"and packs it into rows of {LENGTH} pieces. Every 50th document is held out.",
    ):
        with show_progress() as progress:
            info = prepare(source, out, length=LENGTH, vocab_size=VOCAB_SIZE, packing=PACKING, progress=progress)
        of = info.statistics
        print(
            f"      {of['words']:,} words in {of['documents']:,} documents: {of['tokens']:,} pieces "
            f"in {of['rows']:,} rows"
        )
        print(
            "      Whoever knows how frequent each piece is and nothing else guesses at "
            f"{info.validation.unigram_entropy:.2f} nats a piece\n"
            "      (the unigram entropy of the held-out text): the number to beat."
        )
    return info


def _probes(out: Path, source: str, acts: Acts) -> None:
    with acts.act(
        2,
        "Two probe tasks from the same text",
        *(f"{name}: {question} Chance is 50 %." for name, question in PROBES.items()),
    ):
        if all((out / name / f"{split}.tsv").exists() for name in PROBES for split in ("train", "dev")):
            print("      already there")
            return
        texts = (split_sentences(document) for document in documents(source, Counter()))
        written = write_probes(texts, out, rows=PROBE_ROWS, dev_rows=PROBE_DEV_ROWS)
        for name, rows in written.items():
            print(f"      {name}: {rows['train']:,} rows to train on, {rows['dev']:,} rows of other documents to score")


def _pretrain(
    arm: str, workdir: Path, info: RowsInfo, seed: int, steps: int | None, number: int, acts: Acts, stopping: Stopping
) -> bool:
    overrides = {"data.path": str(info.path)}
    if steps is not None:
        overrides |= {"train.steps": steps, "optimizer.warmup": max(1, steps // 12)}  # the share that 100 is of 1,200
    config = load_config(f"configs/tupe.py:{arm},tiny,length={LENGTH},seed={seed}", overrides)
    with acts.act(
        number,
        f"Pre-training {arm}: {ARMS[arm]}",
        f"Hides 15 % of the pieces of each row and learns to guess them, {config.train.batch_size} rows a step.",
        "The loss is in nats a hidden piece: less is better.",
    ):
        with stopping() as should_stop:
            outcome = pretrain(config, workdir, should_stop=should_stop)
        if not outcome.finished:
            print(f"      stopped and saved at step {outcome.step:,}")
            return False
        loss, entropy = outcome.summary["validation_loss"], outcome.summary["unigram_entropy"]
        print(f"      validation loss {loss:.3f} nats, unigram entropy {entropy:.3f}: {_compare(entropy - loss)}")
    return True


def _compare(below: float) -> str:
    if below < 0.05:
        return "it has hardly learned more than how frequent the pieces are"
    return f"{below:.2f} nats better than knowing frequencies alone"


def _fine_tune(workdirs: dict[str, Path], probes: Path, number: int, acts: Acts) -> list[list[Record]]:
    with acts.act(
        number,
        "Fine-tuning on the probes",
        f"Each encoder gets a fresh head and learns from {PROBE_ROWS:,} rows a probe to answer its question.",
    ):
        records = []
        for workdir in workdirs.values():
            print(f"      {workdir.name}", flush=True)
            records.append(run_glue(workdir, probes, list(PROBES), **FINE_TUNING))
        return records


def _report(workdirs: dict[str, Path], records: list[list[Record]], out: Path, number: int, acts: Acts) -> None:
    with acts.act(number, "What came of it"):
        runs = read_runs(list(workdirs.values()))
        path = write_report(runs, out)
        table_of_arms(runs, records).show()
        print(f"      all numbers    {path}")
        print(f"      loss curves    {out / CURVES_FILE}")
        for workdir in workdirs.values():
            print(f"      run            {workdir}")


def table_of_arms(runs: Sequence[Run], records: Sequence[Sequence[Record]]) -> Table:
    """One line an arm: the losses and the probes, each number beside what it is to be compared with."""
    probes = [f"{name} probe" for name in PROBES]
    rows = []
    for run, of_run in zip(runs, records, strict=True):
        score = {record["task"]: f"{100 * record['score']:.1f} %" for record in of_run}
        losses = (f"{run.validation_loss:.3f}", f"{run.unigram_entropy:.3f}")
        rows.append((run.name, *losses, *(score[name] for name in PROBES), "50.0 %"))
    return Table(
        "Losses: nats a hidden piece of held-out rows, after the last step. Probes: accuracy on the whole dev set, one "
        "fine-tuning each. One seed of everything; several (--seed N) say whether a difference is one.",
        ("arm", "validation loss", "unigram entropy", *probes, "chance"),
        rows,
        numbers=("validation loss", "unigram entropy", *probes, "chance"),
    )


def _what_next() -> None:
    print(
        "\nYour own text, in four lines (a .txt file, blank lines between documents):\n"
        "  python -m posenc_jax prepare --source text:MY.txt --out out/mine/rows\n"
        "  python -m posenc_jax pretrain --config configs/tupe.py:tupe_r,tiny --data out/mine/rows "
        "--workdir out/mine/run\n"
        "  python -m posenc_jax probes --source text:MY.txt --out out/mine/probes\n"
        "  python -m posenc_jax glue --workdir out/mine/run --data out/mine/probes --tasks order,next"
    )
