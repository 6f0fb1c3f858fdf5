"""Nested dicts -> typed dataclasses. A value is checked against its field; an error names key, value and mend."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from posenc_jax.errors import UsageError

WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Word(str):
    """A value as typed on a command line; the field's type says what it means."""


def build(cls: type, settings: Any, path: str = "") -> Any:
    """An instance of the dataclass `cls` with every type met; `path` is the group's key. Raises `UsageError`."""
    if not isinstance(settings, Mapping):
        raise UsageError(f"{path or 'the config'} holds {settings!r}; it must be a group of settings")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in settings:
        if name not in fields:
            raise UsageError(f"the config has no key {join(path, str(name))!r}{nearest(str(name), fields)}")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _convert(settings[name], hints[name], join(path, name)) for name in settings})


def _convert(value: Any, hint: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build(hint, value, key)
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UsageError(
                f"{key}={value!r} is not one of {', '.join(map(repr, choices))}{nearest(str(value), choices)}"
            )
        return str(value)
    if origin is types.UnionType:
        return _convert_union(value, typing.get_args(hint), key)
    return _convert_plain(value, hint, key)


def _convert_union(value: Any, options: tuple, key: str) -> Any:
    if type(None) in options and (value is None or (isinstance(value, Word) and value.lower() == "none")):
        return None
    kinds = [option for option in options if option is not type(None)]
    for kind in kinds:
        try:
            return _convert(value, kind, key)
        except UsageError:
            if len(kinds) == 1:
                raise
    raise UsageError(f"{key}={value!r} must be {' or '.join(WANTED[kind] for kind in kinds)}")


def _convert_plain(value: Any, kind: type, key: str) -> Any:
    shown = value
    if isinstance(value, Word):
        value = parse(value) if kind is not str else str(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and is_number and math.isfinite(value) and value == int(value):
        return int(value)  # 1e4 is a whole number however it is written
    if kind is float and is_number:
        return float(value)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    raise UsageError(f"{key}={shown!r} must be {WANTED[kind]}")


def parse(word: str) -> Any:
    """A number or a truth value where the word reads as one, else the word."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def join(path: str, name: str) -> str:
    """The key of a field in a group: "model.width"."""
    return f"{path}.{name}" if path else name


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of an error: the known word that is meant, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def flatten(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """{"model": {"width": 3}} -> {"model.width": 3}."""
    flat = {}
    for name, value in settings.items():
        key = join(path, name)
        flat.update(flatten(value, key) if isinstance(value, Mapping) else {key: value})
    return flat
