"""The leaderboard's zip: what is in it, from which runs, and what keeps it from being written."""

import io
import zipfile

import numpy as np
import pytest

from posenc_jax.data.tasks import GLUE_TASKS, TASKS
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.glue.scores import PREDICTIONS, write_predictions, write_record
from posenc_jax.evaluation.glue.submit import HEADER, SHEETS, check_submission, submission_table, submit
from tests.evaluation.glue import score_records

ROWS = {sheet.split if sheet.task == "MNLI" else sheet.task: sheet.rows for sheet in SHEETS}


def answers(task, rng):
    """What a run of the task answers, by test split: every class (or score) at least once."""
    spec = TASKS[task]
    splits = ("test_matched", "test_mismatched", "AX") if task == "MNLI" else ("test",)
    found = {}
    for split in splits:
        count = ROWS[split] if task == "MNLI" else ROWS[task]
        if spec.kind == "regression":
            values = rng.uniform(-0.5, 5.5, count)
            values[:3] = -0.5, 5.5, 2.34567
        else:
            values = np.arange(count) * 7 // 3 % len(spec.labels)
        found[split] = values.astype(np.float32)
    return found


def record(workdir, task, number, score, found=None, **more):
    name = f"{task}-{number}"
    base = score_records.record(task, score, seed=number, rate=1e-4, protocol="quick", start="step 20 (ab)")
    write_record(workdir, base | {"id": name} | more)
    if found is not None:
        write_predictions(workdir, name, found)
    return name


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("full")
    rng = np.random.default_rng(0)
    for task in GLUE_TASKS:
        record(workdir, task, 0, 0.5, answers(task, rng))
    return workdir


def sheets(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}


