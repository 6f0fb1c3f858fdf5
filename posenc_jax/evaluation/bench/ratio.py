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
    """A line a side: its median speed, and the reference's over its in each round as median (least to most).

    `speeds` are by side, one a round, `reference` among them.
    """
    rows = []
    for side, theirs in speeds.items():
        ratios = [one / other for one, other in zip(speeds[reference], theirs, strict=True)]
        spread = f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((side, f"{statistics.median(theirs):,.0f}", "" if side == reference else spread))
    caption += (
        f" {len(speeds[reference])} rounds, in each of which the sides take turns; {unit}: median of the rounds. "
        f"Ratio: {reference} over the side within a round, median (least to most)."
    )
    columns = ("side", unit, f"{reference} / side")
    return Table(caption, columns, rows, numbers=columns[1:])
