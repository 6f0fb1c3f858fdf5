"""Verdict, mends and the largest batch, against compilers that are formulas."""

import json

import pytest

from posenc_jax.evaluation.preflight.answer import answer, lines, mends
from posenc_jax.evaluation.preflight.search import largest_batch
from tests.evaluation.preflight.questions import formula, make


def told(ask, question):
    said = []
    return answer(ask, question, said.append)


def test_what_fits_is_told_with_what_is_to_spare():
    result = told(formula(2, 1), make(**{"train.batch_size": 64}))
    assert result["fits"] and "mend" not in result
    first, *rest = lines(result)
    assert first == "fits: 10.00 GiB of the 16.00 GiB of a device, 6.00 GiB to spare"
    assert any("all-reduce over data (8 devices)" in line for line in rest)
    assert json.loads(json.dumps(result)) == result


def test_an_oversize_batch_does_not_fit_and_both_figures_are_told():
    result = told(formula(2, 1), make(**{"train.batch_size": 256}))
    assert not result["fits"]
    first, second, *_ = lines(result)
    assert first == "does not fit: needs 34.00 GiB of a device that has 16.00 GiB, 18.00 GiB too much"
    assert second.startswith("fits with --config.train.accumulate=4: 10.00 GiB, 6.00 GiB to spare")
    assert [one["fits"] for one in result["tried"]] == [False, True]
    assert result["mend"]["collectives"]


def test_layers_are_computed_again_where_slices_are_not_enough():
    result = told(formula(10, 8), make(**{"train.batch_size": 8}))  # one row a device: nothing to slice
    assert result["mend"]["with"] == ["--config.model.remat=True"]


def test_a_state_too_large_is_spread_over_the_devices():
    result = told(formula(20, 0.1), make(**{"train.batch_size": 8}))
    assert "--config.mesh.fsdp=8" in result["mend"]["with"]


def test_where_nothing_helps_it_says_so():
    result = told(formula(300, 1), make())
    assert result["mend"] is None
    assert "no setting that was tried makes it fit" in lines(result)[1]


def test_mends_are_such_as_the_config_allows():
    config = make(**{"train.batch_size": 16, "mesh.fsdp": 2, "model.remat": "True"}).config
    assert mends(config, 8) == [{"train.accumulate": 2}]


@pytest.mark.parametrize(
    "fixed, a_row, rows",
    [(2, 1, 112), (2, 0.3, 368), (0, 0.001, 128_000), (15.5, 0.25, 16), (15.9, 0.2, 0), (20, 1, 0), (0, 15.9, 8)],
)
@pytest.mark.parametrize("start", [8, 256, 4096])
def test_the_largest_batch_is_found_in_few_compilations(fixed, a_row, rows, start):
    asked = []
    question = make(**{"train.batch_size": start})
    known = told(formula(fixed, a_row), question)
    found = largest_batch(formula(fixed, a_row, asked=asked), question, known, lambda line: None)
    assert found["rows"] == rows
    assert len(asked) <= 9
    assert sum(not one.memory_only for one in asked) <= 1  # the others are quick


def test_a_batch_that_the_estimate_finds_too_large_gives_way_to_the_next():
    honest, low = formula(2, 1), formula(2, 0.95)  # the real need lies above the estimate
    ask = lambda question: (low if question.memory_only else honest)(question)  # noqa: E731
    question = make(**{"train.batch_size": 64, "train.accumulate": 2})
    assert largest_batch(ask, question, told(ask, question), lambda line: None)["rows"] == 224


def test_the_largest_batch_is_a_line_of_the_answer():
    result = told(formula(2, 1), make()) | {"largest_batch": {"rows": 112, "needed": 16 * 2**30, "tried": []}}
    assert "largest batch that fits: 112 rows (16.00 GiB)" in lines(result)
