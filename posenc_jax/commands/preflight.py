"""`preflight`: a config and a TPU topology -> does it fit, what moves, how fast at most; without a TPU."""

import argparse
import json
import signal
import sys
from pathlib import Path

from posenc_jax.commands import check_answer_file
from posenc_jax.commands.pretrain import read_overrides
from posenc_jax.config_files import load_config
from posenc_jax.errors import DONE, FAILED

VOCAB_SIZE = 32_768  # our choice, where neither the config nor rows say it


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax preflight",
        description="Compiles the training step of a config for a TPU topology, on a machine that needs no TPU, and "
        "says whether it fits and how fast it can be at most. Single settings are overridden as in pretrain: "
        "--config.train.batch_size=512 --config.mesh.fsdp=2",
        epilog="Exit code: 0 it fits, 1 it does not or the compiler cannot run, 2 wrong use.",
    )
    parser.add_argument("--config", metavar="FILE.py[:ARG]", help="e.g. configs/tupe.py:tupe_r,base")
    parser.add_argument("--topology", metavar="NAME", help="v5e:2x4, v5e:16x16, v4:2x2x1, v5p:2x2x1, tpu7x:2x2x1 ...")
    parser.add_argument("--slices", type=int, default=1, help="how many of it, joined by the data-centre network")
    parser.add_argument("--find-batch", action="store_true", help="also look for the largest batch that fits")
    parser.add_argument("--data", metavar="DIR", help="rows of `prepare`, for their length and vocabulary")
    parser.add_argument("--vocab-size", type=int, metavar="N", help=f"else the config's, the rows', or {VOCAB_SIZE:,}")
    parser.add_argument("--json", metavar="FILE", help="write the answer there, too; - is the screen, and nothing else")
    parser.add_argument("--all", action="store_true", help="memory of every shipped config on several topologies")
    parser.add_argument("--topologies", metavar="A,B", help="--all: these instead")
    parser.add_argument("--size", default="base", help="--all: of each variant; base by default")
    args, rest = parser.parse_known_args(argv)
    if args.slices < 1:
        parser.error(f"--slices={args.slices} must be at least 1")
    if args.all and (args.config or args.topology or args.find_batch or args.data):
        parser.error("--all takes no --config, --topology, --find-batch or --data; --topologies narrows it")
    if not args.all and not (args.config and args.topology):
        parser.error("name a --config and a --topology, or take --all")
    if not args.all and args.topologies:
        parser.error("--topologies belongs to --all; take --topology")
    if args.vocab_size is not None and args.vocab_size < 1:
        parser.error(f"--vocab-size={args.vocab_size} must be at least 1")
    if args.json not in (None, "-"):
        check_answer_file(parser, args.json)
    overrides = read_overrides(rest, "preflight")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the compiler ends with us
    result, text = _matrix(args, overrides) if args.all else _one(args, overrides)
    if args.json == "-":
        print(json.dumps(result, indent=2))
    else:
        print(text)
        if args.json:
            Path(args.json).write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return DONE if args.all or result["fits"] else FAILED


def _one(args: argparse.Namespace, overrides: dict[str, str]) -> tuple[dict, str]:
    from posenc_jax.evaluation.preflight.answer import answer, lines
    from posenc_jax.evaluation.preflight.process import compiler
    from posenc_jax.evaluation.preflight.questions import make_question
    from posenc_jax.evaluation.preflight.search import largest_batch
    from posenc_jax.parallel.topologies import parse_topology

    topology = parse_topology(args.topology, args.slices)
    config = load_config(args.config, overrides)
    question = make_question(config, topology, vocab_size=args.vocab_size, default=VOCAB_SIZE, data=args.data)
    with compiler() as ask:
        result = {"config": args.config, "overrides": overrides, **answer(ask, question, _say)}
        if args.find_batch:
            result["largest_batch"] = largest_batch(ask, question, result, _say)
    return result, "\n".join(lines(result))


def _matrix(args: argparse.Namespace, overrides: dict[str, str]) -> tuple[dict, str]:
    from posenc_jax.evaluation.preflight.matrix import TOPOLOGIES, matrix
    from posenc_jax.parallel.topologies import parse_topology

    names = args.topologies.split(",") if args.topologies else TOPOLOGIES
    topologies = [parse_topology(name, args.slices) for name in names]
    cells, table = matrix(topologies, args.size, overrides, args.vocab_size or VOCAB_SIZE, _say)
    return {"cells": cells}, table.markdown()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
