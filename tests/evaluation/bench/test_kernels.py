"""The kernels compiled for a TPU on this machine, and the table of it."""

import importlib.util
import json

import pytest

from posenc_jax.commands import bench
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.bench.kernels import kernel_facts, kernel_table, side_facts
from posenc_jax.parallel.topologies import parse_topology

V5E = parse_topology("v5e:2x2")
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


@pytest.fixture(scope="module")
def facts():
    return {one["name"]: one for one in side_facts(V5E, ["convolution"], "kernel")}


MOST_CONVOLUTION = {  # bytes, forward and backward bundles
    "span-dynamic convolution, 32 x 512": (145e6, 2_900, 5_300),
    "span-dynamic convolution, 32 x 512, segments": (145e6, 2_900, 5_300),
    "span-dynamic convolution, 128 x 512": (582e6, 2_900, 5_300),
}


@needs_libtpu
@pytest.mark.parametrize("name", MOST_CONVOLUTION)
def test_the_convolution_moves_little_more_than_it_is_given_and_returns(facts, name):
    size, forward, backward = MOST_CONVOLUTION[name]
    one = facts[name]
    assert len(one["kernel"]["calls"]) == 2
    assert one["minimum"] <= one["kernel"]["bytes"] <= size
    assert one["kernel"]["temporaries"] <= 5e6
    for found, most in zip(one["kernel"]["bundles"], (forward, backward), strict=False):  # newer ones may write none
        assert found <= most


def test_the_table_has_a_line_a_case_and_leaves_out_what_was_not_measured():
    kernel = {"bytes": 3_000_000, "temporaries": 0, "calls": ["a", "b"], "bundles": [2579, 5679]}
    plain = {"bytes": 6_000_000, "temporaries": 1_500_000, "calls": [], "bundles": []}
    both = {"name": "one", "minimum": 2_500_000, "kernel": kernel, "plain": plain}
    alone = {"name": "two", "minimum": 2_500_000, "kernel": kernel | {"bundles": []}}
    table = kernel_table([both, alone], V5E)
    assert table.rows == [
        ("one", "2.5", "3.0", "6.0", "2.00 x", "1.200", "0.0", "1.5", "2,579 / 5,679"),
        ("two", "2.5", "3.0", "", "", "1.200", "0.0", "", ""),
    ]
    assert "v5e:2x2" in table.caption


@needs_libtpu
def test_a_topology_that_no_machine_has_is_wrong_use():
    with pytest.raises(UsageError, match="v5e:3x7"):
        list(kernel_facts(parse_topology("v5e:3x7")))


def test_the_facts_are_written_where_asked(monkeypatch, tmp_path, capsys):
    one = {"name": "one", "minimum": 10**6, "kernel": {"bytes": 10**6, "temporaries": 0, "calls": [], "bundles": []}}
    monkeypatch.setattr("posenc_jax.evaluation.bench.kernels.kernel_facts", lambda topology, kernels: iter([one]))
    assert bench.main(["kernels", "--topology", "v6e:2x4", "--json", str(tmp_path / "facts.json")]) == 0
    assert json.loads((tmp_path / "facts.json").read_text()) == {"topology": "v6e:2x4", "kernels": [one]}
    assert "v6e:2x4" in capsys.readouterr().out
