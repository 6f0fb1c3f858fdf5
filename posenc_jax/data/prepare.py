"""Text to tokenizer and packed rows: `prepare`, in two passes over the source.

The first pass counts documents, finds duplicates and trains the tokenizer on a sample. The second cuts the documents
into blocks, and worker processes make one shard of each. Blocks depend on the corpus alone, so the folder's bytes do
not depend on the number of workers; what is finished is noted in OUT/unfinished, and the same call goes on from there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posenc_jax.data.packing import PACKINGS
from posenc_jax.data.plan import Plan, block_characters, blocks, scan
from posenc_jax.data.progress import Progress
from posenc_jax.data.rows import (
    INFO_FILE,
    SPLITS,
    TOKENIZER_FILE,
    RowsInfo,
    Shard,
    SplitInfo,
    read_rows_info,
    write_rows_info,
    write_whole,
)  # fmt: skip
from posenc_jax.data.shards import ShardJob, ShardMaker, read_note, start_worker, work
from posenc_jax.data.sources import source_identity, source_list, words_of_packages
from posenc_jax.data.tokenizer import Tokenizer, train_tokenizer
from posenc_jax.errors import UsageError, UserError


def prepare(
    source: str | Sequence[str],
    out: str | Path,
    *,
    length: int = 128,
    packing: Literal["full_sentences", "documents", "document_per_row"] = "full_sentences",
    vocab_size: int = 8192,
    tokenizer_kind: Literal["unigram", "bpe"] = "unigram",
    lowercase: bool = True,
    tokenizer: str | Path | None = None,
    holdout: float = 0.02,
    workers: int | None = None,
    shard_characters: int | None = None,
    progress: Progress | None = None,
) -> RowsInfo:
    """Writes tokenizer, rows and rows.json to the folder `out`; returns what it holds.

    Every 1/`holdout`-th document is held out for validation, of a single document its end. `tokenizer` takes a trained
    tokenizer.model in place of a new one. `workers` None takes every processor. Called again with the same settings it
    goes on where it stood, or returns at once when all is done.

    Raises `UsageError` for settings that cannot be meant or differ from those `out` was begun with, `UserError` for bad
    text or a disk that does not take the rows.
    """
    out, report = Path(out), progress or (lambda act, done, total: None)
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    _check(length, packing, tokenizer_kind, holdout, vocab_size, workers, shard_characters or 1)
    given = Tokenizer.load(tokenizer) if tokenizer else None
    settings = {
        "source": " ".join(source_list(source)),
        "source_files": hashlib.sha256(json.dumps(source_identity(source), sort_keys=True).encode()).hexdigest(),
        "length": length,
        "packing": packing,
        "vocab_size": given.vocab_size if given else vocab_size,
        "tokenizer": given.sha256 if given else tokenizer_kind,
        "lowercase": None if given else lowercase,
        "holdout": holdout,
        "shard_characters": shard_characters,
    }
    if (out / INFO_FILE).exists():
        info = read_rows_info(out)
        if settings["source"] == "docstrings:":  # a package installed since then is no wish for other text
            settings["source_files"] = info.settings.get("source_files")
        _refuse_other_settings(info.settings, settings, out)
        shutil.rmtree(out / "unfinished", ignore_errors=True)  # of a run killed in its last moment
        return info
    with _unfinished(out, settings) as state:
        plan, model = _first_pass(source, out, state, settings, given, report)
        size = shard_characters or block_characters(plan.characters)
        jobs = (ShardJob(out, state, *block) for block in blocks(source, plan, size))
        maker = ShardMaker(model, packing, length)
        workers = max(1, min(workers, plan.characters // size))
        notes = sorted(_notes(jobs, maker, plan.characters, workers, report), key=lambda note: note["file"])
        statistics = _statistics(notes, plan, length) | {"words_of_packages": words_of_packages(source)}
        info = RowsInfo(
            out, length, packing, model.vocab_size, model.sha256, **_splits(notes),
            statistics=statistics, source=settings["source"], settings=settings,
        )  # fmt: skip
        write_rows_info(info)
        shutil.rmtree(state)
    return info


def _check(length: int, packing: str, kind: str, holdout: float, *at_least_one: int) -> None:
    if length < 8:
        raise UsageError(f"length={length} is too short; the least is 8")
    if packing not in PACKINGS:
        raise UsageError(f"packing={packing!r} is not one of {', '.join(PACKINGS)}")
    if kind not in ("unigram", "bpe"):
        raise UsageError(f"tokenizer_kind={kind!r} is not one of unigram, bpe")
    if not 0 < holdout <= 0.5:
        raise UsageError(f"holdout={holdout} must be above 0 and at most 0.5")
    if min(at_least_one) < 1:
        raise UsageError(f"vocab_size, workers and shard_characters must be at least 1, not {min(at_least_one)}")


@contextlib.contextmanager
def _unfinished(out: Path, settings: dict[str, Any]) -> Iterator[Path]:
    """Holds OUT/unfinished against a second process, and refuses a folder begun with other settings or by others."""
    state = out / "unfinished"
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder for the rows")
    if out.is_dir() and any(out.iterdir()) and not state.is_dir():
        raise UserError(f"{out} is not empty and was not begun by `prepare`; name a new folder for the rows")
    try:
        state.mkdir(parents=True, exist_ok=True)
        with open(state / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (state / "settings.json").is_file():
                begun = json.loads((state / "settings.json").read_text("utf-8"))
                _refuse_other_settings(begun, settings, out)
            yield state
    except BlockingIOError as error:
        raise UserError(f"another `prepare` is writing to {out}") from error
    except BrokenPipeError:  # of the terminal, not of the folder
        raise
    except OSError as error:
        raise UserError(f"cannot write {error.filename or out}: {error.strerror or error}") from error


def _refuse_other_settings(old: dict[str, Any], new: dict[str, Any], out: Path) -> None:
    changed = [name for name in new if old.get(name) != new[name]]
    if changed == ["source_files"]:
        raise UsageError(f"the text of {new['source']} has changed since {out} was begun; prepare into a new folder")
    if changed:
        lines = ", ".join(f"{name} {old.get(name)!r} -> {new[name]!r}" for name in changed if name != "source_files")
        raise UsageError(f"{out} was begun with other settings ({lines}); use those, or a new folder")


def _first_pass(
    source: str | Sequence[str],
    out: Path,
    state: Path,
    settings: dict[str, Any],
    given: Tokenizer | None,
    report: Progress,
) -> tuple[Plan, Tokenizer]:
    plan_file, model_file = state / "plan.npz", out / TOKENIZER_FILE
    if plan_file.is_file():  # written after the tokenizer
        return Plan.load(plan_file), Tokenizer.load(model_file)
    plan, sample = scan(source, settings["holdout"], report)
    if given:
        write_whole(model_file, given.proto)
        model = given
    else:
        report("training the tokenizer", 0, None)
        model = train_tokenizer(
            sample, model_file, settings["vocab_size"], settings["tokenizer"], settings["lowercase"]
        )
    write_whole(state / "settings.json", json.dumps(settings))  # from here on the folder is theirs
    plan.save(plan_file)
    return plan, model


def _notes(
    jobs: Iterable[ShardJob], maker: ShardMaker, characters: int, workers: int, report: Progress
) -> list[dict[str, Any]]:
    """Makes the shards that are not yet made; the notes of all. At most two blocks a worker are in memory."""
    notes: list[dict[str, Any]] = []
    done = 0
    for note in _make_here(jobs, maker) if workers == 1 else _make_in_workers(jobs, maker, workers):
        notes.append(note)
        done += note["characters"]
        report("tokenizing and packing", done, characters)
    return notes


def _make_here(jobs: Iterable[ShardJob], maker: ShardMaker) -> Iterator[dict[str, Any]]:
    for job in jobs:
        yield read_note(job) or maker(job)


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """A process started meanwhile never sees Ctrl-C, not even before it can say so itself; here it comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _make_in_workers(jobs: Iterable[ShardJob], maker: ShardMaker, workers: int) -> Iterator[dict[str, Any]]:
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=start_worker, initargs=(maker,))
    running: set[Future] = set()
    try:
        for job in jobs:
            if note := read_note(job):
                yield note
                continue
            with _ctrl_c_blocked():
                running.add(pool.submit(work, job))
            if len(running) >= 2 * workers:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        yield from (future.result() for future in running)
    except BrokenProcessPool as error:
        raise UserError("a worker process died, perhaps for want of memory; run again, it goes on from here") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# ---- what rows.json says ------------------------------------------------------------------------------------------


