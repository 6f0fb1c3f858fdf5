"""What a step's time comes to: words a second, share of the chips' peak, time left; and how full the chips are."""

import dataclasses

import jax

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Meter:
    """Reads a run's speed off the seconds a step takes."""

    total_steps: int
    tokens_per_step: int
    """Slots of a batch, padding among them."""
    flops_per_step: float | None = None
    """Of forward and backward pass, counted; what rematerialisation does twice counts once. None where it is not
    wanted, `peak_flops` not being known."""
    peak_flops: float | None = None
    """A second, of all devices together, in bfloat16; None where the chip is not known."""

    def read(self, step: int, seconds: float) -> dict[str, float]:
        """At `seconds` a step: "tokens_per_second", "seconds_left" and, of a known chip, "mfu", the share of its peak
        that the counted operations make (model FLOPs utilisation, Chowdhery et al. 2022)."""
        values = {
            "tokens_per_second": self.tokens_per_step / seconds,
            "seconds_left": seconds * (self.total_steps - step),
        }
        if self.peak_flops:
            values["mfu"] = self.flops_per_step / seconds / self.peak_flops
        return values


def device_memory() -> dict[str, float]:
    """ "memory_gib": the most that one of this process's devices has held so far; empty where devices do not say."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in jax.local_devices()]
    return {"memory_gib": max(peaks) / GIB} if peaks and None not in peaks else {}
