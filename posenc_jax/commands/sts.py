"""`sts`: how well cosines of sentence vectors agree with people, layer by layer, without training."""

import argparse
import re
import sys

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax sts",
        description="Scores a pre-trained encoder on sentence similarity without training: STS12 to STS16, STS-B and "
        "SICK-R, whichever are under DIR. A sentence is the mean of its subword vectors.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a workdir of `pretrain` or `import`")
    parser.add_argument("--data", required=True, metavar="DIR", help="STS12/, STSB/, SICK/ ...; SentEval's or GLUE's")
    parser.add_argument("--layers", default="all", metavar="all|last|N", help="which layers; 0 is the input (all)")
    parser.add_argument("--specials", action="store_true", help="[CLS] and [SEP] are part of the mean")
    parser.add_argument("--split", default="test", choices=("test", "dev", "train"), help="(test)")
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
    if args.layers not in ("all", "last") and not args.layers.isdecimal():
        parser.error(f"--layers {args.layers} is not all, last or a number")

    from posenc_jax.evaluation.similarity.sts import run_sts, tables
    from posenc_jax.evaluation.tables import REPORT_FILE

    settings = {"split": args.split, "layers": args.layers, "specials": args.specials}
    settings["change"] = f"clip {args.clip}" if args.clip else args.transform
    record = run_sts(args.workdir, args.data, **settings, say=lambda line: print(line, file=sys.stderr))
    for table in tables(record):
        table.show()
    for note in record["notes"]:
        print(note)
    print(f"{record['seconds']:.0f} s; also in {args.workdir}/{REPORT_FILE}")
    return DONE
