"""`bench`: speed as a ratio to a peer's, both measured in one run."""

import argparse
import dataclasses
import json
import os
from pathlib import Path

from posenc_jax.errors import DONE, UsageError


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.what == "kernels":
        _kernels(args)
    elif args.what == "steps":
        _steps(args)
    else:
        from posenc_jax.evaluation.bench.ratio import require

        require(["transformers", "tokenizers"])
        from posenc_jax.evaluation.bench.prepare import bench_prepare

        tables = bench_prepare(
            args.source or ["docstrings:"],
            characters=args.characters,
            vocab_size=args.vocab_size,
            vocab=args.vocab,
            length=args.length,
            rounds=args.rounds,
        )
        for table in tables:
            table.show()
    return DONE


def _steps(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.ratio import require

    if args.work and args.against == "ours":
        raise UsageError("--work picks what is compared with transformers; --against ours has pairs of its own")
    if args.against == "transformers":
        require(["torch", "transformers"])
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the device
    from posenc_jax.evaluation.bench.steps import COMPARED, against_each_other, against_transformers
    from posenc_jax.evaluation.bench.workloads import WORKS, Workload

    workload = Workload(size=args.size, batch_size=args.batch_size, length=args.length, vocab_size=args.vocab_size)
    if args.against == "transformers":
        for work in args.work or WORKS:
            against_transformers(dataclasses.replace(workload, work=work), args.rounds, args.steps).show()
    else:
        for names in COMPARED:
            against_each_other(names, workload, args.rounds, args.steps).show()


def _kernels(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.kernels import kernel_facts, kernel_table
    from posenc_jax.parallel.topologies import parse_topology

    topology, facts = parse_topology(args.topology), []
    for one in kernel_facts(topology, [args.only] if args.only else ("convolution", "attention")):
        print(f"compiled: {one['name']}", flush=True)
        facts.append(one)
    kernel_table(facts, topology).show()
    if args.json:
        args.json.write_text(json.dumps({"topology": topology.name, "kernels": facts}, indent=2) + "\n", "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax bench",
        description="Measures speed as a ratio to a peer's. The sides take turns in one run, so that a busy machine "
        "slows both.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    defaults = argparse.ArgumentDefaultsHelpFormatter
    steps = kinds.add_parser("steps", formatter_class=defaults, help="training steps")
    steps.add_argument(
        "--work", action="append", choices=("bert", "convbert", "electra"), help="one of them (all three)"
    )
    steps.add_argument(
        "--size", choices=("tiny", "small", "base", "large"), default="small", help="as in configs/bert.py"
    )
    steps.add_argument("--batch-size", type=_positive, default=32, metavar="N", help="rows a step")
    steps.add_argument("--vocab-size", type=_positive, default=30_522, metavar="N", help="words")
    steps.add_argument("--steps", type=_positive, default=3, metavar="N", help="steps of a turn")
    steps.add_argument(
        "--against", choices=("transformers", "ours"), default="transformers", help="the peer; ours: our variants"
    )
    prepare = kinds.add_parser("prepare", formatter_class=defaults, help="text to rows")
    prepare.add_argument("--source", action="append", help="as for `prepare` (docstrings:)")
    prepare.add_argument("--characters", type=_positive, default=5_000_000, metavar="N", help="text taken of it")
    prepare.add_argument(
        "--vocab-size", type=_positive, default=8192, metavar="N", help="pieces of trained vocabularies"
    )
    prepare.add_argument("--vocab", type=Path, metavar="FILE", help="WordPiece vocabulary of the peer (trained)")
    prepare.add_argument("--against", choices=("transformers",), default="transformers", help="the peer")
    kernels = kinds.add_parser(
        "kernels", formatter_class=defaults, help="memory traffic of the Pallas kernels, compiled without a TPU"
    )
    kernels.add_argument("--topology", default="v5e:2x2", metavar="NAME", help="as for `preflight`")
    kernels.add_argument("--only", choices=("convolution", "attention"), help="one of the two kernels")
    kernels.add_argument("--json", type=Path, metavar="FILE", help="write the facts there, too")
    for kind in (steps, prepare):
        kind.add_argument("--length", type=_positive, default=128, metavar="N", help="slots of a row")
        kind.add_argument("--rounds", type=_positive, default=5, metavar="N", help="turns of each side")
    return parser


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


_positive.__name__ = "whole number above 0"  # what argparse calls it: "invalid whole number above 0 value: '0'"
