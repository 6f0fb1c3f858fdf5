"""Sentence pairs with scores: one answer from every layout, what is missing said, what is wrong told by line."""

from pathlib import Path

import numpy as np
import pytest

from posenc_jax.data.sts import NAMES, SUBSETS, load_sts
from posenc_jax.errors import UserError
from tests.real_data import DATA

PAIRS = [("4.5", 'A "man" plays.', "A man sings."), ("0", "A dog.", "The  house ."), ("2.25", "I eat.", "We eat.")]


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def plain(folder: Path, name: str = "STS12", subset: str = "OnWN") -> Path:
    return write(folder / name / f"{subset}.test.tsv", *("\t".join(pair) for pair in PAIRS))


def senteval(folder: Path, scores=("4.5", "0", "", "2.25"), subset="surprise.OnWN", under="STS") -> Path:
    pairs = [*PAIRS[:2], ("", "Unscored one.", ""), PAIRS[2]]
    path = folder / under / "STS12-en-test"
    write(path / f"STS.input.{subset}.txt", *(f"{a}\t{b}\tsource" for _, a, b in pairs))
    write(path / f"STS.gs.{subset}.txt", *scores)
    return path


def stsb(folder: Path, under: str = "STSB", split: str = "test") -> Path:
    return write(folder / under / f"sts-{split}.csv", *("\t".join(["g", "f", "y", "1", *pair]) for pair in PAIRS))


def sick(folder: Path, scores=("4.5", "1", "2.25")) -> Path:
    rows = [f"{i}\t{a}\t{b}\t{s}\tNEUTRAL" for i, (s, (_, a, b)) in enumerate(zip(scores, PAIRS, strict=True))]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    return write(folder / "SICK" / "SICK_test_annotated.txt", header, *rows)


def only_part(folder: Path, split: str = "test"):
    (found,), _ = load_sts(folder, split)
    (part,) = found.parts
    return found, part


def assert_the_pairs(part) -> None:
    assert part.texts_a == [a for _, a, _ in PAIRS] and part.texts_b == [b for _, _, b in PAIRS]
    assert part.scores_N.tolist() == [4.5, 0, 2.25]


def test_every_layout_gives_the_same_pairs(tmp_path):
    plain(tmp_path / "a")
    senteval(tmp_path / "b")
    senteval(tmp_path / "c", subset="OnWN", under=".")
    sets = [only_part(tmp_path / folder) for folder in "abc"]
    for found, part in sets:
        assert (found.name, part.name) == ("STS12", "OnWN")
        assert_the_pairs(part)
    assert len({found.digest for found, _ in sets}) == 1
    for under in ("STSB", "STS/STSBenchmark", "stsbenchmark"):
        stsb(tmp_path / under, under)
        assert_the_pairs(only_part(tmp_path / under)[1])


def test_windows_line_ends_and_a_byte_order_mark_are_nothing(tmp_path):
    path = plain(tmp_path / "a")
    write(tmp_path / "b" / "STS12" / "OnWN.test.tsv", "\ufeff" + path.read_text().rstrip("\n").replace("\n", "\r\n"))
    assert only_part(tmp_path / "a")[0].digest == only_part(tmp_path / "b")[0].digest


def test_glue_has_the_dev_split(tmp_path):
    rows = ["\t".join([str(i), a, b, s]) for i, (s, a, b) in enumerate(PAIRS)]
    write(tmp_path / "STS-B" / "dev.tsv", "index\tsentence1\tsentence2\tscore", *rows)
    found, part = only_part(tmp_path, "dev")
    assert found.name == "STS-B"
    assert_the_pairs(part)
    stsb(tmp_path / "other", split="dev")
    assert only_part(tmp_path / "other", "dev")[0].digest == found.digest
    with pytest.raises(UserError, match=r"no test split.*STS-B: no sts-test\.csv"):
        load_sts(tmp_path, "test")


def test_what_is_missing_is_said(tmp_path):
    plain(tmp_path)
    (found,), absent = load_sts(tmp_path)
    assert found.missing == ("MSRpar", "MSRvid", "SMTeuroparl", "SMTnews")
    assert [*absent] == [name for name in NAMES if name != "STS12"]
    assert "SICK_test_annotated.txt" in absent["SICK-R"] and "STS14/*.test.tsv" in absent["STS14"]
    with pytest.raises(UserError, match="STS13: the task has no dev split"):
        load_sts(tmp_path, "dev")
    with pytest.raises(UserError, match="there is no folder"):
        load_sts(tmp_path / "nowhere")


