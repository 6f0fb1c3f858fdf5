"""`report`: runs side by side."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax report",
        description="Shows runs side by side, finished or not: scheme, parameters, validation loss beside the unigram "
        "entropy of the same text, speed, scores. Writes report.md and the loss curves (curves.png).",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a workdir of `pretrain`")
    parser.add_argument("--out", metavar="DIR", help="where report.md and curves.png go (the first workdir)")
    args = parser.parse_args(argv)

    from posenc_jax.evaluation.report import print_report, write_report
    from posenc_jax.evaluation.runs import read_runs

    runs = read_runs(args.runs)
    path = write_report(runs, args.out or args.runs[0])
    print_report(runs)
    print(f"written to {path}, loss curves beside it")
    return DONE
