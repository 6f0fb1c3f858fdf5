"""How fast a step can be at most: a roofline of compute, memory and network, from published figures of the device.

A bound and no forecast: nothing waits, nothing is read twice, every unit runs at its peak.
"""

from collections.abc import Mapping
from typing import Any

from posenc_jax.config import Config
from posenc_jax.objectives.cost import networks
from posenc_jax.parallel.chips import Chip
from posenc_jax.parallel.collectives import SLICES

_BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}


def hbm_traffic(config: Config, length: int, facts: Mapping[str, Any]) -> int:
    """The least bytes that a step moves between one device and its memory. Our definition, in which each is read once
    and written once: the state (parameters and both moments); the gradients, in each slice of the batch; the input of
    each layer for each of the device's rows, all that a backward pass must find (the rest can be computed again).
    Parameters are read once more in each slice by the forward and by the backward pass, whole along fsdp.
    """
    slices, rows = config.train.accumulate, config.train.batch_size // facts["shares"]
    parameters = facts["parameter_bytes"]
    numbers = sum(model.layers * model.width for model in networks(config)) * rows * length
    inputs = numbers * _BYTES[config.model.dtype]
    gathered = parameters * facts["mesh"]["fsdp"]
    return 2 * (facts["state_bytes"] + slices * (parameters + gathered) + inputs)


def sent(collective: Mapping[str, Any]) -> float:
    """Bytes that a ring sends out of each device."""
    group = max(1, collective["group"])
    if collective["kind"] in ("collective-permute", "collective-broadcast"):
        return collective["bytes"]
    return collective["bytes"] * (group - 1) / group * (2 if collective["kind"] == "all-reduce" else 1)


def step_bound(chip: Chip, config: Config, length: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds that a step takes at least, what binds, and what that is in tokens a second. The networks, within slices
    (ICI) and between them (DCN), count where the program is known and a figure of the chip is."""
    seconds = {
        "compute": sum(facts["flops"].values()) / facts["devices"] / chip.bf16_flops,
        "HBM": hbm_traffic(config, length, facts) / chip.hbm_bandwidth,
    }
    if "collectives" in facts:
        between = [row for row in facts["collectives"] if SLICES in row["axes"]]
        seconds["ICI"] = sum(sent(row) for row in facts["collectives"] if row not in between) / chip.ici_bandwidth
        if between and chip.dcn_bandwidth:
            seconds["DCN"] = sum(map(sent, between)) / chip.dcn_bandwidth
    by = max(seconds, key=seconds.__getitem__)
    tokens = config.train.batch_size * length
    return {"seconds": seconds[by], "by": by, "parts": seconds, "tokens_per_second": tokens / seconds[by]}
