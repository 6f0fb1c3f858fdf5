"""What an accelerator can do at most: the published figures of the devices that JAX names."""

import dataclasses

_GIB = 2**30
_CLOUD = "docs.cloud.google.com/tpu/docs/"
_NVIDIA = "NVIDIA's data sheet; bfloat16 without sparsity, NVLink one way"


@dataclasses.dataclass(frozen=True)
class Chip:
    """One JAX device. A TPU v4 or v5p chip is one device (two cores that work as one), a TPU7x chip is two."""

    name: str
    kinds: tuple[str, ...]
    """What `jax.Device.device_kind` says of it."""
    bf16_flops: float
    """Most bfloat16 operations a second, a multiply and an add being two."""
    hbm_bytes: int
    """Memory; a program may use a little less."""
    hbm_bandwidth: float
    """Bytes a second, read and written together."""
    ici_bandwidth: float
    """Bytes a second that it can send to its neighbours over all its links together; as many come in meanwhile."""
    source: str
    dcn_bandwidth: float | None = None
    """Bytes a second that it can send to another slice, its share of what its host can; None where none is given."""
    devices_per_chip: int = 1
    """Devices of what is sold as one chip; the figures are a device's share of it."""


# The documentation gives both directions of the links together from v5e on: half of it is here. The data center's
# network stands there for a chip (v5p, v6e, tpu7x) or a pod of 256 chips (v5e: 6.4 Tb/s).
CHIPS = (
    Chip("v4", ("TPU v4",), 275e12, 32 * _GIB, 1200e9, 300e9, _CLOUD + "v4; links: Jouppi et al. 2023, 6 x 50 GB/s"),
    Chip("v5e", ("TPU v5 lite", "TPU v5e"), 197e12, 16 * _GIB, 819e9, 200e9, _CLOUD + "v5e", 25e9 / 8),
    Chip("v5p", ("TPU v5", "TPU v5p"), 459e12, 95 * _GIB, 2765e9, 600e9, _CLOUD + "v5p", 50e9 / 8),
    Chip("v6e", ("TPU v6 lite", "TPU v6e"), 918e12, 32 * _GIB, 1638e9, 400e9, _CLOUD + "v6e", 100e9 / 8),
    Chip("tpu7x", ("TPU7x",), 2307e12 / 2, 96 * _GIB, 7380e9 / 2, 300e9, _CLOUD + "tpu7x, half a chip", 50e9 / 8, 2),
    Chip("A100 40 GB", ("NVIDIA A100-SXM4-40GB",), 312e12, 40 * _GIB, 1555e9, 300e9, _NVIDIA),
    Chip("A100 80 GB", ("NVIDIA A100-SXM4-80GB",), 312e12, 80 * _GIB, 2039e9, 300e9, _NVIDIA),
    Chip("H100", ("NVIDIA H100 80GB HBM3",), 989.4e12, 80 * _GIB, 3350e9, 450e9, _NVIDIA),
    Chip("H200", ("NVIDIA H200",), 989.4e12, int(141e9), 4800e9, 450e9, _NVIDIA),
)


def chip_of(device_kind: str) -> Chip | None:
    """The figures of a device, by `jax.Device.device_kind`; None where they are not known, never those of another."""
    return next((chip for chip in CHIPS if device_kind in chip.kinds), None)