def _splits(notes: list[dict[str, Any]]) -> dict[str, SplitInfo]:
    splits = {}
    for split in SPLITS:
        mine = [note for note in notes if note["split"] == split]
        shards = tuple(Shard(note["file"], note["rows"], note["bytes"]) for note in mine)
        entropy = _entropy(np.sum([note["counts"] for note in mine], axis=0)) if split == "validation" else None
        splits[split] = SplitInfo(_total(mine, "rows"), _total(mine, "tokens"), shards, entropy)
        if not splits[split].rows:
            raise UserError(f"no {split} row is left; the text is too short to hold some of it out")
    return splits


def _statistics(notes: list[dict[str, Any]], plan: Plan, length: int) -> dict[str, Any]:
    totals = {key: _total(notes, key) for key in ("documents", "words", "characters", "tokens", "rows")}
    return {
        **totals,
        "held_out_documents": _total([note for note in notes if note["split"] == "validation"], "documents"),
        "fill": totals["tokens"] / max(1, totals["rows"] * length),
        "unknown_rate": _total(notes, "unknown") / max(1, _total(notes, "text_tokens")),
        "skipped": plan.skipped,
    }


def _total(notes: list[dict[str, Any]], key: str) -> int:
    return sum(note[key] for note in notes)


def _entropy(counts_V: np.ndarray) -> float:
    """Nats a token of a unigram distribution."""
    shares = counts_V[counts_V > 0] / max(counts_V.sum(), 1)
    return float(-(shares * np.log(shares)).sum())
