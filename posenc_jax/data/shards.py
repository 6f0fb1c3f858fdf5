"""One block of documents to one shard: what a worker process of `prepare` does.

A shard is a pure function of its block, the tokenizer and the packing, so neither the number of workers nor an
interruption shows in the bytes. It is written under another name, flushed, renamed, and only then noted in a side file:
a shard that is noted is whole.
"""

import dataclasses
import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import chain
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data.packing import PACKINGS, Document
from posenc_jax.data.rows import encode_row, write_whole
from posenc_jax.data.sentences import split_sentences
from posenc_jax.data.tokenizer import SPECIALS, UNK, Tokenizer
from posenc_jax.errors import UserError

SENTENCES_A_CALL = 4096  # sentences handed to sentencepiece at once; bounds memory, the call itself costs little


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """A block of documents and where its rows go."""

    out: Path
    state: Path
    split: str
    number: int
    texts: list[str] = dataclasses.field(repr=False)

    @property
    def file(self) -> Path:
        return self.out / f"{self.split}-{self.number:05d}.arrayrecord"

    @property
    def note(self) -> Path:
        return self.state / f"{self.split}-{self.number:05d}.json"


@dataclasses.dataclass(frozen=True)
class ShardMaker:
    """What is the same for all shards of a run."""

    tokenizer: Tokenizer
    packing: str
    length: int

    def __call__(self, job: ShardJob) -> dict[str, Any]:
        """Writes the shard and its note; returns the note. Raises `UserError` when the disk does not take them."""
        part = job.state / (job.file.name + ".part")
        try:
            note = self._write(part, job.texts, histogram=job.split == "validation")
            note |= {"split": job.split, "file": job.file.name, "bytes": part.stat().st_size}
            os.replace(part, job.file)
            write_whole(job.note, json.dumps(note))
        except (OSError, RuntimeError) as error:  # the ArrayRecord writer tells of a full disk by a RuntimeError
            part.unlink(missing_ok=True)
            raise UserError(f"cannot write {job.file}: {getattr(error, 'strerror', None) or error}") from error
        return note

    def _write(self, part: Path, texts: list[str], histogram: bool) -> dict[str, Any]:
        from array_record.python import array_record_module

        rows = tokens = 0
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        writer = array_record_module.ArrayRecordWriter(str(part), "group_size:1")
        for row, lengths in PACKINGS[self.packing](self._documents(texts, counts), self.length):
            writer.write(encode_row(row, lengths))
            rows += 1
            tokens += len(row)
        writer.close()
        flush_to_disk(part)
        reader = array_record_module.ArrayRecordReader(str(part))
        if reader.num_records() != rows:
            raise RuntimeError(f"{reader.num_records()} of {rows} rows could be read back")
        reader.close()
        note = {
            "documents": len(texts),
            "words": sum(len(text.split()) for text in texts),
            "characters": sum(map(len, texts)),
            "rows": rows,
            "tokens": tokens,
            "text_tokens": int(counts.sum()),
            "unknown": int(counts[UNK]),
        }
        return note | ({"counts": counts[len(SPECIALS) :].tolist()} if histogram else {})

    def _documents(self, texts: list[str], counts: np.ndarray) -> Iterator[Document]:
        """Each text's sentences as ids; adds to `counts` [V] how often each id occurred."""
        waiting: list[list[str]] = []
        sentences = 0
        for number, text in enumerate(texts):
            waiting.append(split_sentences(text))
            sentences += len(waiting[-1])
            if sentences >= SENTENCES_A_CALL or number == len(texts) - 1:
                encoded = self.tokenizer.encode_batch([sentence for document in waiting for sentence in document])
                flat = np.fromiter(chain.from_iterable(encoded), np.int32)
                counts += np.bincount(flat, minlength=len(counts))
                ids = iter(encoded)
                yield from ([next(ids) for _ in document] for document in waiting)
                waiting, sentences = [], 0


def read_note(job: ShardJob) -> dict[str, Any] | None:
    """The note of a shard that an earlier run finished, or None."""
    try:
        note = json.loads(job.note.read_text("utf-8"))
        return note if job.file.stat().st_size == note["bytes"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def flush_to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- in a worker process ------------------------------------------------------------------------------------------

_maker: ShardMaker | None = None


def start_worker(maker: ShardMaker) -> None:
    """Keeps the tokenizer for the process's life; Ctrl-C is the parent's affair, and its death is ours as well."""
    global _maker
    _maker = maker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def work(job: ShardJob) -> dict[str, Any]:
    assert _maker is not None
    return _maker(job)


def _die_with_parent() -> None:
    parent_process().join()
    os._exit(1)
