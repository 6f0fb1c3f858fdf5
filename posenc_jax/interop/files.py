"""Folders as Hugging Face writes them: config.json and tensors, read strictly; and folders that appear whole."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.errors import UsageError, UserError
from posenc_jax.training.workdir import take_lock

WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
INDEX = ".index.json"
CONFIG = "config.json"


def read_json(path: Path) -> dict[str, Any]:
    """An object of a JSON file. Raises `UserError` where it is missing or none."""
    try:
        settings = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} has no {path.name}; give a folder that `save_pretrained` wrote") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); download it again") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path} holds no settings, but {type(settings).__name__}")
    return settings


def read_tensors(folder: Path) -> tuple[dict[str, np.ndarray], str]:
    """All tensors of a folder by key, numbers as float32, and the name of the file that lists them.

    Read are, the first that is there: model.safetensors, its index of several files, pytorch_model.bin, its index.
    Raises `UserError` where there is none of them, or one is damaged or missing.
    """
    for name, read in ((WEIGHTS, _read_safetensors), (OLD_WEIGHTS, _read_pickle)):
        if (folder / name).is_file():
            return _as_float32(read(folder / name), folder / name), str(folder / name)
        if (folder / (name + INDEX)).is_file():
            return _read_shards(folder, name + INDEX, read), str(folder / (name + INDEX))
    raise UserError(f"{folder} has no {WEIGHTS}, no {OLD_WEIGHTS}, and no index of several such files")


def _read_shards(folder: Path, index: str, read: Any) -> dict[str, np.ndarray]:
    places = read_json(folder / index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise UserError(f"{folder / index} has no weight_map from keys to files; download it again")
    tensors: dict[str, np.ndarray] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file or not (folder / file).is_file():
            raise UserError(f"{folder / index} names {file}, which is not beside it; download it again")
        tensors |= _as_float32(read(folder / file), folder / file)
    return tensors


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    safetensors = require("safetensors")
    import ml_dtypes  # noqa: F401, makes NumPy know bfloat16

    try:
        with safetensors.safe_open(path, "numpy") as file:
            return {key: file.get_tensor(key) for key in file.keys()}
    except (safetensors.SafetensorError, TypeError) as error:
        raise UserError(f"{path} is damaged or cut short ({error}); download it again") from error


def _read_pickle(path: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} is an old PyTorch file, which torch reads and it is not installed: pip install torch, or take a "
            f"folder with {WEIGHTS}"
        ) from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or unsafe pickle makes it raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path} is damaged, or is no file of tensors alone ({reason}); download it again") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise UserError(f"{path} holds other things than tensors by their keys")
    return {key: (value.float() if value.is_floating_point() else value).numpy() for key, value in tensors.items()}


def _as_float32(tensors: Mapping[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    for key, array in tensors.items():
        floating = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        if not floating and not key.endswith(("position_ids", "token_type_ids")):
            raise UserError(
                f"{path}: {key} holds {array.dtype.name}, not floating-point numbers; quantised is not read"
            )
    return {key: array if array.dtype.kind in "iub" else _finite(array, key, path) for key, array in tensors.items()}


def _finite(array: np.ndarray, key: str, path: Path) -> np.ndarray:
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(f"{path}: {key} holds numbers that are not finite in 32 bits; this model cannot compute")
    return array


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A safetensors file as transformers takes it for its own. Raises `UserError` where it cannot be written."""
    safetensors = require("safetensors")
    from safetensors.numpy import save_file

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:  # a full disk, above all
        raise UserError(f"cannot write {path} ({error}); mend that and run it again") from error


def require(package: str) -> Any:
    """The package, or a `UserError` that says how it is installed."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise UserError(f"{package} is not installed; pip install 'posenc_jax[hf]'") from None


@contextlib.contextmanager
def whole_folder(folder: Path, option: str) -> Iterator[Path]:
    """A new folder to write in, that becomes `folder` when all went well; else nothing of it is left.

    Raises `UsageError` where `folder` is there and not empty, `UserError` while another process writes it.
    """
    folder = folder.resolve()
    if folder.is_file():
        raise UsageError(f"{option} {folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{option} {folder} is not empty; name a new folder")
    part = folder.with_name(f".{folder.name}.part")
    if part.exists() and not (part / ".lock").exists():
        raise UsageError(f"{part} is in the way of writing {folder}; move it or name another folder")
    part.mkdir(parents=True, exist_ok=True)
    with take_lock(part, f"another process is writing {folder}; wait for it or name another folder"):
        try:
            for left in part.iterdir():  # of a process that was killed
                if left.name != ".lock":
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield part
            (part / ".lock").unlink()
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
