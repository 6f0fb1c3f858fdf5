"""`wic`: is a word used in one sense in two sentences? A threshold on the cosine answers, without training."""

import argparse
import re
import sys

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax wic",
        description="Scores a pre-trained encoder on Word in Context without training: two uses of a word have one "
        "sense when the cosine of their vectors is above a threshold. Layer and threshold are the best on SPLIT; the "
        "other splits under DIR are held out.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a workdir of `pretrain` or `import`")
    parser.add_argument("--data", required=True, metavar="DIR", help="holds DIR/train/train.data.txt and so on")
    parser.add_argument(
        "--split",
        default="train",
        choices=("train", "dev", "test"),
        help="where layer and threshold are chosen (train)",
    )
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--clip",
        metavar="DIMS|auto",
        help="also with these dimensions of all vectors set to 0, as 557,77; auto finds the outliers that persist",
    )
    change.add_argument(
        "--transform",
        choices=("center", "standardize", "all_but_the_top"),
        help="also with this done to the vectors, as estimated on the task's own sentences",
    )
    args = parser.parse_args(argv)
    if args.clip not in (None, "auto") and not re.fullmatch(r"\d+(,\d+)*", args.clip):
        parser.error(f"--clip {args.clip} is not auto, or dimensions such as 557,77")

    from posenc_jax.evaluation.similarity.wic import run_wic, tables
    from posenc_jax.evaluation.tables import REPORT_FILE

    settings = {"split": args.split, "change": f"clip {args.clip}" if args.clip else args.transform}
    record = run_wic(args.workdir, args.data, **settings, say=lambda line: print(line, file=sys.stderr))
    for table in tables(record):
        table.show()
    for note in record["notes"]:
        print(note)
    print(f"{record['seconds']:.0f} s; also in {args.workdir}/{REPORT_FILE}")
    return DONE