def test_scores_of_sick_are_found_by_the_name_of_their_column(tmp_path):
    sick(tmp_path)
    assert only_part(tmp_path)[1].scores_N.tolist() == [4.5, 1, 2.25]


@pytest.mark.parametrize(
    "line, told",
    [
        ("4.0\tA man.", "line 2 has 2 of at least 3 fields"),
        ("", "line 2 has 1 of at least 3 fields"),
        ("5.1\tA man.\tA dog.", "line 2 has the score '5.1'; a number from 0 to 5"),
        ("-1\tA man.\tA dog.", "line 2 has the score '-1'"),
        ("nan\tA man.\tA dog.", "line 2 has the score 'nan'"),
        ("\tA man.\tA dog.", "line 2 has the score ''"),
        ("4\t \tA dog.", "line 2 has no first sentence"),
        ("4\tA man.\t", "line 2 has no second sentence"),
        ("4\tA m\0an.\tA dog.", "line 2 holds a zero byte"),
    ],
)
def test_a_bad_line_is_told(tmp_path, line, told):
    path = write(tmp_path / "STS12" / "OnWN.test.tsv", "\t".join(PAIRS[0]), line)
    with pytest.raises(UserError) as caught:
        load_sts(tmp_path)
    assert told in str(caught.value) and str(path) in str(caught.value)


def test_a_line_that_is_no_text_is_told(tmp_path):
    path = plain(tmp_path)
    path.write_bytes(path.read_bytes() + b"1\tcaf\xe9\tbar\n")
    with pytest.raises(UserError, match="line 4 is not UTF-8"):
        load_sts(tmp_path)


def test_an_empty_file_is_told(tmp_path):
    write(tmp_path / "STS12" / "OnWN.test.tsv")
    with pytest.raises(UserError, match="holds no scored pair"):
        load_sts(tmp_path)


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda path: (path / "STS.gs.OnWN.txt").unlink(), "has no scores beside it; put STS.gs.OnWN.txt there"),
        (
            lambda path: write(path / "STS.gs.OnWN.txt", "1", "2"),
            "STS.gs.OnWN.txt has 2 lines and STS.input.OnWN.txt 4",
        ),
        (lambda path: write(path / "STS.gs.OnWN.txt", "1", "9", "", ""), "STS.gs.OnWN.txt line 2 has the score '9'"),
        (lambda path: write(path / "STS.gs.OnWN.txt", "", "", "", ""), "holds no scored pair"),
    ],
)
def test_files_of_senteval_that_do_not_belong_together_are_told(tmp_path, change, told):
    change(senteval(tmp_path, ["1", "2", "", "4"], "OnWN"))
    with pytest.raises(UserError) as caught:
        load_sts(tmp_path)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda text: text.replace("relatedness_score", "score"), "line 1 names no column 'relatedness_score'"),
        (lambda text: text.replace("\t4.5\t", "\t0.5\t"), "line 2 has the score '0.5'; a number from 1 to 5"),
        (lambda text: text.replace("\t4.5\tNEUTRAL", ""), "line 2 has 3 of at least 4 fields"),
        (lambda text: "", "line 1 names no column"),
    ],
)
def test_a_bad_file_of_sick_is_told(tmp_path, change, told):
    path = sick(tmp_path)
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError) as caught:
        load_sts(tmp_path)
    assert told in str(caught.value)


def test_the_real_sets_have_their_published_sizes():
    """Cer et al. 2017 and Marelli et al. 2014; STS12 to STS16 as SentEval's README counts them, but for what lacks."""
    if not (DATA / "sts").is_dir():
        pytest.skip("the data are not here")
    sets, absent = load_sts(DATA / "sts")
    assert not absent
    sizes = {one.name: sum(map(len, one.parts)) for one in sets}
    known = {"STS-B": 1379, "SICK-R": 4927, "STS12": 3108 - 750, "STS13": 1500, "STS14": 3750, "STS15": 3000}
    assert sizes == {**known, "STS16": 1186}
    assert {one.name: one.missing for one in sets if one.missing} == {"STS12": ("MSRvid",), "STS13": ("SMT",)}
    assert all(np.ptp(part.scores_N) > 3 for one in sets for part in one.parts)
    assert all({part.name for part in one.parts} <= {*SUBSETS.get(one.name, ("test",))} for one in sets)
