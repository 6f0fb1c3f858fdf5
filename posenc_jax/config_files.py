"""Config files: `configs/NAME.py:ARG` and overrides -> a typed and checked `Config`. Imports neither JAX nor Flax."""

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.checks import config_from_dict
from posenc_jax.config import Config
from posenc_jax.errors import UsageError
from posenc_jax.typed import Word, nearest, parse


def load_config(spec: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """Reads `FILE.py[:ARG]`, applies overrides ({"train.steps": 100}; strings are parsed) and checks the whole.

    A relative file is looked for in the working directory, then beside the package. Raises `UsageError`.
    """
    path, _, arg = spec.partition(":")
    settings = _run_config_file(_find(path), arg)
    for key, value in (overrides or {}).items():
        _assign(settings, key, value)
    return config_from_dict(settings)


def parse_arg(
    arg: str, variants: Iterable[str], sizes: Iterable[str], variations: Iterable[str] = ()
) -> tuple[str, str, dict[str, int]]:
    """Splits a config file's argument "tupe_r,tiny,length=128" into variant, size and quick variations.

    The first of `variants` and of `sizes` is the default. Raises `UsageError` on a word that is none of them.
    """
    variants, sizes, variations = list(variants), list(sizes), list(variations)
    chosen: dict[str, str] = {}
    quick: dict[str, int] = {}
    for word in filter(None, (word.strip() for word in arg.split(","))):
        name, equals, value = word.partition("=")
        if equals and name in variations:
            quick[name] = parse(value)
            if not isinstance(quick[name], int):
                raise UsageError(f"the config's argument {name}={value} must be a whole number")
        elif word in variants or word in sizes:
            kind = "variant" if word in variants else "size"
            if chosen.setdefault(kind, word) != word:
                raise UsageError(f"the config's argument {arg!r} names two {kind}s, {chosen[kind]!r} and {word!r}")
        else:
            known = [*variants, *sizes, *(f"{name}=" for name in variations)]
            raise UsageError(
                f"the config's argument has no {word!r}{nearest(word, known)}; it takes {', '.join(known)}"
            )
    return chosen.get("variant", variants[0]), chosen.get("size", sizes[0]), quick


# ---- files --------------------------------------------------------------------------------------------------------

_REPOSITORY = Path(__file__).resolve().parent.parent


def _find(path: str) -> Path:
    for root in (Path.cwd(), _REPOSITORY):
        if (root / path).is_file():
            return (root / path).resolve()
    raise UsageError(f"there is no config file {path!r}; shipped ones are {', '.join(_shipped())}")


def _shipped() -> list[str]:
    return [f"configs/{file.name}" for file in sorted((_REPOSITORY / "configs").glob("*.py"))]


def _assign(settings: dict, key: str, value: Any) -> None:
    *groups, name = key.split(".")
    place = settings
    for depth, group in enumerate(groups):
        place = place.setdefault(group, {})
        if not isinstance(place, dict):
            raise UsageError(f"{'.'.join(groups[: depth + 1])} is one setting, it has no {name!r} inside")
    place[name] = Word(value) if isinstance(value, str) else value


def shipped_variants() -> list[str]:
    """What `load_config` takes, for each variant of each shipped config: "configs/tupe.py:tupe_r"."""
    with _importable(_REPOSITORY):
        return [f"{path}:{variant}" for path in _shipped() for variant in _module(_find(path)).VARIANTS]


def _run_config_file(path: Path, arg: str) -> dict[str, Any]:
    # So that one config file can build on another, its neighbour or a shipped one: `from configs import bert`.
    try:
        with _importable(path.parent.parent, _REPOSITORY):
            module = _module(path)
            if not hasattr(module, "get_config"):
                raise UsageError(f"{path} has no function get_config(arg)")
            settings = module.get_config(arg)
            return settings.to_dict() if hasattr(settings, "to_dict") else dict(settings)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    searched, sys.path = sys.path, [*map(str, folders), *sys.path]
    try:
        yield
    finally:
        sys.path = searched


def _module(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"_config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
