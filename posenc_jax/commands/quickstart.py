"""`quickstart`: text to tokenizer, rows, two pre-trained encoders, probes, table and picture."""

import argparse
import contextlib
import signal
from collections.abc import Callable, Iterator

from posenc_jax.commands.pretrain import stop_on_signals
from posenc_jax.errors import DONE, PREEMPTED


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax quickstart",
        description="Pre-trains two small encoders that differ in their position scheme, fine-tunes and compares them: "
        "minutes on a laptop, no download. The same line again goes on where it stood.",
    )
    parser.add_argument("--out", default="out/quickstart", metavar="DIR", help="keeps everything (out/quickstart)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the pre-training; rows are shared (0)")
    parser.add_argument("--steps", type=int, metavar="N", help="of each pre-training (1200)")
    parser.add_argument("--source", default="docstrings:", help="other text, as for `prepare` (docstrings:)")
    args = parser.parse_args(argv)
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps {args.steps} must be at least 1")

    from posenc_jax.evaluation.quickstart import quickstart

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # outside of pre-training both end the act at work
    try:
        finished = quickstart(
            args.out, seed=args.seed, steps=args.steps, source=args.source, stopping=_saving_on_signals
        )
    except KeyboardInterrupt:
        finished = False
    if not finished:
        print("\nInterrupted. What is done stays; run the same line again to go on.", flush=True)
    return DONE if finished else PREEMPTED


@contextlib.contextmanager
def _saving_on_signals() -> Iterator[Callable[[], bool]]:
    """SIGTERM and Ctrl-C ask for a stop while this lasts, and mean what they meant before after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop_on_signals()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
