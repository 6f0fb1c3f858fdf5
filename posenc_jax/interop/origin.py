"""What a workdir that was not trained here knows of where it came from: imported.json."""

import dataclasses
import json
from pathlib import Path

from posenc_jax.errors import UserError
from posenc_jax.interop.names import FAMILIES
from posenc_jax.training.workdir import IMPORTED_FILE


@dataclasses.dataclass(frozen=True)
class Origin:
    """Stands in for `rows.json`, which a run of ours has."""

    model_type: str
    """The family it came from, a key of `names.FAMILIES`; export writes the same again."""
    source: str
    """The folder it was read from."""
    tokenizer_sha256: str
    length: int
    """Positions the model has."""


def write_origin(workdir: Path, origin: Origin) -> None:
    (workdir / IMPORTED_FILE).write_text(json.dumps(dataclasses.asdict(origin), indent=1) + "\n", "utf-8")


def read_origin(workdir: Path) -> Origin | None:
    """None for a workdir that was trained here. Raises `UserError` for a damaged file."""
    path = workdir / IMPORTED_FILE
    try:
        origin = Origin(**json.loads(path.read_text("utf-8")))
        if origin.model_type not in FAMILIES or not isinstance(origin.length, int):
            raise ValueError(f"model_type {origin.model_type!r}, length {origin.length!r}")
        return origin
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); import the model again") from error
