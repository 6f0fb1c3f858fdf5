"""`bench`: speed as a ratio to a peer's, both measured in one run."""

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from posenc_jax.commands import WithDefaults, check_answer_file
from posenc_jax.errors import DONE, UsageError

SIZES = ("tiny", "small", "base", "large")
LEAST = 8
"""Slots of a row, words of a vocabulary: five of them are special."""


def main(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if file := getattr(args, "json", None):
        check_answer_file(parser, file)
    for name in ("length", "vocab_size"):
        if (number := getattr(args, name, LEAST)) < LEAST:
            raise UsageError(f"--{name.replace('_', '-')}={number} is too small; the least is {LEAST}")
    kinds = {
        "steps": _steps, "finetune": _finetune, "inference": _inference, "compile": _compile, "prepare": _prepare,
        "states": _states, "kernels": _kernels,
    }  # fmt: skip
    kinds[args.what](args)
    return DONE


def _steps(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.ratio import require

    if args.work and args.against == "ours":
        raise UsageError("--work picks what is compared with transformers; --against ours has pairs of its own")
    if args.against == "transformers":
        require(["torch", "transformers"])
    _share_the_device()
    from posenc_jax.evaluation.bench.steps import COMPARED, against_each_other, against_transformers
    from posenc_jax.evaluation.bench.workloads import WORKS, Workload

    workload = Workload(size=args.size, batch_size=args.batch_size, length=args.length, vocab_size=args.vocab_size)
    if args.against == "transformers":
        for work in args.work or WORKS:
            against_transformers(dataclasses.replace(workload, work=work), args.rounds, args.steps).show()
    else:
        for names in COMPARED:
            against_each_other(names, workload, args.rounds, args.steps).show()


def _finetune(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.ratio import require

    if args.vocab and not args.data:
        raise UsageError("--vocab cuts the texts of --data; name the GLUE folder, too")
    require(["torch", "transformers"])
    _share_the_device()
    from posenc_jax.evaluation.bench.finetune import bench_finetune, task_lengths
    from posenc_jax.evaluation.bench.workloads import Finetuning

    work = Finetuning(size=args.size, batch_size=args.batch_size, limit=args.length, vocab_size=args.vocab_size)
    source = "CoLA's train split in pieces of BERT's uncased vocabulary"
    if args.data:
        lengths, source = task_lengths(args.data, args.task, args.vocab_size, args.vocab)
        work = dataclasses.replace(work, lengths=lengths)
    table, facts = bench_finetune(work, source, args.rounds)
    table.show()
    _write(args.json, facts)


def _inference(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.ratio import require

    if args.only != "blocks":
        require(["torch", "transformers"])
    _share_the_device()
    from posenc_jax.evaluation.bench.workloads import Workload

    facts: dict[str, Any] = {}
    if args.only != "encoder":
        from posenc_jax.evaluation.bench.blocks import block_facts, block_table

        facts["blocks"] = []
        for one in block_facts(args.size, args.rounds):
            print(f"measured: {one['batch']} x {one['length']}", flush=True)
            facts["blocks"].append(one)
        block_table(args.size, facts["blocks"]).show()
    if args.only != "blocks":
        from posenc_jax.evaluation.bench.inference import PEERS, bench_encoder

        workload = Workload(size=args.size, batch_size=args.batch_size, length=args.length, vocab_size=args.vocab_size)
        facts["encoders"] = []
        for work in PEERS:
            table, one = bench_encoder(dataclasses.replace(workload, work=work), args.rounds, args.passes)
            table.show()
            facts["encoders"].append(one)
    _write(args.json, facts)


def _compile(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.compilation import bench_compile

    table, facts = bench_compile(args.work, args.size, args.rounds)
    table.show()
    _write(args.json, facts)


def _prepare(args: argparse.Namespace) -> None:
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


def _states(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.states import bench_states

    table, facts = bench_states(args.workdir, args.source or ["docstrings:"], args.sentences)
    table.show()
    _write(args.json, facts)


def _kernels(args: argparse.Namespace) -> None:
    from posenc_jax.evaluation.bench.kernels import kernel_facts, kernel_table
    from posenc_jax.parallel.topologies import parse_topology

    topology, facts = parse_topology(args.topology), []
    for one in kernel_facts(topology, [args.only] if args.only else ("convolution", "attention")):
        print(f"compiled: {one['name']}", flush=True)
        facts.append(one)
    kernel_table(facts, topology).show()
    _write(args.json, {"topology": topology.name, "kernels": facts})


def _share_the_device() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share it


def _write(file: Path | None, facts: dict[str, Any]) -> None:
    if file:
        file.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax bench",
        description="Measures speed as a ratio to a peer's. The sides take turns in one run, so that a busy machine "
        "slows both.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    steps = kinds.add_parser("steps", formatter_class=WithDefaults, help="training steps")
    steps.add_argument(
        "--work", action="append", choices=("bert", "convbert", "electra"), help="one of them (all three)"
    )
    steps.add_argument("--steps", type=_positive, default=3, metavar="N", help="steps of a turn")
    steps.add_argument(
        "--against", choices=("transformers", "ours"), default="transformers", help="the peer; ours: our variants"
    )
    finetune = kinds.add_parser(
        "finetune", formatter_class=WithDefaults, help="fine-tuning on real lengths, against the recipe of run_glue"
    )
    finetune.add_argument("--data", type=Path, metavar="DIR", help="GLUE folder to take lengths from (CoLA's, counted)")
    finetune.add_argument("--task", default="CoLA", metavar="NAME", help="whose train split, with --data")
    finetune.add_argument("--vocab", type=Path, metavar="FILE", help="WordPiece vocabulary for --data (trained)")
    inference = kinds.add_parser(
        "inference",
        formatter_class=WithDefaults,
        help="mixed blocks against attention; the encoder against transformers'",
    )
    inference.add_argument("--only", choices=("blocks", "encoder"), help="one of the two")
    inference.add_argument("--passes", type=_positive, default=4, metavar="N", help="the encoder's, of a turn")
    compile_ = kinds.add_parser(
        "compile", formatter_class=WithDefaults, help="compiling 24 layers against 12, on a CPU"
    )
    compile_.add_argument("--work", choices=("bert", "convbert", "electra"), default="bert", help="what is trained")
    prepare = kinds.add_parser("prepare", formatter_class=WithDefaults, help="text to rows")
    prepare.add_argument("--source", action="append", help="as for `prepare` (docstrings:)")
    prepare.add_argument("--characters", type=_positive, default=5_000_000, metavar="N", help="text taken of it")
    prepare.add_argument(
        "--vocab-size", type=_positive, default=8192, metavar="N", help="pieces of trained vocabularies"
    )
    prepare.add_argument("--vocab", type=Path, metavar="FILE", help="WordPiece vocabulary of the peer (trained)")
    prepare.add_argument("--against", choices=("transformers",), default="transformers", help="the peer")
    states = kinds.add_parser(
        "states", formatter_class=WithDefaults, help="moments of an encoder's states over a corpus: time and memory"
    )
    states.add_argument("--workdir", type=Path, required=True, metavar="RUN", help="of `pretrain` or `import`")
    states.add_argument("--source", action="append", help="as for `prepare` (docstrings:)")
    states.add_argument("--sentences", type=_positive, default=10_000, metavar="N", help="read of it")
    kernels = kinds.add_parser(
        "kernels", formatter_class=WithDefaults, help="memory traffic of the Pallas kernels, compiled without a TPU"
    )
    kernels.add_argument("--topology", default="v5e:2x2", metavar="NAME", help="as for `preflight`")
    kernels.add_argument("--only", choices=("convolution", "attention"), help="one of the two kernels")

    for kind, size in ((steps, "small"), (finetune, "base"), (inference, "small"), (compile_, "base")):
        kind.add_argument("--size", choices=SIZES, default=size, help="as in configs/bert.py")
    for kind in (steps, finetune, inference):
        kind.add_argument("--batch-size", type=_positive, default=32, metavar="N", help="rows at once")
        kind.add_argument("--vocab-size", type=_positive, default=30_522, metavar="N", help="words")
    for kind, most in ((steps, ""), (finetune, ", at most"), (inference, " (the encoder's)"), (prepare, "")):
        kind.add_argument("--length", type=_positive, default=128, metavar="N", help=f"slots of a row{most}")
    for kind, rounds in ((steps, 5), (finetune, 3), (inference, 5), (compile_, 3), (prepare, 5)):
        kind.add_argument("--rounds", type=_positive, default=rounds, metavar="N", help="turns of each side")
    for kind in (finetune, inference, compile_, states, kernels):
        kind.add_argument("--json", type=Path, metavar="FILE", help="write the facts there, too")
    return parser


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


_positive.__name__ = "whole number above 0"  # what argparse calls it: "invalid whole number above 0 value: '0'"
