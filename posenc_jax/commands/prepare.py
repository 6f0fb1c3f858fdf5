"""`prepare`: text -> tokenizer and packed rows."""

import argparse
import time

from posenc_jax.commands import WithDefaults


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    from posenc_jax.data.prepare import prepare
    from posenc_jax.data.progress import show_progress, show_table
    from posenc_jax.data.rows import INFO_FILE, describe

    started = time.monotonic()
    settings = vars(args)
    source, out = settings.pop("source") or ["docstrings:"], settings.pop("out")
    existed = _exists(out, INFO_FILE)
    with show_progress() as progress:
        info = prepare(source, out, progress=progress, **settings)
    if existed:
        print(f"{out} is finished already; nothing to do")
    show_table(str(info.path), describe(info))
    if not existed:
        print(f"written in {time.monotonic() - started:.0f} s")
    return 0


def _exists(folder: str, file: str) -> bool:
    from pathlib import Path

    return Path(folder, file).is_file()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax prepare",
        description="Trains a tokenizer on text and packs the text into rows for pre-training. Run again, it goes on.",
        formatter_class=WithDefaults,
    )
    parser.add_argument(
        "--source",
        action="append",
        help="docstrings:[PACKAGE,...] (default; the documentation of installed packages), text:PATH, jsonl:PATH[#KEY] "
        "or tfds:NAME[:SPLIT][#KEY]; PATH is a file, folder or glob, .gz and .zst are read; may be given several times",
    )
    parser.add_argument("--out", required=True, help="folder for tokenizer.model, shards and rows.json")
    parser.add_argument("--length", type=int, default=128, help="slots of a row, special tokens among them")
    parser.add_argument(
        "--packing",
        choices=("full_sentences", "documents", "document_per_row"),
        default="full_sentences",
        help="RoBERTa's FULL-SENTENCES, several documents a row kept apart, or one document a row",
    )
    parser.add_argument("--vocab-size", type=int, default=8192, help="pieces, the five special ones among them")
    parser.add_argument("--tokenizer-kind", choices=("unigram", "bpe"), default="unigram", help="sentencepiece model")
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help="fold case")
    parser.add_argument("--tokenizer", help="a tokenizer.model to use in place of a new one")
    parser.add_argument(
        "--holdout",
        type=float,
        default=0.02,
        help="share of the documents held out for validation: every k-th, k being 1 / share rounded",
    )
    parser.add_argument("--workers", type=int, help="processes (default: one a processor)")
    parser.add_argument("--shard-characters", type=int, help="text of a shard (default: by the size of the corpus)")
    return parser