def test_the_zip_holds_the_eleven_files_with_labels_by_name(full, tmp_path):
    submission = submit(full, tmp_path / "new" / "glue.zip")
    found = sheets(submission.path)
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX".split()
    assert list(found) == [f"{name}.tsv" for name in names] == [f"{name}.tsv" for name in submission.runs]
    counts = [1063, 1821, 1725, 1379, 390965, 9796, 9847, 5463, 3000, 146, 1104]
    assert [len(lines) - 1 for lines in found.values()] == counts
    words = {}
    for name, (head, *rows) in found.items():
        assert head == HEADER
        index, words[name] = zip(*(row.split("\t") for row in rows), strict=True)
        assert list(index) == [str(n) for n in range(len(rows))]
    assert words["STS-B.tsv"][:3] == ("0.000", "5.000", "2.346")
    assert all(0 <= float(word) <= 5 for word in words["STS-B.tsv"])
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"):
        assert set(words[name]) == {"entailment", "neutral", "contradiction"}
    for name in ("QNLI.tsv", "RTE.tsv"):
        assert set(words[name]) == {"entailment", "not_entailment"}
    for name in ("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "QQP.tsv", "WNLI.tsv"):
        assert set(words[name]) == {"0", "1"}
    with np.load(full / PREDICTIONS / "RTE-0.npz") as saved:
        assert words["RTE.tsv"] == tuple(TASKS["RTE"].labels[int(value)] for value in saved["test"])
    assert not submission.missing and not submission.notes
    assert check_submission(submission.path) == dict(zip(found, counts, strict=True))
    assert len(submission_table(submission).rows) == 11


def constant(task, value):
    return {"test": np.full(ROWS[task], value, np.float32)}


def test_the_same_answers_make_the_same_bytes(tmp_path):
    record(tmp_path, "RTE", 0, 0.6, answers("RTE", None))
    first, second = (submit(tmp_path, tmp_path / name, partial=True).path.read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second


def test_the_best_dev_score_is_taken_and_named(tmp_path):
    for number, score in enumerate((0.6, 0.8, 0.7)):
        record(tmp_path, "RTE", number, score, constant("RTE", number % 2))
    submission = submit(tmp_path, tmp_path / "glue.zip", partial=True)
    assert submission.runs["RTE"]["id"] == "RTE-1"
    assert sheets(submission.path)["RTE.tsv"][1] == "0\tentailment"
    assert submission.notes == ("RTE: every answer is entailment",)
    (row,) = submission_table(submission).rows
    assert "80.00" in row and "quick, learning rate 0.0001, seed 1" in row


def test_a_better_run_without_answers_is_told_of_and_a_failed_one_does_not_count(tmp_path):
    record(tmp_path, "WNLI", 0, 0.9)
    record(tmp_path, "WNLI", 1, 0.5, answers("WNLI", None))
    record(tmp_path, "WNLI", 2, 0.99, answers("WNLI", None), failed="loss is not finite")
    submission = submit(tmp_path, tmp_path / "glue.zip", partial=True)
    assert submission.runs["WNLI"]["id"] == "WNLI-1"
    assert "better dev score 90.00" in submission.notes[0]


def test_a_protocol_narrows_the_choice(tmp_path):
    record(tmp_path, "WNLI", 0, 0.9, answers("WNLI", None))
    record(tmp_path, "WNLI", 1, 0.5, answers("WNLI", None), protocol="tupe",
           settings={"protocol": "tupe, 2 epochs", "metrics": ["accuracy"]})  # fmt: skip
    out = tmp_path / "glue.zip"
    for name in ("tupe", "tupe, 2 epochs"):
        assert submit(tmp_path, out, protocol=name, partial=True).runs["WNLI"]["seed"] == 1
    with pytest.raises(UserError, match="no run of protocol 'electra'; it has 'quick', 'tupe, 2 epochs'"):
        submit(tmp_path, out, protocol="electra", partial=True)


def test_different_weights_in_one_submission_are_told_of(tmp_path):
    record(tmp_path, "WNLI", 0, 0.9, answers("WNLI", None))
    record(tmp_path, "RTE", 0, 0.9, answers("RTE", None), start="from scratch")
    (note,) = submit(tmp_path, tmp_path / "glue.zip", partial=True).notes
    assert "from scratch, step 20 (ab)" in note


def test_missing_tasks_are_named_and_refused_unless_partial(tmp_path):
    out = tmp_path / "glue.zip"
    record(tmp_path, "WNLI", 0, 0.9, answers("WNLI", None))
    record(tmp_path, "RTE", 0, 0.9)
    with pytest.raises(UserError) as caught:
        submit(tmp_path, out)
    message = str(caught.value)
    assert "CoLA (no run of CoLA)" in message and "RTE (its run has no answers to test)" in message
    assert "--partial" in message and "WNLI" not in message.replace(str(tmp_path), "")
    assert not out.exists()
    submission = submit(tmp_path, out, partial=True)
    assert list(sheets(out)) == ["WNLI.tsv"] and len(submission.missing) == 10


def test_nothing_at_all_is_refused_even_if_partial(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        submit(tmp_path / "nowhere", tmp_path / "glue.zip", partial=True)
    with pytest.raises(UserError, match=r"has no scores; run `glue .* --test` first"):
        submit(tmp_path, tmp_path / "glue.zip", partial=True)
    record(tmp_path, "RTE", 0, 0.9)
    with pytest.raises(UserError, match="no answers for"):
        submit(tmp_path, tmp_path / "glue.zip", partial=True)
    with pytest.raises(UsageError, match="is a folder"):
        submit(tmp_path, tmp_path)
    assert not (tmp_path / "glue.zip").exists()


@pytest.mark.parametrize(
    ("task", "values", "says"),
    [
        ("RTE", np.zeros(2999), ["(2999,)", "RTE has 3000 rows"]),
        ("RTE", np.full(3000, np.nan), ["row 0", "nan"]),
        ("RTE", np.where(np.arange(3000) == 5, 2.0, 1.0), ["row 5", "2"]),
        ("RTE", np.where(np.arange(3000) == 7, 0.5, 1.0), ["row 7", "0.5"]),
        ("RTE", np.zeros((3000, 2)), ["(3000, 2)"]),
        ("STS-B", np.full(1379, np.inf), ["row 0", "inf"]),
    ],
)
def test_answers_that_are_none_are_refused(tmp_path, task, values, says):
    name = record(tmp_path, task, 0, 0.9, {"test": values.astype(np.float32)})
    with pytest.raises(UserError) as caught:
        submit(tmp_path, tmp_path / "glue.zip", partial=True)
    for part in (*says, f"{name}.npz"):
        assert part in str(caught.value)
    assert not (tmp_path / "glue.zip").exists()


def test_a_damaged_file_of_answers_is_named(tmp_path):
    name = record(tmp_path, "RTE", 0, 0.9, answers("RTE", None))
    path = tmp_path / PREDICTIONS / f"{name}.npz"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{name}\.npz is damaged"):
            submit(tmp_path, tmp_path / "glue.zip", partial=True)


GOOD = [HEADER, *(f"{n}\t0" for n in range(146)), ""]


@pytest.mark.parametrize(
    ("name", "lines", "says"),
    [
        ("WNLI.tsv", [*GOOD[:-2], ""], "145 rows in place of 146"),
        ("WNLI.tsv", ["id\tlabel", *GOOD[1:]], "does not begin with"),
        ("WNLI.tsv", GOOD[:-1], "has no end"),
        ("WNLI.tsv", [HEADER, "1\t0", *GOOD[2:]], "line 2"),
        ("WNLI.tsv", [HEADER, "0\tentailment", *GOOD[2:]], "line 2"),
        ("WNLI.tsv", [HEADER, "0 0", *GOOD[2:]], "line 2"),
        ("wnli.tsv", GOOD, "holds wnli.tsv"),
    ],
)
def test_what_the_leaderboard_would_refuse_is_refused(name, lines, says):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "\n".join(lines))
    with pytest.raises(UserError, match=says):
        check_submission(file)
    with pytest.raises(UserError, match="no whole zip"):
        check_submission(io.BytesIO(file.getvalue()[:-30]))
