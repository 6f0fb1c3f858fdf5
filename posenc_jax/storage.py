"""Where files live: on a disk of this machine, or in a bucket (gs://..., s3://...) through etils' epath."""

import hashlib
import importlib.util
import os
from pathlib import Path

from posenc_jax.errors import UserError

_PACKAGES = {"gs": "gcsfs", "s3": "s3fs"}


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path names an object in a bucket."""
    return "://" in os.fspath(path)


def place(path: str | os.PathLike) -> Path:
    """A path to work with; that of a bucket has the methods of `pathlib.Path` that we use, but cannot be appended to.

    Raises `UserError` for a kind of bucket that is not known, or whose package is not installed.
    """
    if not is_remote(path):
        return Path(path)
    kind = os.fspath(path).partition("://")[0]
    if kind not in _PACKAGES:
        raise UserError(f"{path} is of no kind that can be written; those are a disk, gs:// and s3://")
    if importlib.util.find_spec(_PACKAGES[kind]) is None:
        raise UserError(f"{path} needs the package {_PACKAGES[kind]}; pip install {_PACKAGES[kind]}")
    from etils import epath

    return epath.Path(path)


def fetched(folder: str | os.PathLike, cache: Path | None = None) -> Path:
    """A folder of files on a disk: `folder` itself, or where its files from a bucket have been copied to.

    Copies go to `cache`, by default ~/.cache/posenc_jax/rows; files that are there at the right size are not copied
    again.
    """
    if not is_remote(folder):
        return Path(folder)
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posenc_jax" / "rows"
    there = place(folder)
    if not there.is_dir():
        raise UserError(f"there is no folder {folder}; copy rows of `prepare` there")
    here = cache / hashlib.sha256(os.fspath(folder).encode()).hexdigest()[:16]
    here.mkdir(parents=True, exist_ok=True)
    for file in there.iterdir():
        copy = here / file.name
        if file.is_dir() or (copy.exists() and copy.stat().st_size == file.stat().length):
            continue
        part = here / f"{file.name}.{os.getpid()}.part"  # several processes may do this at once
        file.copy(part, overwrite=True)
        part.replace(copy)
    return here
