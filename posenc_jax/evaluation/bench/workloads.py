"""What the sides of a benchmark work on: the same words, as many of them masked, at the same places."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from posenc_jax.config import Config, ModelConfig
from posenc_jax.config_files import load_config
from posenc_jax.data.tokenizer import CLS, PAD, SEP

IGNORED = -100  # transformers' label of a position that is not predicted
BATCHES = 4  # that the steps go round

WORKS = {
    "bert": "configs/bert.py:bert_a",
    "convbert": "configs/convbert.py:convbert_mlm",
    "electra": "configs/electra.py:electra",
}
"""What transformers has, too: masked words by BERT and by ConvBERT, replaced words by ELECTRA."""
VARIANTS = {
    "bert_a": "configs/tupe.py:bert_a",
    "tupe_a": "configs/tupe.py:tupe_a",
    "tupe_r": "configs/tupe.py:tupe_r",
    "dot product": "configs/symmetric.py:bert",
    "pairwise": "configs/symmetric.py:pairwise",
}
"""Of ours."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """An encoder of one of the shipped sizes, float32, dropout 0.1, AdamW, clipping."""

    work: str = "bert"
    size: str = "small"
    batch_size: int = 32
    length: int = 128
    vocab_size: int = 30_522

    @property
    def config(self) -> Config:
        changes = {
            "model.vocab_size": self.vocab_size, "model.dtype": "float32", "model.scan": False, "model.norm": "post",
            "model.dropout": 0.1, "model.attention_dropout": 0.1,
        }  # fmt: skip
        return load_config(f"{ {**WORKS, **VARIANTS}[self.work] },{self.size},length={self.length}", changes)

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.length

    def words(self) -> list[np.ndarray]:
        """int32 [batch_size, length] ordinary words, `BATCHES` times."""
        draw = np.random.default_rng(0).integers
        return [draw(5, self.vocab_size, (self.batch_size, self.length), np.int32) for _ in range(BATCHES)]

    def masked_batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(tokens, labels) int32 [B, L] as transformers wants them, masked by the rule our own step masks with."""
        import jax

        from posenc_jax.data.masking import mask_tokens

        batches, rule = [], self.config.mlm
        row_B = np.arange(self.batch_size, dtype=np.int32)
        for number, words_BxL in enumerate(self.words()):
            masked = jax.device_get(mask_tokens(jax.random.key(number), words_BxL, row_B, self.vocab_size, rule))
            labels_BxL = np.full_like(words_BxL, IGNORED)
            chosen_BxM = np.where(masked["predicted_weight"] > 0, masked["target"], IGNORED)
            np.put_along_axis(labels_BxL, masked["predicted"], chosen_BxM, axis=1)
            batches.append((masked["tokens"], labels_BxL))
        return batches


COLA = {
    4: 7, 5: 129, 6: 310, 7: 649, 8: 979, 9: 1154, 10: 1129, 11: 916, 12: 797, 13: 574, 14: 453, 15: 334, 16: 235,
    17: 182, 18: 145, 19: 124, 20: 96, 21: 66, 22: 67, 23: 66, 24: 41, 25: 26, 26: 21, 27: 17, 28: 6, 29: 8, 30: 6,
    31: 1, 32: 8, 33: 1, 35: 1, 37: 1, 40: 1, 47: 1,
}  # fmt: skip
"""Slots -> how many of the 8,551 sentences of CoLA's train.tsv take them: counted by us in pieces of BERT's uncased
vocabulary, with [CLS] and [SEP]."""


@dataclasses.dataclass(frozen=True)
class Finetuning:
    """BERT with a classifier of two classes on texts of these lengths: float32, dropout 0.1, AdamW, clipping."""

    lengths: tuple[int, ...] = tuple(slots for slots, count in COLA.items() for _ in range(count))
    """Slots of each text, [CLS] and [SEP] among them."""
    size: str = "base"
    batch_size: int = 32
    limit: int = 128
    """Slots that no text exceeds, and to which run_glue pads."""
    vocab_size: int = 30_522

    @property
    def model(self) -> ModelConfig:
        """With BERT's two types of tokens."""
        changes = {
            "model.vocab_size": self.vocab_size, "model.dtype": "float32", "model.norm": "post",
            "model.token_types": 2, "model.dropout": 0.1, "model.attention_dropout": 0.1,
        }  # fmt: skip
        return load_config(f"configs/bert.py:bert_a,{self.size}", changes).model

    def texts(self) -> list[list[int]]:
        """Ids of each text without [CLS] and [SEP], in an order that has nothing to do with length."""
        rng = np.random.default_rng(0)
        lengths_N = np.minimum(rng.permutation(self.lengths), self.limit)
        return [rng.integers(5, self.vocab_size, max(1, length - 2)).tolist() for length in lengths_N]

    def labels(self) -> np.ndarray:
        """int32 [texts]."""
        return np.random.default_rng(1).integers(0, 2, len(self.lengths), np.int32)


def padded_batches(work: Finetuning, to_limit: bool, steps: int) -> list[dict[str, np.ndarray]]:
    """`steps` of an epoch's batches (`typical`) as transformers' examples make them: texts in random order, padded to
    the limit or to the longest of a batch. "tokens", "segments" int32 [B, L], "labels", "weight" [B]."""
    rows, labels_N = [[CLS, *text, SEP] for text in work.texts()], work.labels()
    parts = [range(start, min(start + work.batch_size, len(rows))) for start in range(0, len(rows), work.batch_size)]
    slots = [work.limit if to_limit else max(len(rows[row]) for row in part) for part in parts]
    batches = []
    for place in typical(slots, steps):
        tokens_BxL = np.full((len(parts[place]), slots[place]), PAD, np.int32)
        for row_L, row in zip(tokens_BxL, parts[place], strict=True):
            row_L[: len(rows[row])] = rows[row]
        batches.append({
            "tokens": tokens_BxL, "segments": (tokens_BxL != PAD).astype(np.int32),
            "labels": labels_N[list(parts[place])], "weight": np.ones(len(tokens_BxL), np.float32),
        })  # fmt: skip
    return batches


def typical(lengths: Sequence[int], count: int) -> list[int]:
    """Places of `count` of an epoch's batches that stand for all: evenly spaced in the order of their lengths, each
    the middle of its share."""
    order = np.argsort(lengths, kind="stable")
    return [int(order[int((number + 0.5) * len(order) / count)]) for number in range(count)]
