"""What a kernel may hold at a time."""

_MIB = 2**20
VMEM = {"v4": 16 * _MIB, "v5e": 128 * _MIB, "v5p": 64 * _MIB, "v6e": 128 * _MIB, "tpu7x": 64 * _MIB}
"""Fast memory of one core, by the chip's name; bytes."""
USUAL = 16 * _MIB
"""What a kernel may use of it where nothing is asked for."""
