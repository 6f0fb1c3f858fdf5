"""`probes`: any text -> the order and next probe tasks, for `glue --tasks order,next`."""

import argparse
from collections import Counter

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax probes",
        description="Makes two tasks from any text: were two neighbouring words exchanged (order), and does the second "
        "sentence follow the first (next). `glue --data OUT --tasks order,next` scores an encoder on them.",
    )
    parser.add_argument("--source", required=True, action="append", help="as for `prepare`; may be given several times")
    parser.add_argument("--out", required=True, metavar="DIR", help="gets order/ and next/ with train.tsv and dev.tsv")
    parser.add_argument("--rows", type=int, default=20_000, metavar="N", help="at most N training rows a task (20000)")
    parser.add_argument("--dev-rows", type=int, default=2_000, metavar="N", help="at most N dev rows a task (2000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for name, value in (("--rows", args.rows), ("--dev-rows", args.dev_rows)):
        if value < 4:
            parser.error(f"{name} {value} is too few; the least is 4")

    from posenc_jax.data.probes import write_probes
    from posenc_jax.data.sentences import split_sentences
    from posenc_jax.data.sources import documents

    texts = (split_sentences(document) for document in documents(args.source, Counter()))
    written = write_probes(texts, args.out, rows=args.rows, dev_rows=args.dev_rows, seed=args.seed)
    for task, splits in written.items():
        print(f"{args.out}/{task}: " + ", ".join(f"{count:,} {split} rows" for split, count in splits.items()))
    return DONE
