"""Word in Context: the word is where the file says, and what is wrong is told by file and line."""

from pathlib import Path

import pytest

from posenc_jax.data.wic import load_wic
from posenc_jax.errors import UserError
from tests.real_data import DATA

GOOD = "board\tN\t2-3\tRoom and board .\tHe nailed the boards across ."


def write(folder: Path, data: list[str], gold: list[str], split: str = "dev") -> Path:
    (folder / split).mkdir(parents=True, exist_ok=True)
    for kind, lines in (("data", data), ("gold", gold)):
        (folder / split / f"{split}.{kind}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_the_word_is_found_by_its_characters(tmp_path):
    split = load_wic(write(tmp_path, [GOOD, "a\tV\t0-1\ta b\tc a"], ["T", "F"]), "dev")
    assert len(split) == 2 and split.same_N.tolist() == [True, False]
    words = [[place.text[place.start : place.end] for place in side] for side in (split.places_a, split.places_b)]
    assert words == [["board", "a"], ["boards", "a"]]


def test_the_digest_is_of_both_files(tmp_path):
    one = load_wic(write(tmp_path / "a", [GOOD], ["T"]), "dev").digest
    assert load_wic(write(tmp_path / "b", [GOOD], ["T"]), "dev").digest == one
    assert load_wic(write(tmp_path / "c", [GOOD], ["F"]), "dev").digest != one


@pytest.mark.parametrize(
    "line, told",
    [
        ("board\tN\t2-3\tRoom and board .", "data.txt line 2 has 4 fields in place of 5"),
        ("", "data.txt line 2 has 1 fields"),
        (GOOD + "\tmore", "line 2 has 6 fields"),
        (GOOD.replace("2-3", "2"), "line 2 has the places '2'"),
        (GOOD.replace("2-3", "2--3"), "line 2 has the places '2--3'"),
        (GOOD.replace("2-3", "9" * 5000 + "-3"), "line 2 has the places '999"),
        (GOOD.replace("2-3", "4-3"), "line 2 has no token 4 in 'Room and board .'"),
        (GOOD.replace("2-3", "2-6"), "line 2 has no token 6"),
        (GOOD.replace("Room and", "Room  "), "line 2 has no token 2"),
    ],
)
def test_a_bad_line_is_told(tmp_path, line, told):
    with pytest.raises(UserError) as caught:
        load_wic(write(tmp_path, [GOOD, line], ["T", "F"]), "dev")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "gold, told",
    [
        (["T"], "dev.gold.txt has 1 lines and dev.data.txt 2"),
        (["T", "F", "T"], "dev.gold.txt has 3 lines and dev.data.txt 2"),
        (["T", "true"], "dev.gold.txt line 2 has the label 'true'; T or F"),
        (["T", ""], "line 2 has the label ''"),
    ],
)
def test_labels_that_do_not_fit_are_told(tmp_path, gold, told):
    with pytest.raises(UserError) as caught:
        load_wic(write(tmp_path, [GOOD, GOOD], gold), "dev")
    assert told in str(caught.value)


def test_missing_and_empty_files_are_told(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        load_wic(tmp_path / "nowhere", "dev")
    with pytest.raises(UserError, match=r"dev\.data\.txt"):
        load_wic(tmp_path, "dev")
    write(tmp_path, [GOOD], ["T"])
    (tmp_path / "dev" / "dev.gold.txt").unlink()
    with pytest.raises(UserError, match=r"no labels beside it; put dev\.gold\.txt there"):
        load_wic(tmp_path, "dev")
    with pytest.raises(UserError, match="is empty"):
        load_wic(write(tmp_path, [], []), "dev")


@pytest.mark.parametrize("split, pairs", [("train", 5428), ("dev", 638), ("test", 1400)])
def test_the_real_splits_are_whole_and_even(split, pairs):
    """Sizes of the paper; half of each is one sense; the word as it stands begins as the lemma, but for a few."""
    if not (DATA / "wic").is_dir():
        pytest.skip("WiC is not here")
    found = load_wic(DATA / "wic", split)
    assert len(found) == pairs and found.same_N.mean() == pytest.approx(0.5)
    lemmas = [line.split("\t")[0] for line in (DATA / "wic" / split / f"{split}.data.txt").read_text().splitlines()]
    for places in (found.places_a, found.places_b):
        alike = [
            lemma[:1].lower() == place.text[place.start : place.end][:1].lower()
            for lemma, place in zip(lemmas, places, strict=True)
        ]
        assert sum(alike) / pairs > 0.97
