"""`pretrain`: config and rows -> a workdir with a trained encoder."""

import argparse
import signal
import sys

from posenc_jax.config_files import load_config
from posenc_jax.errors import DONE, PREEMPTED, UsageError
from posenc_jax.parallel import distributed


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax pretrain",
        description="Pre-trains an encoder. The same line again goes on where it stood. Single settings are "
        "overridden by their name: --config.train.steps=200 --config.model.norm=pre",
    )
    parser.add_argument("--config", required=True, metavar="FILE.py[:ARG]", help="e.g. configs/tupe.py:tupe_r,tiny")
    parser.add_argument("--data", metavar="DIR", help="rows written by `prepare` (or --config.data.path)")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="where the run lives; made when missing")
    parser.add_argument("--profile", metavar="steps=A..B", help="write a trace of these steps into DIR/profile")
    parser.add_argument("--wandb", metavar="PROJECT", help="send the metrics to Weights & Biases, too")
    distributed.add_arguments(parser)
    args, rest = parser.parse_known_args(argv)
    if not args.workdir:
        parser.error("--workdir names no folder")
    overrides = read_overrides(rest)
    if args.data:
        overrides["data.path"] = args.data
    config = load_config(args.config, overrides)

    from posenc_jax.objectives.pretraining import pretrain
    from posenc_jax.training.profile import parse_steps

    with distributed.together(distributed.from_arguments(args)):
        outcome = pretrain(
            config,
            args.workdir,
            should_stop=stop_on_signals(several=distributed.several()),
            profile_steps=parse_steps(args.profile) if args.profile else range(0),
            wandb=args.wandb,
        )
        if not distributed.is_first():
            return DONE if outcome.finished else PREEMPTED
    if not outcome.finished:
        print(f"stopped and saved at step {outcome.step}; run the same line again to go on", flush=True)
        return PREEMPTED
    summary = outcome.summary
    whose = " of the generator" if config.objective == "rtd" else ""
    print(
        f"finished at step {outcome.step}: validation loss{whose} {summary['validation_loss']:.4f} nats "
        f"(unigram entropy of the same tokens {summary['unigram_entropy']:.4f}), "
        f"{summary['parameters']:,} parameters; everything is in {args.workdir}"
    )
    return DONE


def read_overrides(words: list[str], command: str = "pretrain") -> dict[str, str]:
    """--config.KEY=VALUE and --config.KEY VALUE, as typed, by key. Raises `UsageError` on any other word."""
    overrides, words = {}, list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--config."):
            raise UsageError(f"{command} does not know {word!r}; settings are written --config.KEY=VALUE")
        if not equals:
            if not words:
                raise UsageError(f"{name} has no value; write {name}=VALUE")
            value = words.pop(0)
        overrides[name.removeprefix("--config.")] = value
    return overrides


def stop_on_signals(several: bool = False):
    """Returns should_stop(): True once SIGTERM or Ctrl-C came. A second Ctrl-C ends at once. Of `several` processes
    SIGTERM is JAX's, which tells it to all of them."""
    came = []

    def note(number: int, _frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("stopping after this step, and saving", file=sys.stderr, flush=True)

    for number in (signal.SIGINT,) if several else (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(came)
