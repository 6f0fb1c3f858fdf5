"""Worked out by hand."""

import pytest

from posenc_jax.evaluation.preflight.bounds import hbm_traffic, sent, step_bound
from posenc_jax.parallel.chips import chip_of
from tests.evaluation.preflight.questions import make

FACTS = {
    "shares": 8, "devices": 8, "parameter_bytes": 1000, "state_bytes": 3000,
    "mesh": {"data": 4, "fsdp": 2, "tensor": 1},
    "flops": {"encoder": 0.0, "heads": 0.0}, "collectives": [],
}  # fmt: skip


def test_traffic_is_the_state_the_gradients_the_weights_and_the_layers_inputs():
    config = make(**{"train.batch_size": 32, "train.accumulate": 2}).config  # 2 layers x 128 wide, float32
    inputs = 2 * 128 * 4 * (32 // 8) * 64
    assert hbm_traffic(config, 64, FACTS) == 2 * (3000 + 2 * (1000 + 2000) + inputs)


def test_a_generators_layers_are_in_it():
    config = make("configs/electra.py:electra,tiny,length=64", **{"train.batch_size": 32}).config
    inputs = (2 * 128 + 1 * 16) * 4 * 4 * 64  # an eighth as wide, half as deep
    assert hbm_traffic(config, 64, FACTS) == 2 * (3000 + 3000 + inputs)


@pytest.mark.parametrize(
    "kind, out", [("all-reduce", 2 * 700), ("all-gather", 700), ("reduce-scatter", 700), ("collective-permute", 800)]
)
def test_a_ring_sends_all_but_its_own_part(kind, out):
    assert sent({"kind": kind, "group": 8, "bytes": 800}) == out


def test_the_slowest_part_binds():
    chip, config = chip_of("TPU v5 lite"), make(**{"train.batch_size": 32}).config
    bound = lambda **changes: step_bound(chip, config, 64, FACTS | changes)  # noqa: E731
    computing = bound(flops={"encoder": 6 * 8 * 197e12, "heads": 2 * 8 * 197e12})
    assert (computing["by"], computing["seconds"], computing["tokens_per_second"]) == ("compute", 8, 32 * 64 / 8)
    reading = bound(state_bytes=int(819e9))
    assert reading["by"] == "HBM" and reading["seconds"] == pytest.approx(2, rel=1e-5)
    sending = bound(collectives=[{"kind": "all-gather", "axes": ("data",), "group": 2, "bytes": 400e9}])
    assert (sending["by"], sending["seconds"]) == ("ICI", 1)


def test_what_goes_between_slices_takes_the_slower_network():
    chip, config = chip_of("TPU v5 lite"), make(**{"train.batch_size": 32}).config
    row = {"kind": "all-reduce", "axes": ("slices",), "group": 2, "bytes": 25e9}
    parts = step_bound(chip, config, 64, FACTS | {"collectives": [row]})["parts"]
    assert (parts["DCN"], parts["ICI"]) == (8, 0)  # 25 Gb/s a chip
    parts = step_bound(chip_of("TPU v4"), config, 64, FACTS | {"collectives": [row]})["parts"]
    assert "DCN" not in parts and parts["ICI"] == 0
