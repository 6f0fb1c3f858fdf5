"""Where text comes from: a source is named by one string and read lazily, a document at a time.

docstrings:            the documentation of the Python packages installed here (docstrings:numpy,scipy picks some)
text:PATH              plain text; a blank line ends a document
jsonl:PATH[#KEY]       one JSON object a line; the document is under KEY ("text")
tfds:NAME[:SPLIT][#KEY]  a prepared TensorFlow dataset in ArrayRecord format, read without TensorFlow

PATH is a file, a folder (searched for .txt or .jsonl files) or a glob pattern; .gz and .zst are read as they are.
What is wrong with a file is told by file and line; what is normal to leave out is counted.
"""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.data.textfiles import numbered_lines
from posenc_jax.errors import UsageError, UserError

KINDS = ("docstrings", "text", "jsonl", "tfds")
MAX_TEXT_DOCUMENT = 10_000_000  # characters; a longer `text:` document is carried on as another, so memory is bounded
MIN_WORDS = 5
TOO_SHORT = f"documents of fewer than {MIN_WORDS} words"

_ENOUGH_WORDS = re.compile(rf"\W*+(?:\w++\W++){{{MIN_WORDS - 1}}}\w")
_ENDINGS = {"text": (".txt", ".text"), "jsonl": (".jsonl", ".ndjson")}
_TFDS = re.compile(r"(?P<name>[^:#]+(?::[\d.*]+)?)(?::(?P<split>[^#]+))?(?:#(?P<key>.+))?")


def documents(source: str | Sequence[str], skipped: Counter) -> Iterator[str]:
    """The documents of a source, or of several one after the other, as they lie in the files (sorted by name).

    Adds to `skipped` what is left out, by reason: documents of fewer than `MIN_WORDS` words. Raises `UsageError` for a
    source that cannot be meant and `UserError` for files that cannot be read, or when no document is left.
    """
    sources = source_list(source)
    found = 0
    for name in sources:
        for document in _open_source(name):
            if _ENOUGH_WORDS.match(document):
                found += 1
                yield document
            else:
                skipped[TOO_SHORT] += 1
    if not found:
        left_out = "; ".join(f"{count} {reason}" for reason, count in skipped.items()) or "nothing in it"
        raise UserError(f"{' and '.join(sources)} leaves no document to read: {left_out}")


def source_list(source: str | Sequence[str]) -> list[str]:
    return [source] if isinstance(source, str) else list(source)


def source_identity(source: str | Sequence[str]) -> dict[str, str]:
    """What the text is a function of: size and time of each file, version of each package or dataset."""
    identity: dict[str, str] = {}
    for name in source_list(source):
        kind, place, key = _parse(name)
        match kind:
            case "docstrings":
                from posenc_jax.data.docstrings import installed

                versions = installed(_packages(place))
                identity |= {f"docstrings:{package}": version for package, version in versions.items()}
            case "tfds":
                info = _tfds_builder(place).info
                identity[name] = f"{info.full_name} {info.splits.total_num_examples}"
            case _:
                for file in _files(kind, place):
                    status = file.stat()
                    identity[f"{kind}:{file}#{key}"] = f"{status.st_size} {status.st_mtime_ns}"
    return identity


def words_of_packages(source: str | Sequence[str]) -> dict[str, int]:
    """Words that each installed package gave to the `docstrings:` among the sources."""
    words: dict[str, int] = {}
    for name in source_list(source):
        kind, place, _ = _parse(name)
        if kind == "docstrings":
            from posenc_jax.data.docstrings import package_words

            words |= package_words(_packages(place))
    return words


def _open_source(source: str) -> Iterator[str]:
    kind, place, key = _parse(source)
    match kind:
        case "docstrings":
            from posenc_jax.data.docstrings import docstring_documents

            yield from docstring_documents(_packages(place))
        case "tfds":
            yield from _tfds_documents(place, key)
        case "text":
            for file in _files(kind, place):
                yield from _text_documents(file)
        case _:
            for file in _files(kind, place):
                yield from _jsonl_documents(file, key)


