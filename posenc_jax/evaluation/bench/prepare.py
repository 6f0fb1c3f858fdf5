"""Text to rows, against transformers' fast tokenizer and the `group_texts` of its MLM example, on one core each."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from posenc_jax.data.shards import ShardJob, ShardMaker
from posenc_jax.data.sources import documents, source_list
from posenc_jax.data.tokenizer import SPECIALS, train_tokenizer
from posenc_jax.errors import UserError
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.tables import Table

PEER = "transformers' BertTokenizerFast and group_texts"
BATCH = 1000  # documents handed over at once, the default of the recipe's `map`

Pass = Callable[[], int]
"""Goes through all the text once; returns its tokens, special ones not counted."""


def bench_prepare(
    source: str | Sequence[str], *, characters: int, vocab_size: int, vocab: Path | None, length: int, rounds: int
) -> list[Table]:
    """Tokens and characters a CPU second of both sides, a table each.

    Takes the first `characters` of the source. Our tokenizer (unigram) is trained on them, and so is theirs
    (WordPiece, as many pieces) unless `vocab` names a vocabulary file. transformers must be installed.
    """
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")  # one core, as one worker of `prepare`
    texts = _first(documents(source, Counter()), characters)
    size = sum(map(len, texts))
    with tempfile.TemporaryDirectory() as folder:
        passes = {
            OURS: _ours(texts, Path(folder), vocab_size, length),
            PEER: _transformers(texts, Path(folder), vocab_size, vocab, length),
        }
        seconds: dict[str, list[float]] = {side: [] for side in passes}
        tokens = {side: one_pass() for side, one_pass in passes.items()}  # warm-up
        for number in range(rounds):
            for side in list(passes)[:: 1 if number % 2 == 0 else -1]:
                began = time.process_time()
                passes[side]()
                seconds[side].append(time.process_time() - began)
                print(
                    f"round {number + 1}: {side}  {size / seconds[side][-1]:,.0f} characters a CPU second", flush=True
                )
    caption = (
        f"{size:,} characters of {' and '.join(source_list(source))} in {len(texts):,} documents to rows of "
        f"{length}. {OURS}: cut into sentences, tokenize ({tokens[OURS]:,} tokens, unigram of {vocab_size:,}), pack, "
        "write; the peer: tokenize "
        f"({tokens[PEER]:,} tokens, {vocab or f'WordPiece of {vocab_size:,}'}), group, nothing written. CPU seconds of "
        "one process, tokenizers trained before."
    )
    return [
        ratio_table(caption, "tokens/CPU s", {side: [tokens[side] / one for one in seconds[side]] for side in passes}),
        ratio_table(
            "The same by characters.", "characters/CPU s", {s: [size / one for one in seconds[s]] for s in passes}
        ),
    ]


def _first(texts: Any, characters: int) -> list[str]:
    """The first documents, until they are `characters` long together."""
    chosen, size = [], 0
    for text in texts:
        chosen.append(text)
        size += len(text)
        if size >= characters:
            break
    return chosen


def _ours(texts: list[str], folder: Path, vocab_size: int, length: int) -> Pass:
    tokenizer = train_tokenizer(texts, folder / "tokenizer.model", vocab_size)
    make_shard = ShardMaker(tokenizer, "full_sentences", length)
    return lambda: make_shard(ShardJob(folder, folder, "train", 0, texts))["text_tokens"]


def _transformers(texts: list[str], folder: Path, vocab_size: int, vocab: Path | None, length: int) -> Pass:
    tokenizer = word_piece_tokenizer(texts, folder, vocab_size, vocab)

    def one_pass() -> int:
        count = 0
        for start in range(0, len(texts), BATCH):
            encoded = tokenizer(texts[start : start + BATCH], return_special_tokens_mask=True)
            count += sum(len(ids) - 2 for ids in encoded["input_ids"])
            group_texts(encoded, length)
        return count

    return one_pass


def word_piece_tokenizer(texts: list[str], folder: Path, vocab_size: int, vocab: Path | None) -> Any:
    """BertTokenizerFast of a vocabulary file, or of one of `vocab_size` trained on the texts and left in `folder`.

    Raises `UserError` where there is no such file.
    """
    import transformers

    if vocab is None:
        vocab = _train_wordpiece(texts, folder / "vocab.txt", vocab_size)
    elif not vocab.is_file():
        raise UserError(f"there is no vocabulary file {vocab}; one piece a line, as BERT's vocab.txt")
    pieces = {line.rstrip("\n"): number for number, line in enumerate(vocab.open(encoding="utf-8"))}
    transformers.logging.set_verbosity_error()
    # transformers 5 takes the vocabulary itself, 4 the file.
    given = {"vocab": pieces} if int(transformers.__version__.partition(".")[0]) >= 5 else {"vocab_file": str(vocab)}
    return transformers.BertTokenizerFast(**given, do_lower_case=True)


def group_texts(encoded: Any, length: int) -> dict[str, list]:
    """Everything joined and cut into pieces of `length`, as in transformers' run_mlm.py."""
    joined = {key: list(chain(*encoded[key])) for key in encoded}
    total = len(joined["input_ids"]) // length * length
    return {key: [values[i : i + length] for i in range(0, total, length)] for key, values in joined.items()}


def _train_wordpiece(texts: list[str], file: Path, vocab_size: int) -> Path:
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(texts, vocab_size=vocab_size, special_tokens=list(SPECIALS), show_progress=False)
    pieces = tokenizer.get_vocab()
    file.write_text("".join(f"{piece}\n" for piece in sorted(pieces, key=pieces.__getitem__)), encoding="utf-8")
    return file
