import importlib.util

import pytest

from posenc_jax.errors import UsageError, UserError
from posenc_jax.parallel.topologies import check_compiler, compiler_environment, parse_topology


@pytest.mark.parametrize(
    "text, slices, name, chips",
    [
        ("v5e:2x4", 1, "v5e:2x4", 8),
        (" V5E:16x16 ", 2, "v5e:16x16", 512),
        ("v4:2x2x1", 1, "v4:2x2x1", 4),
        ("TPU7x:4x4x4", 1, "tpu7x:4x4x4", 64),
    ],
)
def test_a_name_is_read(text, slices, name, chips):
    topology = parse_topology(text, slices)
    assert (topology.name, topology.chips, topology.slices) == (name, chips, slices)


@pytest.mark.parametrize(
    "text", ["", "v5e", "v5e:", "v5e-8", "v9:2x2", "v5e:0x4", "v5e:2x", "v5e:2x-4", "v5e:2xx4", "2x4", "h100:8"]
)
def test_a_name_that_is_none_is_refused_with_the_forms(text):
    with pytest.raises(UsageError, match=r"no TPU topology is called .*v5e:2x4"):
        parse_topology(text)


def test_a_square_of_chips_that_come_in_cubes_is_refused():
    with pytest.raises(UsageError, match="a v5p topology has 3 sizes, and 'v5p:2x2' has 2"):
        parse_topology("v5p:2x2")
    with pytest.raises(UsageError, match="--slices=0"):
        parse_topology("v5e:2x4", 0)


def test_without_libtpu_the_mend_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"libtpu.* is not installed; pip install '\.\[preflight\]'"):
        check_compiler()


def test_the_compiler_sees_no_accelerator_and_no_flags_of_another_platform():
    found = compiler_environment(
        {"XLA_FLAGS": "--xla_of_a_gpu", "JAX_PLATFORMS": "cuda", "HOME": "/h", "PYTHONPATH": "p"}
    )
    assert "XLA_FLAGS" not in found
    assert (found["JAX_PLATFORMS"], found["HOME"]) == ("cpu", "/h")
    assert found["PYTHONPATH"].endswith("p") and found["PYTHONPATH"] != "p"
