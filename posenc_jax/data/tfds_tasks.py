"""GLUE tasks out of a prepared TensorFlow dataset (`glue/cola`, ...), read without TensorFlow.

Only what already lies on the disk, in ArrayRecord format, is read; nothing is downloaded. TFDS keeps examples in an
order of its own, so they are sorted by `idx`, the row number in the file they came from; labels go by the names the
dataset itself gives them. So the examples equal those of the TSV files.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.data.tasks import Examples, Missing, TaskSpec, label_array, parse_label
from posenc_jax.errors import UsageError, UserError


@dataclasses.dataclass(frozen=True)
class _Source:
    """What TFDS 4.9 calls a task's things (tensorflow_datasets/text/glue.py)."""

    config: str
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Names of the classes, in the order of `TaskSpec.labels`."""


_PAIR, _NLI = ("premise", "hypothesis"), ("contradiction", "entailment", "neutral")
_ENTAILED, _DUPLICATE = ("not_entailment", "entailment"), ("not_duplicate", "duplicate")
_SENTENCES, _QUESTIONS = ("sentence1", "sentence2"), ("question1", "question2")

SOURCES = {
    "CoLA": _Source("cola", ("sentence",), ("unacceptable", "acceptable")),
    "SST-2": _Source("sst2", ("sentence",), ("negative", "positive")),
    "MRPC": _Source("mrpc", _SENTENCES, ("not_equivalent", "equivalent")),
    "STS-B": _Source("stsb", _SENTENCES),
    "QQP": _Source("qqp", _QUESTIONS, _DUPLICATE),
    "MNLI": _Source("mnli", _PAIR, _NLI),
    "QNLI": _Source("qnli", ("question", "sentence"), _ENTAILED),
    "RTE": _Source("rte", _SENTENCES, _ENTAILED),
    "WNLI": _Source("wnli", _SENTENCES, _ENTAILED),
    "AX": _Source("ax", _PAIR, _NLI),
}
"""By our name of the task."""


def load_tfds_split(data_dir: str, task: TaskSpec, split: str) -> Examples:
    """A split of DATA_DIR/glue/CONFIG; DATA_DIR "" stands for $TFDS_DATA_DIR, or ~/tensorflow_datasets without it.

    Its examples are in the order of `idx`, which is also their `Examples.index`; a split whose labels are all -1 has
    none. Raises `Missing` when the dataset or split is not there, `UserError` when it is not as TFDS makes it, or
    has labels by other names.
    """
    if task.name not in SOURCES:
        raise UsageError(f"TFDS has no task {task.name}; it has {', '.join(SOURCES)}")
    source = SOURCES[task.name]
    builder = _open(data_dir, source)
    where = f"tfds:glue/{source.config}:{builder.info.version}"
    features = builder.info.features
    for name in (*source.texts, "label", "idx"):
        if name not in features:
            raise UserError(f"{where} has no feature {name!r} but {', '.join(map(repr, features))}")
    rows = _rows(builder, where, tfds_split(split))
    if not rows:
        raise UserError(f"{where}, split {tfds_split(split)}, has no examples; make it again")
    rows.sort(key=lambda row: int(row["idx"]))
    index = [str(int(row["idx"])) for row in rows]
    if len(set(index)) < len(index) or (split in task.test_splits and index[-1] != str(len(index) - 1)):
        raise UserError(f"{where}, split {tfds_split(split)}, has rows missing or twice, by their idx; make it again")
    texts = [[_text(row[name], where, row, name, task) for row in rows] for name in source.texts]
    return Examples(
        texts_a=texts[0],
        texts_b=texts[1] if len(texts) == 2 else None,
        labels=_labels(rows, features["label"], where, source, task, split),
        index=index,
    )


def tfds_split(split: str) -> str:
    """The name TFDS has for a split of ours: "dev_matched" is "validation_matched", "AX" is "test"."""
    return "test" if split == "AX" else split.replace("dev", "validation")


def _open(data_dir: str, source: _Source) -> Any:
    """The newest version on the disk. Opened from its folder: a builder made by name would want to download."""
    import tensorflow_datasets as tfds

    folder = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    place = folder / "glue" / source.config
    versions = [path for path in place.glob("*.*.*") if (path / "dataset_info.json").is_file()]
    if not versions:
        raise Missing(
            f"there is no dataset glue/{source.config} in {folder}; where there is a network, make it: "
            f"tfds build glue --config {source.config} --file_format array_record --data_dir {folder}"
        )
    newest = max(versions, key=lambda path: [int(part) if part.isdigit() else 0 for part in path.name.split(".")])
    try:
        return tfds.builder_from_directory(newest)
    except Exception as error:  # tfds has a class of error for each way not to read a dataset
        raise UserError(f"the dataset in {newest} cannot be read: {_first_line(error)}; make it again") from error


def _rows(builder: Any, where: str, split: str) -> list[dict[str, Any]]:
    if split not in builder.info.splits:
        raise Missing(f"{where} has no split {split}; it has {', '.join(builder.info.splits)}")
    try:
        source = builder.as_data_source(split=split)
        return source.__getitems__(list(range(len(source))))  # six times as fast as one by one
    except Exception as error:
        raise UserError(
            f"{where}, split {split}, cannot be read: {_first_line(error)}; it must be whole and in ArrayRecord format "
            "(tfds build glue --file_format array_record)"
        ) from error


def _text(value: Any, where: str, row: dict[str, Any], name: str, task: TaskSpec) -> str:
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise UserError(f"{where}, example {row['idx']}, feature {name!r} is not UTF-8") from None
    if not text.strip() and not task.ragged:
        raise UserError(f"{where}, example {row['idx']} has no text in feature {name!r}")
    return text


def _labels(
    rows: Sequence[dict[str, Any]], feature: Any, where: str, source: _Source, task: TaskSpec, split: str
) -> Any:
    values = [row["label"].item() if hasattr(row["label"], "item") else row["label"] for row in rows]
    if split in task.test_splits and all(value == -1 for value in values):
        return None
    for row, value in zip(rows, values, strict=True):
        if value == -1:
            raise UserError(f"{where}, example {row['idx']} of split {tfds_split(split)} has no label")
    if task.kind == "regression":
        examples = zip(rows, values, strict=True)
        return label_array([parse_label(f"{where}, example {row['idx']}", str(v), task) for row, v in examples], task)
    names = list(getattr(feature, "names", None) or ())
    if sorted(names) != sorted(source.labels):
        raise UserError(f"{where} calls its labels {names}, not {', '.join(map(repr, source.labels))}")
    return label_array([source.labels.index(names[value]) for value in values], task)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
