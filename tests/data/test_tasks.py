"""Task files: every row of a good one, and the file and line of whatever is wrong with a bad one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_jax.data.task_files import find_file, load_split
from posenc_jax.data.tasks import GLUE_TASKS, TASKS, Examples, Missing, column, find_task
from posenc_jax.errors import UsageError, UserError
from tests.real_data import DATA

GLUE = DATA / "glue"


def write(folder: Path, task: str, content: str | bytes, split: str = "dev") -> Path:
    path = folder / task / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(folder: Path, task: str, split: str = "dev") -> str:
    with pytest.raises(UserError) as caught:
        load_split(folder, TASKS[task], split)
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
    for folder, task in ((tmp_path / "nowhere", "SST-2"), (tmp_path, "SST-2"), (tmp_path, "RTE")):
        with pytest.raises(Missing):
            find_file(folder, TASKS[task], "dev")


def test_a_misspelt_task_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'SST-2'"):
        find_task("sst2")


def test_the_nine_tasks_and_what_a_table_calls_their_splits():
    assert set(GLUE_TASKS) == {"CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"}
    columns = [column(TASKS[name], split) for name in GLUE_TASKS for split in TASKS[name].dev_splits]
    assert columns == ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI"]
    assert [column(TASKS[name], split) for name in GLUE_TASKS for split in TASKS[name].test_splits] == columns
    assert TASKS["AX"].splits == ("AX",) and column(TASKS["AX"], "AX") == "AX"
    assert set(TASKS["AX"].labels) == set(TASKS["MNLI"].labels) == {"entailment", "neutral", "contradiction"}


@pytest.mark.parametrize("call", [load_split, find_file])
@pytest.mark.parametrize(("task", "split"), [("MNLI", "dev"), ("CoLA", "dev_matched"), ("AX", "train")])
def test_a_split_that_the_task_has_not_is_wrong_use(tmp_path, call, task, split):
    with pytest.raises(UsageError, match=f"{task} has no split '{split}'; it has {', '.join(TASKS[task].splits)}"):
        call(tmp_path, TASKS[task], split)


MNLI_HEADER = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
)


@pytest.mark.parametrize("raters", [1, 5])
def test_mnli_is_read_whatever_the_number_of_its_raters(tmp_path, raters):
    head = [*MNLI_HEADER.split(), "sentence1", "sentence2", *(f"label{n + 1}" for n in range(raters)), "gold_label"]
    names = ["neutral", "entailment", "contradiction"]
    rows = [[str(n), *"1234567", f"a {n}", f"b {n}", *["contradiction"] * raters, name] for n, name in enumerate(names)]
    write(tmp_path, "MNLI", "".join("\t".join(row) + "\n" for row in [head, *rows]), "dev_mismatched")
    examples = load_split(tmp_path, TASKS["MNLI"], "dev_mismatched")
    assert [TASKS["MNLI"].labels[i] for i in examples.labels] == names
    assert examples.texts_b == ["b 0", "b 1", "b 2"]


def test_rows_without_an_agreed_label_are_left_out_and_counted(tmp_path):
    rows = "a\tb\t-\nc\td\tneutral\ne\tf\t-\n"
    write(tmp_path, "MNLI", f"sentence1\tsentence2\tgold_label\n{rows}", "train")
    examples = load_split(tmp_path, TASKS["MNLI"], "train")
    assert examples.texts_a == ["c"] and examples.index == ["1"]
    assert examples.notes == ("train.tsv of MNLI: 2 rows without an agreed label ('-') left out",)
    write(tmp_path, "RTE", "sentence1\tsentence2\tlabel\na\tb\t-\n")
    assert "line 2 has the label '-'" in complaint(tmp_path, "RTE")


def qqp(lines: int) -> list[str]:
    return [f"{7 * n}\t{n}\t{n}\tfirst {n}\tsecond {n}\t{n % 2}" for n in range(lines)]


QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def test_qqp_lines_cut_in_two_are_left_out_and_counted_and_empty_questions_kept(tmp_path):
    lines = qqp(3000)
    lines[10] = "70\t10\t10\tfirst half of a question"
    lines.insert(11, "its second half\tsecond 10\t0")
    lines[500] = "1\t2\t3\t\tonly the second question\t0"
    write(tmp_path, "QQP", "\n".join([QQP_HEADER, *lines, ""]), "train")
    examples = load_split(tmp_path, TASKS["QQP"], "train")
    assert len(examples) == 2999 and len(examples.labels) == len(examples.index) == 2999
    assert examples.index[9:11] == ["63", "77"]
    assert "" in examples.texts_a and not any("half" in text for text in examples.texts_a)
    assert examples.notes == ("train.tsv of QQP: 2 lines cut short left out (the first is line 12)",)


def test_qqp_that_is_cut_in_many_places_or_at_its_end_is_refused(tmp_path):
    lines = qqp(1000)
    lines[5] = lines[70] = "id\tcut"
    write(tmp_path, "QQP", "\n".join([QQP_HEADER, *lines, ""]))
    message = complaint(tmp_path, "QQP")
    assert "2 of 1001 lines are cut short" in message and "line 7" in message and "fetch the file again" in message
    write(tmp_path, "QQP", "\n".join([QQP_HEADER, *qqp(3000), "7\t8"]))
    assert "line 3002 is cut short" in complaint(tmp_path, "QQP")
    write(tmp_path, "QQP", "\n".join([QQP_HEADER, *qqp(3000), "7\t8\t9\ta\tb\t0\t1", ""]))
    assert "line 3002 has a tab too many" in complaint(tmp_path, "QQP")


@pytest.mark.parametrize(
    ("task", "split", "content"),
    [
        ("CoLA", "test", "index\tsentence\n0\ta\n1\tb\n"),
        ("SST-2", "test", "index\tsentence\n0\ta\n1\tb\n"),
        ("MRPC", "test", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t5\t6\ta\tx\n1\t7\t8\tb\ty\n"),
        ("STS-B", "test", "index\tgenre\tsentence1\tsentence2\n0\tg\ta\tx\n1\tg\tb\ty\n"),
        ("QQP", "test", "id\tquestion1\tquestion2\n0\ta\tx\n1\tb\ty\n"),
        ("MNLI", "test_mismatched", "index\tgenre\tsentence1\tsentence2\n0\tg\ta\tx\n1\tg\tb\ty\n"),
        ("QNLI", "test", "index\tquestion\tsentence\n0\ta\tx\n1\tb\ty\n"),
        ("WNLI", "test", "index\tsentence1\tsentence2\n0\ta\tx\n1\tb\ty\n"),
    ],
)
def test_test_files_have_no_labels_and_their_ids_in_order(tmp_path, task, split, content):
    write(tmp_path, task, content, split)
    examples = load_split(tmp_path, TASKS[task], split)
    assert examples.labels is None and examples.index == ["0", "1"]
    assert examples.texts_a == ["a", "b"] and examples.texts_b in (None, ["x", "y"])
    write(tmp_path, task, content.replace("\n1\t", "\n2\t"), split)
    message = complaint(tmp_path, task, split)
    assert "line 3 has the id '2' where 1 is due" in message


@pytest.mark.parametrize("place", ["diagnostic/diagnostic.tsv", "AX/AX.tsv"])
def test_the_diagnostic_set_is_found_under_either_name(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir()
    path.write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    examples = load_split(tmp_path, TASKS["AX"], "AX")
    assert examples.labels is None and examples.texts_b == ["b"]


@pytest.mark.parametrize(
    ("task", "content", "says"),
    [
        ("SST-2", "index\tsentence\n0\ta\n", ["line 1 names no column 'label'", "test file without labels"]),
        ("CoLA", "index\tsentence\n0\ta\n", ["line 1 names the columns 'index', 'sentence'", "the test file?"]),
        ("RTE", "0\ta\tb\tentailment\n", ["line 1 names no column 'sentence1'", "header line missing?"]),
        ("RTE", "index\tsentence1\tsentence1\tlabel\n", ["'sentence1' more than once"]),
        ("CoLA", "source\tlabel\tmark\tsentence\ng\t1\t\ta\n", ["line 1 has the label 'label'"]),
        ("RTE", f"{'word ' * 50}\tsentence2\tlabel\n", ["line 1 names no column 'sentence1'", "wo...', 'sentence2'"]),
    ],
)
def test_the_wrong_file_is_told_as_such(tmp_path, task, content, says):
    path = write(tmp_path, task, content)
    message = complaint(tmp_path, task)
    assert str(path) in message
    for part in says:
        assert part in message


def test_the_id_column_is_kept_and_else_rows_are_numbered(tmp_path):
    write(tmp_path, "RTE", "index\tsentence1\tsentence2\tlabel\n9\ta\tb\tentailment\n4\ta\tb\tentailment\n")
    assert load_split(tmp_path, TASKS["RTE"], "dev").index == ["9", "4"]
    write(tmp_path, "SST-2", "sentence\tlabel\na\t1\nb\t0\n")
    assert load_split(tmp_path, TASKS["SST-2"], "dev").index == ["0", "1"]


def test_the_digest_is_of_all_that_is_learned_from():
    base = Examples(["a", "b"], ["c", "d"], np.array([0, 1], np.int32))
    others = [
        Examples(["a", "b"], ["c", "d"], np.array([1, 0], np.int32)),
        Examples(["ab", ""], ["c", "d"], base.labels),
        Examples(["a", "b", "c", "d"], None, base.labels),
        Examples(["a", "b"], ["c", "D"], base.labels),
        Examples(["a", "b"], ["c", "d"], None),
    ]
    digests = [examples.digest() for examples in (base, *others)]
    assert len(set(digests)) == len(digests) and all(len(digest) == 12 for digest in digests)
    assert Examples(["a", "b"], ["c", "d"], base.labels, index=["5", "6"]).digest() == digests[0]


TEXT = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.sampled_from(TASKS["MNLI"].labels)), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from(["\n", "\r\n"]))
def test_whatever_text_is_written_is_read_again(fuzz, rows, end):
    lines = ["sentence1\tsentence2\tgold_label", *("\t".join(row) for row in rows)]
    write(fuzz, "MNLI", end.join([*lines, ""]), "train")
    examples = load_split(fuzz, TASKS["MNLI"], "train")
    labels = [TASKS["MNLI"].labels[i] for i in examples.labels]
    assert list(zip(examples.texts_a, examples.texts_b, labels, strict=True)) == rows


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["MRPC", "QQP", "STS-B", "CoLA"]), st.data())
def test_a_file_damaged_anywhere_is_read_or_refused_by_name_and_never_a_traceback(fuzz, task, data):
    spec = TASKS[task]
    columns = spec.columns or (*spec.texts, spec.label)
    row = "\t".join("1" if name == spec.label else "text" for name in columns)
    content = "\n".join([*(() if spec.columns else ("\t".join(columns),)), row, row, row, ""]).encode()
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, min(len(content), start + 6)))
    patch = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"\t", b"\n", b"\r", b"\n\n", b'"'])))
    path = write(fuzz, task, content[:start] + patch + content[stop:])
    try:
        examples = load_split(fuzz, spec, "dev")
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert len(examples) == len(examples.labels) == len(examples.index) >= 1


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE data beside the repository")
@pytest.mark.parametrize(
    ("task", "split", "counts"),
    [
        ("CoLA", "train", (2528, 6023)),
        ("CoLA", "dev", (322, 721)),
        ("CoLA", "test", 1063),
        ("SST-2", "train", 67349),
        ("SST-2", "dev", 872),
        ("MRPC", "train", 3668),
        ("MRPC", "dev", 408),
        ("MRPC", "test", 1725),
        ("STS-B", "train", 5749),
        ("STS-B", "dev", 1500),
        ("STS-B", "test", 1379),
        ("QQP", "train", 20000),
        ("QQP", "dev", 3496),
        ("MNLI", "dev_matched", (3213, 3479, 3123)),
        ("QNLI", "dev", 5463),
        ("RTE", "train", 2490),
        ("RTE", "dev", 277),
        ("WNLI", "train", 635),
        ("WNLI", "dev", 71),
        ("WNLI", "test", 146),
    ],
)
def test_the_real_files_are_read_whole(task, split, counts):
    """Counts of rows, or of each class in the order of `TaskSpec.labels`; QQP's are those of its part here."""
    examples = load_split(GLUE, TASKS[task], split)
    assert len(examples) == len(examples.texts_a) == len(examples.index) == np.sum(counts)
    assert not examples.notes
    if split in TASKS[task].test_splits:
        assert examples.labels is None
    else:
        assert len(examples.labels) == len(examples)
        if isinstance(counts, tuple):
            assert np.bincount(examples.labels).tolist() == list(counts)
