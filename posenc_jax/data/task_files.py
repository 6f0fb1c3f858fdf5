"""Splits of a task read strictly: TSV files in the GLUE download layout, DIR/TASK/{train,dev,test}.tsv, or TFDS.

Files are read as tab-separated text without quoting (a double quote is a character like any other: GLUE fields hold
stray ones), with LF or CRLF line ends, with or without a byte order mark. Whatever else is wrong is told by file and
line.
"""

from collections.abc import Sequence
from pathlib import Path

from posenc_jax.data.tasks import Examples, Missing, TaskSpec, label_array, parse_label
from posenc_jax.data.tfds_tasks import load_tfds_split
from posenc_jax.errors import UsageError, UserError

MOST_CUT = 0.001
"""Share of lines of a `ragged` file that may be cut short; of QQP's 363,871 some twenty are."""
_IDS = ("index", "id")


def load_split(directory: str | Path, task: TaskSpec, split: str) -> Examples:
    """Reads a split whole: of the GLUE layout under `directory`, or of TFDS where that is "tfds" or "tfds:DATA_DIR".

    Lines of a `ragged` task that are cut short, and rows whose annotators did not agree (MNLI's label "-", of which the
    GLUE files have none), are left out; `Examples.notes` counts them. A test file's ids must be 0, 1, 2, ..., for the
    leaderboard knows rows by them. Raises `Missing` where there is no such file or dataset, and `UserError`: file,
    line, what is wrong with it.
    """
    _check_split(task, split)
    if (place := str(directory)) == "tfds" or place.startswith("tfds:"):
        return load_tfds_split(place.partition(":")[2], task, split)
    path = find_file(directory, task, split)
    lines, whole = _read_lines(path)
    header, first = _header(path, task, split, lines[0])
    labelled = split not in task.test_splits or task.label in header
    places = [_column(path, task, header, name) for name in (*task.texts, *((task.label,) if labelled else ()))]
    ids = next((header.index(name) for name in _IDS if name in header), None)
    index, rows, labels, cut, undecided = [], [], [], [], 0
    for number, line in enumerate(lines[first:], first + 1):
        fields = line.split("\t")
        if task.ragged and len(fields) < len(header) and (whole or number < len(lines)):
            cut.append(number)
            continue
        row = _fields(path, number, fields, header, places, task)
        if labelled and row[-1] == task.no_label:
            undecided += 1
            continue
        if labelled:
            labels.append(parse_label(f"{path} line {number}", row[-1], task))
        index.append(str(number - first - 1) if ids is None else fields[ids])
        if split in task.test_splits and index[-1] != str(number - first - 1):
            raise UserError(
                f"{path} line {number} has the id {index[-1]!r} where {number - first - 1} is due; the leaderboard "
                "knows rows by their id: put them in order"
            )
        rows.append(row)
    if not rows:
        raise UserError(f"{path} has {'a header line and no' if len(lines) == first else 'no usable'} rows")
    return Examples(
        texts_a=[row[0] for row in rows],
        texts_b=[row[1] for row in rows] if len(task.texts) == 2 else None,
        labels=label_array(labels, task) if labelled else None,
        index=index,
        notes=_notes(path, task, cut, undecided, len(lines)),
    )


def find_file(directory: str | Path, task: TaskSpec, split: str) -> Path:
    """The file of a split under the folder, or `Missing`, which says what is there instead."""
    _check_split(task, split)
    directory = Path(directory)
    paths = [directory / pattern.format(task=task.name, split=split) for pattern in task.files]
    for path in paths:
        if path.is_file():
            return path
    path, folder = paths[0], paths[0].parent
    if not directory.is_dir():
        raise Missing(f"there is no folder {directory}; give the one that holds {folder.name}/{path.name}")
    if not folder.is_dir():
        raise Missing(f"{directory} has no folder {folder.name}; it holds {_listing(directory)}")
    raise Missing(f"{folder} has no file {path.name}; it holds {_listing(folder)}")


def _check_split(task: TaskSpec, split: str) -> None:
    if split not in task.splits:
        raise UsageError(f"{task.name} has no split {split!r}; it has {', '.join(task.splits)}")


def _listing(folder: Path, most: int = 12) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "nothing"


def _read_lines(path: Path) -> tuple[list[str], bool]:
    """Lines without their ends, and whether the last one has its end. Only LF and CRLF end one: a field may hold a
    U+2028 or a form feed."""
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        raise UserError(f"{path} is empty")
    if b"\0" in raw:
        raise UserError(f"{path} line {_line_of(raw, raw.index(0))} holds a NUL byte; this is not a text file")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start]
        line = _line_of(raw, error.start)
        raise UserError(f"{path} line {line} is not UTF-8 (byte 0x{bad:02x}); save the file as UTF-8") from None
    return [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")], text.endswith("\n")


def _line_of(raw: bytes, offset: int) -> int:
    return raw.count(b"\n", 0, offset) + 1


def _header(path: Path, task: TaskSpec, split: str, line: str) -> tuple[Sequence[str], int]:
    """Names of the columns, and how many lines they take: none for CoLA's train and dev."""
    fields = line.split("\t")
    if not task.columns or split in task.test_splits:
        return fields, 1
    if len(fields) != len(task.columns) and set(task.texts) & set(fields):
        raise UserError(
            f"{path} line 1 names the columns {_quoted(fields)}, but a {split} file of {task.name} has no header line "
            f"and the columns {', '.join(task.columns)}; is this the test file?"
        )
    return task.columns, 0


def _column(path: Path, task: TaskSpec, header: Sequence[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise UserError(f"{path} line 1 names the column {name!r} more than once; it names {_quoted(header)}")
    if name == task.label:
        mend = "; a test file without labels cannot be learnt from or scored"
    elif not {*task.texts, task.label, *_IDS} & set(header):
        mend = "; is the header line missing?"
    else:
        mend = ""
    raise UserError(f"{path} line 1 names no column {name!r}; it names {_quoted(header)}{mend}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name if len(name) <= 40 else name[:37] + "...") for name in names)


def _fields(
    path: Path, number: int, fields: Sequence[str], header: Sequence[str], places: Sequence[int], task: TaskSpec
) -> list[str]:
    if len(fields) != len(header):
        what = "is cut short" if len(fields) < len(header) else "has a tab too many"
        raise UserError(f"{path} line {number} {what}: {len(header)} columns, but fields: {len(fields)}")
    row = [fields[place] for place in places]
    for name, text in zip(task.texts, row, strict=False):
        if not text.strip() and not task.ragged:
            raise UserError(f"{path} line {number} has no text in column {name!r}")
    return row


def _notes(path: Path, task: TaskSpec, cut: Sequence[int], undecided: int, lines: int) -> tuple[str, ...]:
    """What was left out. More than a few lines cut short are no oddity of the official file but damage."""
    notes = []
    if cut:
        which = f"the first is line {cut[0]}"
        if len(cut) > MOST_CUT * lines:
            raise UserError(f"{path}: {len(cut)} of {lines} lines are cut short, {which}; fetch the file again")
        notes.append(f"{path.name} of {task.name}: {len(cut)} lines cut short left out ({which})")
    if undecided:
        notes.append(
            f"{path.name} of {task.name}: {undecided} rows without an agreed label ({task.no_label!r}) left out"
        )
    return tuple(notes)
