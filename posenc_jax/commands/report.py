"""`report`: runs side by side."""

import argparse
import shlex
from pathlib import Path

from posenc_jax.errors import DONE, UsageError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax report",
        description="Shows runs side by side, finished or not: scheme, parameters, validation loss beside the unigram "
        "entropy of the same text, speed, scores. Writes report.html, one page with nothing to fetch (tables, learning "
        "curves, what the encoders made of positions, outliers and geometry of their states, commands), and report.md.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a workdir of `pretrain` or `import`")
    parser.add_argument("--out", metavar="DIR", help="where the files go (the first workdir)")
    parser.add_argument(
        "--text", metavar="SOURCE",
        help="what the encoders read: a file, or a source as `prepare` takes; without it each run's held-out rows, or "
        "the documentation of installed packages",
    )  # fmt: skip
    parser.add_argument("--no-encoders", action="store_true", help="tables and curves alone: loads no weights")
    args = parser.parse_args(argv)
    if args.text and args.no_encoders:
        parser.error("--text is for the encoders, which --no-encoders leaves out")

    from posenc_jax.evaluation.page.build import write_page
    from posenc_jax.evaluation.report import print_report, write_report
    from posenc_jax.evaluation.runs import read_runs

    runs, out = read_runs(args.runs), Path(args.runs[0] if args.out is None else args.out)
    if args.out is not None:
        _make_folder(args.out)
    command = f"python -m posenc_jax report {shlex.join(argv)}"
    page = write_page(runs, out, encoders=not args.no_encoders, text=args.text, command=command)  # refuses a bad --text
    path = write_report(runs, out)
    print_report(runs)
    print(f"written to {page}, the tables alone to {path}")
    return DONE


def _make_folder(out: str) -> None:
    try:
        if not out:
            raise NotADirectoryError(None, "it is empty")
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out!r} is no folder that files can go to ({error.strerror}); name another") from error
