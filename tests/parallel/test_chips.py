import pytest

from posenc_jax.parallel.chips import CHIPS, chip_of


@pytest.mark.parametrize(
    "kind, name, teraflops, gigabytes_a_second",
    [
        ("TPU v4", "v4", 275, 1200),
        ("TPU v5 lite", "v5e", 197, 819),
        ("TPU v5", "v5p", 459, 2765),
        ("TPU v6 lite", "v6e", 918, 1638),
        ("TPU7x", "tpu7x", 1153.5, 3690),  # half a chip
        ("NVIDIA H200", "H200", 989.4, 4800),
    ],
)
def test_a_device_has_the_published_figures(kind, name, teraflops, gigabytes_a_second):
    chip = chip_of(kind)
    assert (chip.name, chip.bf16_flops, chip.hbm_bandwidth) == (name, teraflops * 1e12, gigabytes_a_second * 1e9)


@pytest.mark.parametrize("kind", ["cpu", "", "TPU", "TPU v3", "TPU v50", "NVIDIA H100 PCIe", "tpu v4"])
def test_a_device_that_is_not_known_has_no_figures_rather_than_anothers(kind):
    assert chip_of(kind) is None


def test_figures_are_a_devices_and_their_source_is_named():
    for chip in CHIPS:
        assert chip.source and 100 < chip.bf16_flops / chip.hbm_bandwidth < 1000, chip  # flops a byte: no slip of units
        assert 2**34 <= chip.hbm_bytes < 2**38 and 1e11 < chip.ici_bandwidth < chip.hbm_bandwidth, chip
        assert chip.dcn_bandwidth is None or 1e9 < chip.dcn_bandwidth < chip.ici_bandwidth / 10, chip
    assert len({kind for chip in CHIPS for kind in chip.kinds}) == sum(len(chip.kinds) for chip in CHIPS)
