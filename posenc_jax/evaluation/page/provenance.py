"""How to make a run again: the command lines that give its config, and where configs of several runs differ."""

import contextlib
import functools
import re
import shlex
from collections.abc import Sequence
from typing import Any

from posenc_jax.config import NEUTRAL_KEYS, Config, config_diff, config_to_dict
from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.data.sources import KINDS
from posenc_jax.durations import to_steps
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.tables import Table
from posenc_jax.typed import flatten

FRONT_DOOR = "python -m posenc_jax"
WIDTH = 110
"""Characters of a line."""
SIZES = ("tiny", "small", "medium_small", "base", "large")
DURATIONS = ("train.steps", "train.log_every", "train.eval_every", "train.checkpoint_every", "train.keep_every",
             "optimizer.warmup")  # fmt: skip
FROM_ROWS = ("model.vocab_size", "data.length")
"""What a config leaves to the rows."""


def commands(run: Run) -> list[str]:
    """Lines for a shell that make this run again, as far as its workdir tells: rows, then training; or the import."""
    if run.origin:
        return [_line("import", "hf", run.origin.source, "--workdir", str(run.workdir))]
    lines = [prepare_line(run)] if run.rows.get("settings") and run.config.data.path else []
    found = recipe(run.config, run.rows.get("train", {}).get("rows"))
    if found is None:
        return lines
    spec, overrides = found
    changed = [f"--config.{key}={value}" for key, value in overrides.items()]
    data = ["--data", run.config.data.path] if run.config.data.path else []
    return [*lines, _line("pretrain", "--config", spec, *changed, *data, "--workdir", str(run.workdir))]


def prepare_line(run: Run) -> str:
    """The `prepare` that makes the rows; a tokenizer that was given is named by its digest, for no path is kept."""
    of = run.rows["settings"]
    sources = re.split(rf" (?=(?:{'|'.join(KINDS)}):)", of["source"])
    words = [word for source in sources for word in ("--source", source)]
    words += ["--out", run.config.data.path, "--length", of["length"], "--packing", of["packing"]]
    if of["lowercase"] is None:
        words += ["--tokenizer", f"TOKENIZER_{of['tokenizer'][:8]}"]
    else:
        words += ["--vocab-size", of["vocab_size"], "--tokenizer-kind", of["tokenizer"]]
        words += [] if of["lowercase"] else ["--no-lowercase"]
    words += ["--holdout", of["holdout"]] if of["holdout"] != 0.02 else []
    words += ["--shard-characters", of["shard_characters"]] if of["shard_characters"] else []
    return _line("prepare", *map(str, words))


def _line(*words: str) -> str:
    """A command, on several lines where it is long; none is broken between an option and its value."""
    options: list[str] = [FRONT_DOOR]
    for word in words:
        if word.startswith("--"):
            options.append(shlex.quote(word))
        else:
            options[-1] += f" {shlex.quote(word)}"
    lines = [options[0]]
    for option in options[1:]:
        if len(lines[-1]) + len(option) + 3 > WIDTH:
            lines.append("   ")
        lines[-1] += f" {option}"
    return " \\\n".join(lines)


# ---- the config file ----------------------------------------------------------------------------------------------


def recipe(config: Config, train_rows: int | None = None) -> tuple[str, dict[str, str]] | None:
    """The shipped "FILE.py:ARG" nearest to the config of a workdir, and the settings to override, by key.

    Together they give that config, but for what changes no result; None where no shipped one does. `train_rows` are
    needed where a config counts in epochs.
    """
    known = _shipped()
    if not known:
        return None
    spec = _with_words(min(known, key=lambda spec: len(config_diff(known[spec], config))), config)
    overrides = _overrides(load_config(spec), config, train_rows)
    try:
        again = load_config(spec, overrides)
    except UsageError:
        return None
    return None if _overrides(again, config, train_rows) else (spec, overrides)


@functools.cache
def _shipped() -> dict[str, Config]:
    """Every variant of every config file, in every size."""
    found = {}
    for spec in (f"{variant},{size}" for variant in shipped_variants() for size in SIZES):
        with contextlib.suppress(UsageError):  # a file has not all sizes
            found[spec] = load_config(spec)
    return found


def _with_words(spec: str, config: Config) -> str:
    """`length` and `seed` in the argument of a config file, where that makes overrides fewer."""
    for word in (f"length={config.model.positions.max_length}", f"seed={config.train.seed}"):
        longer = f"{spec},{word}"
        if len(config_diff(load_config(longer), config)) < len(config_diff(load_config(spec), config)):
            spec = longer
    return spec


def _overrides(start: Config, config: Config, train_rows: int | None) -> dict[str, str]:
    old, new = (flatten(config_to_dict(one)) for one in (start, config))
    return {
        key: "none" if value is None else str(value)
        for key, value in new.items()
        if value != old[key] and key not in NEUTRAL_KEYS and not _decided_by_rows(key, old[key], config, train_rows)
    }


def _decided_by_rows(key: str, value: Any, config: Config, train_rows: int | None) -> bool:
    """Whether `pretrain` makes of this value the one that the config has."""
    if key in FROM_ROWS:
        return value is None
    if key not in DURATIONS or not isinstance(value, str) or not isinstance(config.train.steps, int):
        return False
    length = config.data.length or config.model.positions.max_length
    run = None if key == "train.steps" else config.train.steps
    try:
        steps = to_steps(
            value,
            key,
            tokens_per_step=config.train.batch_size * length,
            steps_per_epoch=(train_rows or 0) / config.train.batch_size,
            run=run,
        )
    except UsageError:
        return False
    group, name = key.split(".")
    return steps == getattr(getattr(config, group), name)


# ---- differences --------------------------------------------------------------------------------------------------


def differences(runs: Sequence[Run]) -> Table | None:
    """A line a setting that is not the same in all runs; of a single run, those that are not at their default."""
    plain = Config()
    if len(runs) > 1:
        flat = {run.name: flatten(config_to_dict(run.config)) for run in runs}
        caption = "Settings in which the runs differ; those that change no result are left out."
    else:
        flat = {"default": flatten(config_to_dict(plain)), runs[0].name: flatten(config_to_dict(runs[0].config))}
        caption = "Settings that are not at their default; those that change no result are left out."
    first = next(iter(flat.values()))
    rows = [
        (key, *(_shown(settings[key]) for settings in flat.values()))
        for key in first
        if key not in NEUTRAL_KEYS and any(settings[key] != first[key] for settings in flat.values())
    ]
    return Table(caption, ("setting", *flat), rows) if rows else None


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
