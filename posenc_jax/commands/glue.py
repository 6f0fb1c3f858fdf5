"""`glue`: a workdir's encoder fine-tuned and scored on tasks in the GLUE layout."""

import argparse
import signal
import sys

from posenc_jax.errors import DONE, FAILED, PREEMPTED

PROTOCOLS = "tupe, electra, convbert, symmetric, quick, default"


def main(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("seeds", "epochs", "batch_size", "jobs"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least 1")
    for rate in args.learning_rate or ():
        if not 0 < rate < float("inf"):
            parser.error(f"--learning-rate {rate} must be above 0")
    tasks = list(dict.fromkeys(filter(None, (name.strip() for name in args.tasks.split(",")))))
    if not tasks:
        parser.error("--tasks names no task")

    from posenc_jax.evaluation.glue.grid import score_tasks, told
    from posenc_jax.evaluation.glue.protocols import find_protocol, override
    from posenc_jax.evaluation.glue.tables import print_scores
    from posenc_jax.evaluation.tables import REPORT_FILE

    protocol = override(
        find_protocol(args.protocol),
        seeds=args.seeds,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rates=args.learning_rate,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        outcome = score_tasks(
            args.workdir,
            args.data,
            tasks,
            protocol,
            from_scratch=args.from_scratch,
            processes=args.jobs,
            test=args.test,
        )
    except KeyboardInterrupt:
        print("interrupted; finished runs stay: run the same line again to go on", file=sys.stderr, flush=True)
        return PREEMPTED
    print_scores(outcome.records + outcome.failed)
    for line in outcome.skipped:
        print(line)
    print(f"all scores of this run: {args.workdir}/{REPORT_FILE}")
    if outcome.failed:
        print(f"error: {told(outcome.failed)}", file=sys.stderr)
    return FAILED if outcome.failed else DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax glue",
        description="Fine-tunes a pre-trained encoder and scores it on the dev sets, beside the majority baseline. "
        "Runs that are done are skipped, so an interrupted line is simply run again.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="of `pretrain` or `import`; gets the scores")
    parser.add_argument(
        "--data", required=True, metavar="DIR", help="holds DIR/CoLA/train.tsv and so on; or tfds, tfds:DATA_DIR"
    )
    parser.add_argument(
        "--tasks", required=True, metavar="A,B",
        help="all (of GLUE what is there), or CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, or the probes "
        "order, next",
    )  # fmt: skip
    parser.add_argument(
        "--protocol", default="default", metavar="P",
        help=f"grid, recipe, aggregation and average as published or ours: {PROTOCOLS} (default)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, metavar="N", help="runs a task and rate, in place of the protocol's")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the training rows, likewise")
    parser.add_argument("--batch-size", type=int, metavar="N", help="rows a step, likewise")
    parser.add_argument("--learning-rate", type=_rates, metavar="X[,X]", help="peak rates of the grid, likewise")
    parser.add_argument("--from-scratch", action="store_true", help="fresh weights: what pre-training must beat")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that share the runs (1)")
    parser.add_argument("--test", action="store_true", help="also answer the test files, for `submit`")
    return parser


def _rates(words: str) -> list[float]:
    try:
        return [float(word) for word in words.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write numbers with commas between them") from None
