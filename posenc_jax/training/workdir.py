"""The folder of a run: opened for one writer at a time, and only to go on with the run it belongs to."""

import fcntl
import io
import json
from pathlib import Path
from typing import IO, Any

from posenc_jax.checks import config_from_dict
from posenc_jax.config import NEUTRAL_KEYS, Config, config_diff, config_to_dict
from posenc_jax.data.rows import INFO_FILE, SPLITS, TOKENIZER_FILE, RowsInfo, write_whole
from posenc_jax.errors import UsageError, UserError
from posenc_jax.storage import is_remote, place
from posenc_jax.typed import flatten

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
IMPORTED_FILE = "imported.json"
"""Stands in a workdir whose model was not trained here."""


def open_workdir(workdir: Path, config: Config, info: RowsInfo) -> IO:
    """Makes the folder, or checks that it is this run's; returns its lock, held until closed. In a bucket, which knows
    no locks, two runs in one folder are not told apart.

    `config.json` is written first, then the tokenizer and `rows.json` are copied in, so that later commands need the
    workdir only. Raises `UsageError` for the folder of the rows, or with the differing fields for another config's,
    `UserError` for another tokenizer, for checkpoints whose config is lost, or when a run is writing there.
    """
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir {workdir} is a file; name a folder")
    if not is_remote(workdir) and workdir.resolve() == info.path.resolve():
        raise UsageError(f"--workdir {workdir} is the folder of the rows; name another, which the run makes")
    workdir.mkdir(parents=True, exist_ok=True)
    lock = take_lock(workdir, f"another process is training in {workdir}; wait for it or name another folder")
    try:
        if (workdir / CONFIG_FILE).exists():
            _check_same_run(workdir, config, info)
        elif any(path.name.isdigit() for path in (workdir / CHECKPOINTS).glob("*")):
            raise UserError(
                f"{workdir} has checkpoints and no {CONFIG_FILE}, so nothing says what they were trained with; put it "
                "back, or name another folder"
            )
        write_whole(workdir / CONFIG_FILE, json.dumps(config_to_dict(config), indent=2) + "\n")
        for name in (TOKENIZER_FILE, INFO_FILE):
            if not (workdir / name).exists():
                write_whole(workdir / name, (info.path / name).read_bytes())
    except BaseException:
        lock.close()
        raise
    return lock


def take_lock(folder: Path, refusal: str) -> IO:
    """Holds FOLDER/.lock until it is closed or the process ends. Raises `UserError` when another process does."""
    if is_remote(folder):
        return io.BytesIO()
    lock = (folder / ".lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UserError(refusal) from None
    return lock


def read_config(workdir: Path) -> Config:
    """The config a run was started with. Raises `UserError` where there is none."""
    path = place(workdir) / CONFIG_FILE
    if not path.is_file():
        raise UserError(
            f"{workdir} is not a workdir: it has no {CONFIG_FILE}; `pretrain --workdir {workdir}` makes one"
        )
    try:
        settings = json.loads(path.read_text())
        config = config_from_dict(settings)
        known = flatten(config_to_dict(config))
        if missing := sorted(known.keys() - flatten(settings).keys() - NEUTRAL_KEYS):
            raise ValueError(
                f"it has no {missing[0]!r}; where another version wrote it, put that in, the default being "
                f"{json.dumps(known[missing[0]])}"
            )
        return config
    except (ValueError, UsageError) as error:
        raise UserError(f"{path} is damaged ({error}); copy it from a run with the same settings") from error


def _check_same_run(workdir: Path, config: Config, info: RowsInfo) -> None:
    if (workdir / IMPORTED_FILE).exists():
        raise UsageError(
            f"{workdir} holds an imported model, whose training cannot be gone on with here; name another folder"
        )
    changed = config_diff(read_config(workdir), config)
    if changed:
        listed = "\n  ".join(changed)
        raise UsageError(
            f"{workdir} belongs to a run with other settings; take those or name another folder. "
            f"They differ in (there -> here):\n  {listed}"
        )
    if (workdir / INFO_FILE).exists():
        here, there = read_rows_facts(info.path / INFO_FILE), read_rows_facts(workdir / INFO_FILE)
        for fact, value in here.items():
            if there[fact] != value:
                raise UserError(
                    f"{info.path} does not hold the rows {workdir} was trained on: {fact} is {value}, there "
                    f"{there[fact]}; give those rows, or another folder"
                )


def read_rows_facts(path: Path) -> dict[str, Any]:
    """What tells rows from other rows, of a `rows.json`. Raises `UserError` where it is damaged."""
    try:
        settings = json.loads(path.read_text())
        splits = {f"{split}.{name}": settings[split][name] for split in SPLITS for name in ("rows", "tokens", "shards")}
        return {"tokenizer_sha256": settings["tokenizer_sha256"], "packing": settings["packing"], **splits}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); copy it from the rows of this run") from error
