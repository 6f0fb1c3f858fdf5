"""The rows `prepare` writes: what a record holds, and the folder's table of contents `rows.json`.

A record is little-endian uint32: the number of documents, the length of each, then the tokens of all of them, without
padding. 32 bits because the zeros of small ids cost nothing once ArrayRecord has compressed them (zstd), and so there
is one format for every vocabulary.
"""

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posenc_jax.errors import UserError
from posenc_jax.storage import is_remote

FORMAT = 1
INFO_FILE = "rows.json"
TOKENIZER_FILE = "tokenizer.model"
SPLITS = ("train", "validation")


def encode_row(tokens: Sequence[int], lengths: Sequence[int]) -> bytes:
    """The record of a row: `lengths` of the documents that lie one after the other in `tokens`."""
    if sum(lengths) != len(tokens) or not all(length > 0 for length in lengths):
        raise ValueError(f"document lengths {list(lengths)} do not add up to the row's {len(tokens)} tokens")
    return struct.pack(f"<{1 + len(lengths) + len(tokens)}I", len(lengths), *lengths, *tokens)


def decode_row(record: bytes, length: int) -> dict[str, np.ndarray]:
    """`tokens`, `segments` and `positions` of a record, int32 [length].

    `segments` counts the row's documents from 1, 0 is padding (at the end). `positions` restart at 0 in each document
    and are 0 at padding. Raises `UserError` for a record that is no row of at most `length` tokens.
    """
    numbers = np.frombuffer(record, "<u4").astype(np.int32) if len(record) % 4 == 0 else np.zeros(0, np.int32)
    documents = int(numbers[0]) if len(numbers) else -1
    lengths, tokens = numbers[1 : documents + 1], numbers[documents + 1 :]
    if documents < 0 or len(lengths) != documents or lengths.sum() != len(tokens):
        raise UserError("a record is not a packed row: its shard is damaged or was not written by `prepare`")
    if len(tokens) > length:
        raise UserError(f"a row of {len(tokens)} tokens does not fit length {length}; give the length it has")
    row = {name: np.zeros(length, np.int32) for name in ("tokens", "segments", "positions")}
    starts = np.cumsum(lengths) - lengths
    row["tokens"][: len(tokens)] = tokens
    row["segments"][: len(tokens)] = np.repeat(np.arange(1, documents + 1), lengths)
    row["positions"][: len(tokens)] = np.arange(len(tokens)) - np.repeat(starts, lengths)
    return row


@dataclasses.dataclass(frozen=True)
class Shard:
    """One ArrayRecord file."""

    file: str
    rows: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class SplitInfo:
    """The rows of one split. `tokens` counts the slots that are not padding, special tokens among them."""

    rows: int
    tokens: int
    shards: tuple[Shard, ...]
    unigram_entropy: float | None = None
    """Validation only: nats an ordinary token under the split's own unigram distribution."""


@dataclasses.dataclass(frozen=True)
class RowsInfo:
    """What a folder of rows holds (its rows.json)."""

    path: Path
    length: int
    packing: str
    vocab_size: int
    tokenizer_sha256: str
    train: SplitInfo
    validation: SplitInfo
    statistics: dict[str, Any]
    source: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What `prepare` was asked for; the same line again compares itself with it."""

    @property
    def tokenizer_path(self) -> Path:
        return self.path / TOKENIZER_FILE

    def shard_paths(self, split: Literal["train", "validation"]) -> list[Path]:
        return [self.path / shard.file for shard in getattr(self, split).shards]


def read_rows_info(path: str | Path) -> RowsInfo:
    """The table of contents of a folder written by `prepare`, all of whose files are there and its tokenizer its own.

    Raises `UserError` with the mend for a folder that is missing, unfinished, damaged, or whose tokenizer was swapped.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"there is no folder {path}; `python -m posenc_jax prepare --out {path}` makes it")
    if not (path / INFO_FILE).is_file():
        raise UserError(f"{path} has no {INFO_FILE}: `prepare` did not finish there; run the same `prepare` line again")
    try:
        settings = json.loads((path / INFO_FILE).read_text("utf-8"))
        if settings.pop("format") != FORMAT:
            raise UserError(f"{path / INFO_FILE} is of another version of posenc_jax; run `prepare` into a new folder")
        splits = {name: _split_info(settings.pop(name)) for name in SPLITS}
        info = RowsInfo(path=path, **splits, **settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / INFO_FILE} is damaged ({error}); run `prepare` into a new folder") from error
    _check_files(info)
    return info


def describe(info: RowsInfo) -> list[tuple[str, str]]:
    """What a person wants to know of the rows: names and values, ready to print."""
    of = info.statistics
    packages = sorted(of["words_of_packages"].items(), key=lambda item: -item[1])
    lines = [
        ("source", info.source),
        ("packages", ", ".join(f"{name} {words:,}" for name, words in packages)),
        ("documents", f"{of['documents']:,}, {of['held_out_documents']:,} of them held out"),
        ("words", f"{of['words']:,}"),
        ("tokens", f"{of['tokens']:,}"),
        ("rows", f"{info.train.rows:,} to train on, {info.validation.rows:,} to validate, of {info.length} slots"),
        ("shards", f"{len(info.train.shards)} and {len(info.validation.shards)}"),
        ("packing", f"{info.packing}, {of['fill']:.1%} of the slots filled"),
        ("vocabulary", f"{info.vocab_size:,} pieces, {of['unknown_rate']:.4%} of the tokens unknown"),
        ("unigram entropy", f"{info.validation.unigram_entropy:.3f} nats a held-out token"),
        *(("skipped", f"{count:,} {reason}") for reason, count in of["skipped"].items()),
    ]
    return [line for line in lines if line[1]]


def write_rows_info(info: RowsInfo) -> None:
    """Writes rows.json whole or not at all."""
    settings = {"format": FORMAT, **dataclasses.asdict(info)}
    del settings["path"], settings["train"]["unigram_entropy"]
    write_whole(info.path / INFO_FILE, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")


def write_whole(path: Path, content: str | bytes) -> None:
    """A file that is there is whole: written under another name, flushed to the disk, renamed."""
    content = content.encode("utf-8") if isinstance(content, str) else content
    if is_remote(path):  # an object of a bucket is whole or absent by itself
        path.write_bytes(content)
        return
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _split_info(settings: dict[str, Any]) -> SplitInfo:
    shards = tuple(Shard(**shard) for shard in settings.pop("shards"))
    return SplitInfo(shards=shards, **settings)


def _check_files(info: RowsInfo) -> None:
    for split in SPLITS:
        for file in info.shard_paths(split):
            if not file.is_file():
                raise UserError(f"{file} is missing; run the same `prepare` line into a new folder")
        for shard in getattr(info, split).shards:
            size = (info.path / shard.file).stat().st_size
            if size != shard.bytes:
                raise UserError(
                    f"{info.path / shard.file} is damaged: it has {size} bytes in place of {shard.bytes}; run the same "
                    "`prepare` line into a new folder"
                )
    if not info.tokenizer_path.is_file():
        raise UserError(f"{info.tokenizer_path} is missing; run the same `prepare` line into a new folder")
    found = hashlib.sha256(info.tokenizer_path.read_bytes()).hexdigest()
    if found != info.tokenizer_sha256:
        raise UserError(
            f"{info.tokenizer_path} is not the tokenizer these rows were made with (sha256 {found[:12]}, "
            f"{INFO_FILE} says {info.tokenizer_sha256[:12]}); put that back or prepare into a new folder"
        )
