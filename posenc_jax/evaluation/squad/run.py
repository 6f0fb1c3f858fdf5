"""Fine-tune a workdir's encoder to answer questions from a passage, and score it on a SQuAD dev file.

A record is written when a run is done, and the same command again finds it and trains nothing. It is another's when
anything differs that changes a score: encoder, settings, questions. A run that is interrupted leaves nothing.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from posenc_jax.config import MeshConfig
from posenc_jax.data.rows import write_whole
from posenc_jax.data.spans import Passage, Window, make_windows
from posenc_jax.data.squad import Question, Squad, Version, read_squad
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.squad.answers import BEST, THRESHOLDS, Answered, choose_answers, nbest
from posenc_jax.evaluation.squad.batches import WindowBucket, make_window_buckets, search_batches, training_batches
from posenc_jax.evaluation.squad.metrics import (
    best_threshold,
    random_spans,
    score_answers,
    summary,
    with_threshold,
)
from posenc_jax.evaluation.squad.protocols import SquadProtocol, squad_protocol
from posenc_jax.evaluation.squad.records import FOLDER, find_record, read_records, squad_table, write_records
from posenc_jax.evaluation.tables import REPORT_FILE, write_sections
from posenc_jax.interop.pretrained import Pretrained, load_pretrained, restore_encoder
from posenc_jax.model.span_heads import Beams
from posenc_jax.objectives.spans import Spans
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.parallel.mesh import check_batch, make_mesh, put_batch
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.state import abstract_state, create_state
from posenc_jax.training.step import make_train_step
from posenc_jax.training.trackers import Terminal
from posenc_jax.training.workdir import take_lock

FROM_SCRATCH = "from scratch"
LOGS = 5
"""Lines of progress in training, and in the search after it."""


def run_squad(
    workdir: str | Path,
    train: str | Path,
    dev: str | Path,
    *,
    protocol: str = "quick",
    version: Version | None = None,
    train_rows: int | None = None,
    dev_rows: int | None = None,
    seed: int = 0,
    from_scratch: bool = False,
    **changes: Any,
) -> Record:
    """Trains on the questions of `train`, answers those of `dev`, and returns the record.

    `protocol` is a name of `squad.protocols.PROTOCOLS`, `changes` are fields of `SquadProtocol` that shall differ.
    `version`: how to score, by default what `dev` is. `train_rows`, `dev_rows`: so many questions, evenly spaced over
    the file. Writes WORKDIR/squad/: scores.json (all records), and of this run predictions.json, nbest.json and for 2.0
    null_odds.json; and a section of WORKDIR/report.md. Raises `UserError` or `UsageError` before any training for
    whatever is wrong with the workdir or the files.
    """
    pretrained = load_pretrained(workdir)
    settings = squad_protocol(protocol, pretrained.model, pretrained.length, **changes)
    data = load_data(train, dev, version, train_rows, dev_rows)
    folder = pretrained.workdir / FOLDER
    folder.mkdir(exist_ok=True)
    with take_lock(folder, f"another process is scoring {workdir}; wait for it, its scores would be lost"):
        record = _run(pretrained, data, settings, seed, from_scratch)
        write_sections(pretrained.workdir / REPORT_FILE, {"SQuAD": squad_table(read_records(folder)).markdown()})
    return record


@dataclasses.dataclass(frozen=True)
class SquadData:
    """The questions to learn and those to answer."""

    train: Sequence[Question]
    dev: Sequence[Question]
    version: Version
    digest: str
    """Of both files."""
    notes: tuple[str, ...]
    """What is out of the ordinary about them."""


def load_data(
    train: str | Path, dev: str | Path, version: Version | None, train_rows: int | None, dev_rows: int | None
) -> SquadData:
    """Reads both files. Raises `UserError` for a broken one, `UsageError` where impossible questions are to be scored
    as version 1.1."""
    files = read_squad(train), read_squad(dev)
    learned, asked = _spaced(files[0].questions, train_rows), _spaced(files[1].questions, dev_rows)
    version = version or files[1].version
    if version == "1.1" and any(question.impossible for question in asked):
        raise UsageError(f"--version 1.1 has no impossible questions, and {dev} has; score it as 2.0")
    digest = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()[:12]
    return SquadData(learned, asked, version, digest, tuple(_notes(files, learned, asked, version)))


def _spaced(questions: Sequence[Question], rows: int | None) -> Sequence[Question]:
    if rows is None or rows >= len(questions):
        return questions
    return [questions[place * len(questions) // rows] for place in range(rows)]


def _notes(
    files: Sequence[Squad], learned: Sequence[Question], asked: Sequence[Question], version: Version
) -> list[str]:
    notes = [
        f"{file.path.name}: {len(file.misplaced)} questions have an answer that is not at its place in the context "
        f"(first {file.misplaced[0]}); such an answer is not learned from"
        for file in files
        if file.misplaced
    ]
    contexts = {question.context for question in learned}
    if shared := sum(question.context in contexts for question in asked):
        notes.append(f"{shared} of {len(asked)} dev questions are about a context of the training file")
    if version == "2.0" and not any(question.impossible for question in learned):
        notes.append("the training questions all have an answer: nothing teaches the model that there may be none")
    return notes


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: its data as batches want them."""

    objective: Spans
    protocol: SquadProtocol
    mesh: Mesh
    types: bool
    train: Sequence[WindowBucket]
    dev: Sequence[WindowBucket]
    windows: Sequence[Window]
    """Those of the dev questions."""
    passages: Sequence[Passage]
    """Of each dev question."""

    @property
    def steps(self) -> int:
        return self.protocol.epochs * sum(-(-len(bucket) // self.protocol.batch_size) for bucket in self.train)


def make_job(pretrained: Pretrained, data: SquadData, protocol: SquadProtocol, mesh: Mesh) -> Job:
    """Tokenizes. Raises `UserError` where no training question has an answer with a place."""
    types = pretrained.model.token_types >= 2
    shape = pretrained.tokenizer, protocol.length, protocol.stride, types
    learned, _ = make_windows(data.train, *shape, train=True)
    if not learned:
        raise UserError("no training question has an answer at its place in the context; give another file")
    windows, passages = make_windows(data.dev, *shape, train=False)
    pad = pretrained.tokenizer.pad
    return Job(
        objective=Spans(pretrained.model, protocol.head, protocol.loss),
        protocol=protocol,
        mesh=mesh,
        types=types,
        train=make_window_buckets(learned, data.train, pad, protocol.length),
        dev=make_window_buckets(windows, data.dev, pad, protocol.length),
        windows=windows,
        passages=passages,
    )


def _run(pretrained: Pretrained, data: SquadData, protocol: SquadProtocol, seed: int, from_scratch: bool) -> Record:
    folder = pretrained.workdir / FOLDER
    records = read_records(folder)
    mesh = make_mesh(MeshConfig())
    check_batch(protocol.batch_size, 1, mesh, "--batch-size")
    encoder, start = None, FROM_SCRATCH
    if not from_scratch:
        target = abstract_state(Spans(pretrained.model, protocol.head), optax.identity(), mesh).params
        encoder, start = restore_encoder(pretrained.workdir, target["encoder"])
    identity = {
        "task": f"SQuAD {data.version}",
        "start": start,
        **protocol.settings(),
        "seed": seed,
        "train_rows": len(data.train),
        "rows": len(data.dev),
        "data": data.digest,
    }
    if record := find_record(records, identity):
        print(f"this run is done; its scores are in {folder}")
        return record
    began = time.monotonic()
    job = make_job(pretrained, data, protocol, mesh)
    answers = answer(job, fine_tune(job, encoder, seed))
    result = score(data, answers, protocol)
    write_answers(folder, data, answers, THRESHOLDS[protocol.head])
    record = {
        **identity,
        **result,
        "train_windows": sum(map(len, job.train)),
        "dev_windows": len(job.windows),
        "steps": job.steps,
        "seconds": round(time.monotonic() - began, 1),
        "notes": list(data.notes),
    }
    write_records(folder, [*records, record])
    return record


def fine_tune(job: Job, encoder: Any | None, seed: int) -> Any:
    """Trains from `encoder` (None: from fresh weights); `seed` decides head, order and dropout. Returns parameters."""
    optimizer = job.protocol.make_optimizer(job.objective.model, job.steps)
    start = None if encoder is None else {"encoder": jax.tree.map(jnp.copy, encoder)}
    state = create_state(job.objective, optimizer, job.mesh, seed, params=start)
    batches = training_batches(job.train, job.protocol.batch_size, job.protocol.epochs, seed, job.types)
    terminal = Terminal(job.steps, 0, f"SQuAD seed {seed}")
    at = 0

    def on_step(step: int) -> None:
        nonlocal at
        at = step
        terminal.advance(step)

    try:
        state = fit(
            state,
            make_train_step(job.objective, optimizer, job.mesh),
            (put_batch(batch, job.mesh) for batch in batches),
            total_steps=job.steps,
            every=Every(log=-(-job.steps // LOGS)),
            on_step=on_step,
            on_log=lambda step, values: terminal.write("train", step, values),
        )
    except KeyboardInterrupt:
        terminal.say(f"stopped at step {at} of {job.steps}: nothing of this run is kept; the same line starts it anew")
        raise
    except UserError as error:
        what = str(error).partition(";")[0]
        raise UserError(f"{what}; lower --learning-rate ({job.protocol.learning_rate:g})") from error
    finally:
        terminal.close()
    return state.params


def answer(job: Job, params: Any) -> list[Answered]:
    """Answers of the dev questions, in file order."""
    beams: list[Beams | None] = [None] * len(job.windows)
    search = jit_forward(lambda params, batch: job.objective.search(params, batch, BEST))
    terminal = Terminal(len(job.windows), 0, "SQuAD dev windows")
    done = said = 0
    try:
        for index_B, batch in search_batches(job.dev, job.protocol.batch_size, job.types):
            found = jax.device_get(search(params, put_batch(batch, job.mesh)))
            for row, index in enumerate(index_B):
                beams[index] = Beams(*(leaf[row] for leaf in found))
            done += len(index_B)
            terminal.advance(done)
            if (done * LOGS) // len(job.windows) > said:
                said = (done * LOGS) // len(job.windows)
                terminal.say(f"SQuAD dev windows searched: {done} of {len(job.windows)}")
    except KeyboardInterrupt:
        terminal.say(f"stopped before the last answer: all {job.steps} steps of this run are lost with it")
        raise
    finally:
        terminal.close()
    return choose_answers(job.windows, beams, job.passages, job.protocol.head)


def score(data: SquadData, answers: Sequence[Answered], protocol: SquadProtocol) -> dict[str, Any]:
    """EM and F1 x 100 of the dev questions, "chance" beside them; of version 2.0 with the fixed threshold, and with the
    best one for each of both, which is found on these very questions."""
    raw = {question.id: answer.text for question, answer in zip(data.dev, answers, strict=True)}
    found: dict[str, Any] = {"split": "dev"}
    if data.version == "1.1":
        found |= summary(data.dev, score_answers(data.dev, raw, "1.1"))
    else:
        odds = {question.id: answer.null_odds for question, answer in zip(data.dev, answers, strict=True)}
        threshold = THRESHOLDS[protocol.head]
        found |= summary(data.dev, score_answers(data.dev, with_threshold(raw, odds, threshold), "2.0"))
        scores = score_answers(data.dev, raw, "2.0")
        best = {name: best_threshold(data.dev, raw, getattr(scores, name), odds) for name in ("exact", "f1")}
        found |= {"threshold": threshold} | {f"best_{name}": value for name, (value, _) in best.items()}
        found |= {f"best_{name}_threshold": value for name, (_, value) in best.items()}
    chance = summary(data.dev, score_answers(data.dev, chance_answers(data), data.version))
    return found | {"chance_exact": chance["exact"], "chance_f1": chance["f1"]}


def chance_answers(data: SquadData) -> dict[str, str]:
    """Version 1.1: a random run of words as long as a training answer. 2.0: nothing, which is the better guess."""
    if data.version == "2.0":
        return {question.id: "" for question in data.dev}
    lengths = [len(answer.text.split()) for question in data.train for answer in question.answers[:1]]
    rng = np.random.default_rng(0)
    return random_spans(data.dev, lengths, lambda below: int(rng.integers(below)))


def write_answers(folder: Path, data: SquadData, answers: Sequence[Answered], threshold: float) -> None:
    """predictions.json (id -> text, with the fixed threshold in 2.0), nbest.json, and for 2.0 null_odds.json, all as
    the official scripts read them."""
    ids = [question.id for question in data.dev]
    texts = {number: answer.text for number, answer in zip(ids, answers, strict=True)}
    if data.version == "2.0":
        odds = {number: answer.null_odds for number, answer in zip(ids, answers, strict=True)}
        texts = with_threshold(texts, odds, threshold)
        _write(folder / "null_odds.json", odds)
    else:
        (folder / "null_odds.json").unlink(missing_ok=True)
    _write(folder / "predictions.json", texts)
    _write(folder / "nbest.json", {number: nbest(answer) for number, answer in zip(ids, answers, strict=True)})


def _write(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
