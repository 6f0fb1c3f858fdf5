"""What the sides of a benchmark of training steps learn: the same words, as many of them masked, at the same places."""

import dataclasses

import numpy as np

from posenc_jax.config import Config
from posenc_jax.config_files import load_config

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
