"""Hold-out, duplicates, sampling and blocks."""

from collections import Counter

import numpy as np
import pytest

from posenc_jax.data import plan as module
from posenc_jax.data.plan import DROPPED, DUPLICATES, TRAIN, VALIDATION, Plan, block_characters, blocks, scan
from posenc_jax.data.sources import TOO_SHORT
from posenc_jax.errors import UserError


def quiet(act, done, total):
    pass


@pytest.fixture
def write(tmp_path):
    def write(texts):
        (tmp_path / "text.txt").write_text("\n\n".join(texts))
        return f"text:{tmp_path / 'text.txt'}"

    return write


def numbered(count):
    return [f"This is the document number {n} of all." for n in range(count)]


def test_every_kth_document_is_held_out_and_nothing_is_in_both(write):
    source = write(numbered(200))
    plan, _ = scan(source, 0.05, quiet)
    assert Counter(plan.roles.tolist()) == {TRAIN: 190, VALIDATION: 10}
    assert np.diff(np.flatnonzero(plan.roles == VALIDATION)).tolist() == [20] * 9
    texts = {
        split: [text for name, _, texts in blocks(source, plan, 500) if name == split for text in texts]
        for split in ("train", "validation")
    }
    assert sorted(texts["train"] + texts["validation"]) == sorted(numbered(200))
    assert len(texts["validation"]) == 10


def test_duplicates_are_dropped_and_so_cannot_be_on_both_sides(write):
    source = write(numbered(60) * 3 + ["short"])
    plan, _ = scan(source, 0.02, quiet)
    assert Counter(plan.roles.tolist()) == {TRAIN: 59, VALIDATION: 1, DROPPED: 120}
    assert plan.skipped == {TOO_SHORT: 1, DUPLICATES: 120}
    assert plan.characters == sum(map(len, numbered(60)))
    assert sum(len(texts) for _, _, texts in blocks(source, plan, 500)) == 60


@pytest.mark.parametrize("count", [2, 5, 49])
def test_at_least_one_document_is_held_out(count, write):
    plan, _ = scan(write(numbered(count)), 0.02, quiet)
    assert Counter(plan.roles.tolist()) == {TRAIN: count - 1, VALIDATION: 1}


@pytest.mark.parametrize("joint", [" ", "\n"])
def test_of_a_single_document_the_end_is_held_out(joint, write):
    text = joint.join(numbered(100))
    source = write([text])
    plan, _ = scan(source, 0.02, quiet)
    (_, _, [head]), (_, _, [tail]) = blocks(source, plan, 10**9)
    assert head + tail == text
    assert 0.05 < len(tail) / len(text) <= 0.2
    assert tail.startswith("This is the document number")


def test_blocks_are_a_function_of_the_text_alone(write):
    source = write(numbered(300))
    plan, _ = scan(source, 0.1, quiet)
    first = list(blocks(source, plan, 1000))
    assert list(blocks(source, plan, 1000)) == first
    assert [number for split, number, _ in first if split == "train"] == list(range(len(first) - 2))
    assert all(sum(map(len, texts)) >= 1000 for split, _, texts in first[:-2])


@pytest.mark.parametrize("characters", [10**3, 10**5, 10**7, 10**9, 10**12])
def test_blocks_suit_corpora_of_any_size(characters):
    size = block_characters(characters)
    assert 250_000 <= size <= 64_000_000
    if characters >= 10**7:
        assert characters / size >= 16


def test_the_sample_is_bounded_and_spread_over_the_text(write, monkeypatch):
    source = write(numbered(1000))
    monkeypatch.setattr(module, "SAMPLE_CHARACTERS", 4000)
    plan, sample = scan(source, 0.02, quiet)
    assert 2000 <= sum(map(len, sample)) <= 4000
    assert sample == numbered(1000)[:: 1000 // len(sample) + 1]
    assert len(plan.roles) == 1000


def test_a_plan_is_read_as_it_was_saved(write, tmp_path):
    plan, _ = scan(write(numbered(60) * 2), 0.02, quiet)
    plan.save(tmp_path / "plan.npz")
    again = Plan.load(tmp_path / "plan.npz")
    assert np.array_equal(again.roles, plan.roles) and again.roles.dtype == np.uint8
    assert (again.characters, again.skipped) == (plan.characters, plan.skipped)


@pytest.mark.parametrize("count", [99, 101])
def test_text_that_changes_while_it_is_read_is_refused(count, write):
    plan, _ = scan(write(numbered(100)), 0.02, quiet)
    with pytest.raises(UserError, match="changed while it was read"):
        list(blocks(write(numbered(count)), plan, 1000))
