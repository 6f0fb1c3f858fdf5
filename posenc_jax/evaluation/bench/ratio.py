"""What the benchmarks share: speed is told as a ratio to a peer's in the same round, never as a number alone."""

import importlib.util
import statistics
from collections.abc import Mapping, Sequence

from posenc_jax.errors import UserError
from posenc_jax.evaluation.tables import Table

OURS = "posenc_jax"


def require(packages: Sequence[str]) -> None:
    """Raises `UserError` unless all the packages are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"this compares with {' and '.join(packages)}, but {' and '.join(missing)} cannot be imported here; "
            f"pip install {' '.join(missing)}"
        )


def ratio_table(caption: str, unit: str, speeds: Mapping[str, Sequence[float]], reference: str = OURS) -> Table:
    """A line a side: its median, and the reference's over its in each round as median (least to most).

    `speeds` are by side, one a round, `reference` among them.
    """
    rows = []
    for side, theirs in speeds.items():
        ratio = "" if side == reference else ratios(speeds[reference], theirs)
        rows.append((side, figure(statistics.median(theirs)), ratio))
    caption += (
        f" {len(speeds[reference])} rounds, in each of which the sides take turns; {unit}: median of the rounds. "
        f"Ratio: {reference} over the side within a round, median (least to most)."
    )
    columns = ("side", unit, f"{reference} / side")
    return Table(caption, columns, rows, numbers=columns[1:])


def ratios(reference: Sequence[float], side: Sequence[float]) -> str:
    """One over the other within each round, as median (least to most)."""
    each = [one / other for one, other in zip(reference, side, strict=True)]
    return f"{statistics.median(each):.2f} x ({min(each):.2f} to {max(each):.2f})"


def figure(number: float) -> str:
    """Three digits at least, and all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
