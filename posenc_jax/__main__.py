"""The front door: `python -m posenc_jax COMMAND ...`. Imports no JAX before it knows the command."""

import importlib
import os
import sys
from pathlib import Path

from posenc_jax.errors import DONE, WRONG_USE, tell

COMMANDS = {
    "prepare": "text -> tokenizer and packed rows",
    "pretrain": "pre-train an encoder; the same line again goes on where it stood",
    "preflight": "does a config fit a TPU topology, and how fast at most; compiled without a TPU",
    "import": "a Hugging Face model -> a workdir",
    "export": "a workdir -> a Hugging Face model",
    "glue": "fine-tune a pre-trained encoder on GLUE-style tasks and score it",
    "squad": "fine-tune a pre-trained encoder to answer questions from a passage, and score it",
    "sts": "agreement of sentence similarities with people, layer by layer, without training",
    "wic": "one sense or two of a word, by the cosine of its vectors, without training",
    "submit": "the answers of `glue --test` -> the zip for the GLUE leaderboard",
    "probes": "make the order and next probe tasks from any text",
    "variants": "every position scheme, compatibility and mixer: source, cost, configs",
    "report": "runs side by side: curves, scores, speed",
    "bench": "measure speed as a ratio against a peer, in one run",
    "quickstart": "all of it in minutes, on text that is already on this machine",
    "doctor": "what this machine has, and what is missing",
}

COMPUTE = ("pretrain", "glue", "squad", "sts", "wic", "report", "bench", "quickstart")
"""Those that a processor is kept busy by."""
LARGE_PAGES = "glibc.malloc.hugetlb=1"


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 failed, 2 wrong use, 75 preempted (run me again)."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except (Exception, KeyboardInterrupt) as error:
        code = tell(error)
        if code is None:
            raise
        return code


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage(), flush=True)
        return DONE if argv else WRONG_USE
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        print(f"posenc_jax has no command {name!r}; it has {', '.join(COMMANDS)}", file=sys.stderr)
        return WRONG_USE
    _choose_platform()
    return importlib.import_module(f"posenc_jax.commands.{name}").main(rest)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {line}" for name, line in COMMANDS.items()]
    return "\n".join(["usage: python -m posenc_jax COMMAND [--help] ...", "", *lines])


def _choose_platform() -> None:
    """Without an accelerator, tells JAX so: it would otherwise search for one, noisily and for seconds. With one,
    keeps compiled programs: a run that was preempted is back at work sooner."""
    found = [device for pattern in ("accel*", "vfio/[0-9]*", "nvidia[0-9]*") for device in Path("/dev").glob(pattern)]
    if not found and "TPU_NAME" not in os.environ:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if os.environ.get("JAX_PLATFORMS") != "cpu":  # code for one CPU need not run on another that shares the home
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "posenc_jax"))


def _take_large_pages(policy: Path = Path("/sys/kernel/mm/transparent_hugepage/enabled")) -> None:
    """Starts this program anew, as the same process, with a malloc that asks Linux for pages of 2 MB.

    A step on a processor takes gigabytes and gives them back; in pages of 4 KB that alone is a sixth of its time
    (README, "Speed on a CPU"). glibc reads the wish when a program starts, and only then. What the user set stays.
    """
    if os.environ.get("JAX_PLATFORMS") != "cpu" or "GLIBC_TUNABLES" in os.environ:
        return
    try:
        waits_to_be_asked = "[madvise]" in policy.read_text()
    except OSError:
        return
    if waits_to_be_asked:
        os.environ["GLIBC_TUNABLES"] = LARGE_PAGES
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    _choose_platform()
    if sys.argv[1:2] and sys.argv[1] in COMPUTE:
        _take_large_pages()
    sys.exit(main())
