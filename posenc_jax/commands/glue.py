"""`glue`: a workdir's encoder fine-tuned and scored on tasks in the GLUE layout."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax glue",
        description="Fine-tunes a pre-trained encoder and scores it on the dev sets, beside the majority baseline. "
        "Jobs that are done are skipped, so an interrupted line is simply run again.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a workdir of `pretrain`; gets the scores")
    parser.add_argument("--data", required=True, metavar="DIR", help="holds DIR/CoLA/train.tsv and dev.tsv, and so on")
    parser.add_argument(
        "--tasks", required=True, metavar="A,B", help="CoLA, SST-2, MRPC, STS-B, RTE, or the probes order, next"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs a task, seeds 0 to N-1 (1)")
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the training rows (10, and 3 where there are over 10,000)"
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="rows a step (32)")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="peak rate (5e-5 * 768 / model width)")
    parser.add_argument("--from-scratch", action="store_true", help="fresh weights: what pre-training must beat")
    args = parser.parse_args(argv)
    for name in ("seeds", "epochs", "batch_size"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least 1")
    if args.learning_rate is not None and not 0 < args.learning_rate < float("inf"):
        parser.error(f"--learning-rate {args.learning_rate} must be above 0")
    tasks = list(dict.fromkeys(filter(None, (name.strip() for name in args.tasks.split(",")))))
    if not tasks:
        parser.error("--tasks names no task")

    from posenc_jax.evaluation.glue import run_glue
    from posenc_jax.evaluation.tables import REPORT_FILE, print_table

    records = run_glue(
        args.workdir,
        args.data,
        tasks,
        seeds=args.seeds,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        from_scratch=args.from_scratch,
    )
    print_table(records)
    print(f"all scores of this run: {args.workdir}/{REPORT_FILE}")
    return DONE