def _parse(source: str) -> tuple[str, str, str]:
    kind, colon, place = source.partition(":")
    if kind not in KINDS or not colon:
        mend = f"; for a file or folder write text:{source} or jsonl:{source}" if Path(source).exists() else ""
        raise UsageError(f"a source starts with {', '.join(f'{kind}:' for kind in KINDS)}, not with {source!r}{mend}")
    if not place and kind != "docstrings":
        raise UsageError(f"the source {source!r} names nothing after the colon")
    key = "text"
    if kind == "jsonl" and "#" in place:
        place, _, key = place.rpartition("#")
    elif kind == "tfds":
        key = _TFDS.fullmatch(place)["key"] or "text" if _TFDS.fullmatch(place) else "text"
    return kind, place, key


def _packages(place: str) -> tuple[str, ...]:
    return tuple(filter(None, (package.strip() for package in place.split(","))))


# ---- files --------------------------------------------------------------------------------------------------------


def _files(kind: str, place: str) -> list[Path]:
    """The files a PATH names, sorted; at least one, or `UserError`."""
    path = Path(place).expanduser()
    if path.is_dir():
        endings = tuple(ending + packed for ending in _ENDINGS[kind] for packed in ("", ".gz", ".zst"))
        files = [file for file in path.rglob("*") if file.name.endswith(endings) and file.is_file()]
        if not files:
            raise UserError(f"the folder {path} has no {' or '.join(_ENDINGS[kind])} file (.gz and .zst count)")
    elif path.exists():
        files = [path]
    else:
        files = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
        if not files:
            what = "no file matches" if glob.has_magic(place) else "there is no file or folder"
            raise UserError(f"{what} {path}")
    if all(file.is_file() and file.stat().st_size == 0 for file in files):
        raise UserError(f"{files[0]} is empty" if len(files) == 1 else f"all {len(files)} files of {path} are empty")
    return sorted(files)


def _text_documents(file: Path) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for _, line in numbered_lines(file):
        if not line.strip() or size > MAX_TEXT_DOCUMENT:
            if lines:
                yield "\n".join(lines)
            lines, size = [], 0
        if line.strip():
            lines.append(line)
            size += len(line)
    if lines:
        yield "\n".join(lines)


def _jsonl_documents(file: Path, key: str) -> Iterator[str]:
    for number, line in numbered_lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{file}, line {number} is not a JSON object but {type(record).__name__}")
        if key not in record:
            keys = ", ".join(map(repr, record))
            raise UserError(f"{file}, line {number} has no key {key!r} but {keys}; name one: jsonl:{file}#KEY")
        yield _as_text(record[key], f"{file}, line {number}, key {key!r}")


def _as_text(value: Any, place: str) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise UserError(f"{place} holds {type(value).__name__}, not text")
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")  # JSON can spell half a surrogate pair, UTF-8 cannot
    return value


# ---- TensorFlow datasets ------------------------------------------------------------------------------------------


def _tfds_builder(place: str) -> Any:
    """The builder of a dataset that is already on disk, under $TFDS_DATA_DIR or ~/tensorflow_datasets."""
    matched = _TFDS.fullmatch(place)
    if matched is None:
        raise UsageError(f"tfds:{place} is not tfds:NAME, tfds:NAME:SPLIT or tfds:NAME:SPLIT#KEY")
    import tensorflow_datasets as tfds

    folder = os.environ.get("TFDS_DATA_DIR")  # read here, for tfds itself reads it once at its import
    try:
        return tfds.builder(matched["name"], data_dir=folder, try_gcs=False)
    except Exception as error:  # tfds has a class of error for each way not to find a dataset
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        where = folder or "~/tensorflow_datasets"
        raise UserError(f"there is no dataset {matched['name']!r} in {where}: {reason}") from error


def _tfds_documents(place: str, key: str) -> Iterator[str]:
    matched, builder = _TFDS.fullmatch(place), _tfds_builder(place)
    split = matched["split"] or "train"
    if key not in builder.info.features:
        raise UserError(f"tfds:{place} has no feature {key!r} but {', '.join(map(repr, builder.info.features))}")
    try:
        rows = builder.as_data_source(split=split)
    except Exception as error:
        raise UserError(
            f"tfds:{place} cannot be read: {str(error).strip().splitlines()[0]}; it must lie in $TFDS_DATA_DIR in "
            f"ArrayRecord format (tfds build {matched['name']} --file_format=array_record)"
        ) from error
    for number in range(len(rows)):
        yield _as_text(rows[number][key], f"tfds:{place}, example {number}, feature {key!r}")
