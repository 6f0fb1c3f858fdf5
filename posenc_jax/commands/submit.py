"""`submit`: the zip for the GLUE leaderboard."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax submit",
        description="Writes the zip that gluebenchmark.com takes, from what `glue --test` answered: of each task the "
        "run with the best dev score. Labels, indices and row counts are checked against the leaderboard's.",
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a workdir that `glue --test` scored")
    parser.add_argument("--out", required=True, metavar="ZIP", help="the file to write")
    parser.add_argument("--protocol", metavar="P", help="only runs of this protocol (all)")
    parser.add_argument("--partial", action="store_true", help="write it though tasks are missing")
    args = parser.parse_args(argv)

    from posenc_jax.evaluation.glue.submit import submission_table, submit

    submission = submit(args.workdir, args.out, protocol=args.protocol, partial=args.partial)
    submission_table(submission).show()
    for line in submission.notes:
        print(line)
    if submission.missing:
        print(f"left out: {', '.join(submission.missing)}; the leaderboard takes complete submissions only")
    print(f"written and read back: {submission.path}")
    return DONE
