"""Task files: every row of a good one, and the file and line of whatever is wrong with a bad one."""

from pathlib import Path

import numpy as np
import pytest

from posenc_jax.data.tasks import TASKS, find_task, load_split
from posenc_jax.errors import UsageError, UserError

GLUE = Path(__file__).resolve().parents[3] / "shared" / "data" / "glue"


def write(folder: Path, task: str, content: str | bytes, split: str = "dev") -> Path:
    path = folder / task / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(folder: Path, task: str) -> str:
    with pytest.raises(UserError) as caught:
        load_split(folder, TASKS[task], "dev")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_labels_are_carried_by_name(tmp_path):
    write(tmp_path, "RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n")
    examples = load_split(tmp_path, TASKS["RTE"], "dev")
    assert [TASKS["RTE"].labels[i] for i in examples.labels] == ["entailment", "not_entailment"]


def test_columns_are_found_by_name_in_any_order(tmp_path):
    write(tmp_path, "SST-2", "label\tsentence\n1\tfine\n")
    examples = load_split(tmp_path, TASKS["SST-2"], "dev")
    assert (examples.texts_a, examples.texts_b, examples.labels.tolist()) == (["fine"], None, [1])


def test_cola_has_no_header(tmp_path):
    write(tmp_path, "CoLA", "gj04\t1\t\tHe went.\ngj04\t0\t*\tWent he the.\n")
    examples = load_split(tmp_path, TASKS["CoLA"], "dev")
    assert examples.texts_a == ["He went.", "Went he the."] and examples.labels.tolist() == [1, 0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("tail", ["", "end", "blank"])
def test_line_ends_and_byte_order_mark_change_nothing(tmp_path, end, mark, tail):
    text = end.join(["sentence\tlabel", "good\t1", "bad\t0"]) + {"": "", "end": end, "blank": end * 3}[tail]
    write(tmp_path, "SST-2", mark + text.encode())
    examples = load_split(tmp_path, TASKS["SST-2"], "dev")
    assert examples.texts_a == ["good", "bad"] and examples.labels.tolist() == [1, 0]


def test_quotes_and_odd_line_separators_stay_text(tmp_path):
    texts = ['"He said', 'a " b', '""', "next\u2028line", "form\x0cfeed", "nel\x85"]
    write(tmp_path, "SST-2", "sentence\tlabel\n" + "".join(f"{text}\t1\n" for text in texts))
    assert load_split(tmp_path, TASKS["SST-2"], "dev").texts_a == texts


def test_scores_are_numbers_of_the_scale(tmp_path):
    write(tmp_path, "STS-B", "sentence1\tsentence2\tscore\na\tb\t0\nc\td\t4.75\n")
    labels = load_split(tmp_path, TASKS["STS-B"], "dev").labels
    assert labels.dtype == np.float32 and labels.tolist() == [0.0, 4.75]


@pytest.mark.parametrize("score", ["5.1", "-0.5", "nan", "inf", "high", ""])
def test_a_score_off_the_scale_is_refused(tmp_path, score):
    path = write(tmp_path, "STS-B", f"sentence1\tsentence2\tscore\na\tb\t1\na\tb\t{score}\n")
    message = complaint(tmp_path, "STS-B")
    assert f"{path} line 3" in message and repr(score) in message and "0 to 5" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("sentence\tlabel\ngood\t2\n", ["line 2", "'2'", "'0', '1'"]),
        ("text\tlabel\ngood\t1\n", ["line 1", "'sentence'", "'text', 'label'"]),
        ("sentence\tlabel\ngood\t1\nhalf a li", ["line 3", "cut short", "2 columns", "fields: 1"]),
        ("sentence\tlabel\ngood\t1\n\nbad\t0\n", ["line 3", "cut short"]),
        ("sentence\tlabel\ngo\tod\t1\n", ["line 2", "tab too many", "fields: 3"]),
        ("sentence\tlabel\n \t1\n", ["line 2", "no text", "'sentence'"]),
        ("sentence\tlabel\n", ["no rows"]),
        ("", ["empty"]),
        ("\r\n\n", ["empty"]),
        (b"sentence\tlabel\ngood\t1\nb\0d\t0\n", ["line 3", "NUL"]),
        ("sentence\tlabel\ngood\t1\nna\u00efve\t0\n".encode("latin-1"), ["line 3", "UTF-8", "0xef"]),
    ],
)
def test_a_bad_file_is_told_by_file_and_line(tmp_path, content, says):
    path = write(tmp_path, "SST-2", content)
    message = complaint(tmp_path, "SST-2")
    assert str(path) in message
    for part in says:
        assert part in message


def test_what_is_missing_is_named_and_what_is_there_is_listed(tmp_path):
    assert "no folder" in complaint(tmp_path / "nowhere", "SST-2")
    assert "nothing" in complaint(tmp_path, "SST-2")
    write(tmp_path, "SST-2", "x", split="train")
    write(tmp_path, "CoLA", "x", split="train")
    assert "no file dev.tsv" in complaint(tmp_path, "SST-2") and "train.tsv" in complaint(tmp_path, "SST-2")
    assert "no folder RTE" in complaint(tmp_path, "RTE") and "CoLA, SST-2" in complaint(tmp_path, "RTE")


def test_a_misspelt_task_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'SST-2'"):
        find_task("sst2")


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE data beside the repository")
@pytest.mark.parametrize(
    ("task", "train", "dev"),
    [("CoLA", 8551, 1043), ("SST-2", 67349, 872), ("MRPC", 3668, 408), ("STS-B", 5749, 1500), ("RTE", 2490, 277)],
)
def test_the_real_files_are_read_whole(task, train, dev):
    assert [len(load_split(GLUE, TASKS[task], split)) for split in ("train", "dev")] == [train, dev]
