"""`variants`: what there is to choose from."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax variants",
        description="Shows every position scheme, compatibility and mixer: its source, the parameters it adds at base "
        "size, floating-point operations a word, and the configs that use it.",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown, for a file")
    args = parser.parse_args(argv)

    from posenc_jax.evaluation.variants import tables

    for table in tables():
        if args.markdown:
            print(table.markdown(), end="\n\n")
        else:
            table.show()
    return DONE
