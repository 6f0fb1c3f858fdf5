"""Files of BERT's and RoBERTa's tokenizers over a small vocabulary, made on the spot."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and over the lazy cat; again.",
    "Films of good actors are good films: words of one kind, words of another kind.",
    "Ein Café, naïve Ärzte und 東京 sind 100% anders!",
]
LETTERS = [chr(number) for number in range(33, 127)]
WORDS = ["the", "quick", "fox", "over", "lazy", "film", "##lms", "good", "bad", "word", "cafe", "Café", "The", "ca"]
TAILS = [f"##{letter}" for letter in LETTERS if letter.isalnum()]
PIECES = ["[PAD]", "[unused0]", *LETTERS, "東", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *TAILS]
"""The special ones not at the start, as in BERT's own vocabulary."""


def write_word_piece(folder: Path, **settings) -> Path:
    """vocab.txt, and tokenizer_config.json where there are settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", "utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_byte_level(folder: Path) -> Path:
    """vocab.json and merges.txt with RoBERTa's special tokens in RoBERTa's places."""
    from tokenizers import ByteLevelBPETokenizer

    folder.mkdir(parents=True, exist_ok=True)
    model = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    model.train_from_iterator(TEXTS * 5, vocab_size=320, min_frequency=2, special_tokens=specials, show_progress=False)
    model.save_model(str(folder))
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    (folder / "vocab.json").write_text(json.dumps({**vocab, "<mask>": len(vocab)}), "utf-8")
    return folder
