"""`squad`: a workdir's encoder fine-tuned to answer questions from a passage."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax squad",
        description="Fine-tunes a pre-trained encoder on a SQuAD file (1.1 or 2.0) and scores its answers on another. "
        "A run that is done is not done again; one that is interrupted starts anew.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="of `pretrain` or `import`; gets the scores")
    parser.add_argument("--train", required=True, metavar="FILE.json", help="questions to learn")
    parser.add_argument("--dev", required=True, metavar="FILE.json", help="questions to answer")
    parser.add_argument("--version", choices=("1.1", "2.0"), help="how to score (what the dev file is)")
    parser.add_argument(
        "--protocol", default="quick", metavar="NAME", help="electra, convbert, paddle or quick (quick)"
    )
    parser.add_argument(
        "--head", choices=("joint", "plain"), help="ELECTRA's beam of starts and ends, or BERT's two logits (joint)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the training windows (2)")
    parser.add_argument("--batch-size", type=int, metavar="N", help="windows a step (32; paddle, quick 16)")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="peak rate (by protocol and model width)")
    parser.add_argument(
        "--length", type=int, metavar="N", help="slots of a window (512; quick 384; at most the model's)"
    )
    parser.add_argument("--stride", type=int, metavar="N", help="tokens between the starts of two windows (128)")
    parser.add_argument("--train-rows", type=int, metavar="N", help="so many training questions, evenly spaced")
    parser.add_argument("--dev-rows", type=int, metavar="N", help="so many dev questions, evenly spaced")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of head, order and dropout (0)")
    parser.add_argument("--from-scratch", action="store_true", help="fresh weights: what pre-training must beat")
    args = parser.parse_args(argv)
    for name in ("epochs", "batch_size", "length", "stride", "train_rows", "dev_rows"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least 1")
    if args.learning_rate is not None and not 0 < args.learning_rate < float("inf"):
        parser.error(f"--learning-rate {args.learning_rate} must be above 0")
    if args.seed < 0:
        parser.error(f"--seed {args.seed} must not be negative")

    from posenc_jax.evaluation.squad.records import squad_table
    from posenc_jax.evaluation.squad.run import run_squad

    record = run_squad(**vars(args))
    squad_table([record]).show()
    for note in record["notes"]:
        print(f"note: {note}")
    print(f"answers and all scores of this run: {args.workdir}/squad")
    return DONE
