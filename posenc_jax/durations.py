"""How long something is to take: in steps, tokens, epochs, or a share of the run."""

import math

from posenc_jax.errors import UsageError

Duration = int | str
"""Steps as a number, or a string with its unit: "1500", "2e9 tokens", "3 epochs", "6 %" (of the whole run)."""


def to_steps(duration: Duration, key: str, *, tokens_per_step: int, steps_per_epoch: float, run: int | None) -> int:
    """Whole steps of a duration, at least 1 unless it is zero. `run` is the run's length, which "%" refers to."""
    number, unit = split_duration(duration, key)
    match unit:
        case "steps":
            steps = number
        case "tokens":
            steps = number / tokens_per_step
        case "epochs":
            steps = number * steps_per_epoch
        case _:
            if run is None:
                raise UsageError(
                    f"{key}={duration!r} is a share of a run whose length it is; give steps, tokens or epochs"
                )
            steps = number / 100 * run
    return 0 if number == 0 else max(1, round(steps))


def split_duration(duration: Duration, key: str) -> tuple[float, str]:
    """Number and unit ("steps", "tokens", "epochs" or "%"). Raises `UsageError` where it is none."""
    text = str(duration).strip()
    digits = text.rstrip("%abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip() or "steps"
    unit = {"step": "steps", "token": "tokens", "epoch": "epochs", "percent": "%"}.get(unit, unit)
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if unit not in ("steps", "tokens", "epochs", "%") or not 0 <= number < math.inf:
        raise UsageError(f'{key}={duration!r} is not a duration; write 1500, "2e9 tokens", "3 epochs" or "6 %"')
    if unit == "steps" and number != int(number):
        raise UsageError(f"{key}={duration!r} must be a whole number of steps")
    return number, unit
