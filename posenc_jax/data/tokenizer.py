"""Sentencepiece tokenizers whose special ids are always the same.

[MASK] is a control symbol, as [CLS] and [SEP] are: such pieces have an id but are never produced from text, so that a
literal "[MASK]" in a document stays the ordinary characters it is.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from posenc_jax.errors import UsageError, UserError

SPECIALS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
PAD, UNK, CLS, SEP, MASK = SPECIALS.values()


class Specials(NamedTuple):
    """Ids of a tokenizer's special tokens; the defaults are those of every tokenizer trained here."""

    pad: int = PAD
    unk: int = UNK
    cls: int = CLS
    sep: int = SEP
    mask: int = MASK


OURS = Specials()

MAX_SENTENCE_BYTES = 4192  # sentencepiece's default; it drops longer sentences without a word, so they are cut first
TRAINING_THREADS = 4  # fixed: the sums of unigram training depend on how many threads add them up


class Tokenizer:
    """A trained sentencepiece model. Picklable, so that worker processes can be handed one."""

    def __init__(self, proto: bytes, origin: str | Path = "the tokenizer") -> None:
        """Raises `UserError` for bytes that are no sentencepiece model, or one with other special ids."""
        import sentencepiece

        sentencepiece.set_min_log_level(2)  # it otherwise logs to stderr what the exception says as well
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except RuntimeError as error:
            raise UserError(f"{origin} is not a sentencepiece model, or it is damaged") from error
        self.proto = proto
        self.sha256 = hashlib.sha256(proto).hexdigest()
        self.vocab_size: int = self._model.get_piece_size()
        self.specials = self.pad, self.unk, self.cls, self.sep, self.mask = OURS
        for piece, number in SPECIALS.items():
            if number >= self.vocab_size or self.id_to_piece(number) != piece:
                raise UserError(f"{origin} does not have {piece} at id {number}; it was not trained by `prepare`")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Reads a `tokenizer.model`. Raises `UserError` if it is missing or not one of ours."""
        try:
            proto = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise UserError(f"there is no tokenizer {path}") from error
        except IsADirectoryError as error:
            raise UserError(f"{path} is a folder; name the tokenizer.model in it") from error
        return cls(proto, path)

    def __reduce__(self) -> tuple:
        return Tokenizer, (self.proto,)

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without [CLS] and [SEP]; never a special id but [UNK]."""
        return self._model.encode(text)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """`encode` of each text, in one call and on one thread."""
        return self._model.encode(texts, num_threads=1)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """`encode`, and for each id the characters [start, end) of `text` it stands for, the space before a word among
        them. Of a character that became several pieces ("½") the last has it, and the others have no characters."""
        if hasattr(self._model, "encode_as_offset_mapping"):
            found = self._model.encode_as_offset_mapping(text)
            return list(found["ids"]), [(int(start), int(end)) for start, end in found["offsets"]]
        pieces = self._model.encode(text, out_type="immutable_proto").pieces  # sentencepiece before 0.2.3
        return [piece.id for piece in pieces], [(piece.begin, piece.end) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ids are left out, [UNK] shows as " ⁇ "."""
        return self._model.decode([int(number) for number in ids])

    def id_to_piece(self, number: int) -> str:
        """The piece of an id; "▁" at its start marks the start of a word."""
        return self._model.id_to_piece(int(number))

    def word_starts(self) -> list[bool]:
        """Of each id, whether it begins a word, words being what white space divides; special pieces do."""
        return [n < len(SPECIALS) or self.id_to_piece(n).startswith("▁") for n in range(self.vocab_size)]


def train_tokenizer(
    texts: Iterable[str],
    out: str | Path,
    vocab_size: int,
    kind: Literal["unigram", "bpe"] = "unigram",
    lowercase: bool = True,
) -> Tokenizer:
    """Trains a tokenizer on `texts` and writes it to `out`, whole or not at all.

    The model is a function of the arguments alone: threads are fixed, nothing is sampled. Text is normalised by NFKC
    as sentencepiece does it, and case-folded with `lowercase`. Raises `UsageError` when the text allows no vocabulary
    of that size.
    """
    import sentencepiece

    if vocab_size <= len(SPECIALS):
        raise UsageError(f"a vocabulary of {vocab_size} has no room beside the {len(SPECIALS)} special pieces")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_short_sentences(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            **{f"{name}_id": number for name, number in zip(("pad", "unk", "bos", "eos"), range(4), strict=True)},
            **{f"{name}_piece": piece for name, piece in zip(("pad", "unk", "bos", "eos"), SPECIALS, strict=False)},
            control_symbols=["[MASK]"],
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(str(error), vocab_size) from error
    tokenizer = Tokenizer(model.getvalue())
    part = Path(f"{out}.part")
    with open(part, "wb") as file:
        file.write(tokenizer.proto)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, out)
    return tokenizer


def _short_sentences(texts: Iterable[str]) -> Iterator[str]:
    """Lines no longer than sentencepiece takes, cut between words where there are any."""
    most = MAX_SENTENCE_BYTES // 4  # a character is at most four bytes
    for text in texts:
        for line in text.splitlines():
            start = 0
            while start < len(line):
                end = start + most
                if end < len(line):
                    space = line.rfind(" ", start + 1, end)
                    end = space if space > 0 else end
                if piece := line[start:end].strip():
                    yield piece
                start = end


def _training_error(message: str, vocab_size: int) -> UserError:
    if found := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        return UsageError(
            f"a vocabulary of {vocab_size} is larger than the text allows; {found[1]} is the largest this text can fill"
        )
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return UsageError(
            f"a vocabulary of {vocab_size} cannot hold the text's characters and the special pieces; "
            f"the least is {found[1]}"
        )
    if "sentences_.empty()" in message:
        return UserError("the text has no sentence to train a tokenizer on")
    return UserError(f"sentencepiece could not train a tokenizer: {message}")
