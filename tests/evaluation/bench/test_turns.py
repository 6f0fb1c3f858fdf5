"""Sides that take turns."""

import itertools

import pytest

from posenc_jax.errors import UserError
from posenc_jax.evaluation.bench.turns import WARM_UP, answer, processes, take_turns


def _failing(option):
    raise MemoryError("no room")


def _working(option):
    return (lambda steps: None), f"does {option}"


def _counting(expected):
    due = itertools.chain([WARM_UP], itertools.cycle([1, expected]))

    def run(count):
        if count != next(due):
            raise ValueError(f"{count} pieces")

    return run, f"counts {expected}"


def test_a_side_is_a_process_that_answers_and_its_failure_is_told():
    sides = {"good": (_working, ("one",)), "bad": (_failing, (None,))}
    with processes(sides) as connections:
        assert answer("good", connections["good"]) == "does one"
        connections["good"].send(3)
        assert 0 <= answer("good", connections["good"]) < 60
        with pytest.raises(UserError, match="bad failed: MemoryError: no room"):
            answer("bad", connections["bad"])
        with pytest.raises(UserError, match="the process of bad died"):
            answer("bad", connections["bad"])


def test_each_side_has_a_turn_in_every_round_and_another_begins():
    told = []
    seconds, devices = take_turns(
        {"a": (_counting, (5,)), "b": (_counting, (7,))}, 2, {"a": 5, "b": 7}, lambda turn, took: told.append(turn)
    )
    assert told == ["round 1: a", "round 1: b", "round 2: b", "round 2: a"]
    assert {side: len(times) for side, times in seconds.items()} == {"a": 2, "b": 2}
    assert devices == {"a": "counts 5", "b": "counts 7"}
