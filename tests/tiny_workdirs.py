"""Workdirs as `pretrain` leaves them, with an encoder of random weights over a small vocabulary."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from posenc_jax.config import Config, ModelConfig, PositionConfig, config_to_dict
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.model.encoder import Encoder
from posenc_jax.training.checkpoint import save_params
from tests.variants import random_params

WORDS = (
    "the a old young tall small man woman dog horse child plays eats sees runs sleeps guitar bread river house "
    "slowly gladly never often under over bank board hook ."
).split()
LENGTH = 48


def sentences(count: int, seed: int, longest: int = 20) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest))) for _ in range(count)]


def write_workdir(folder: Path, std: float = 0.1, **changes) -> Path:
    """Two layers of width 32 and rows of `LENGTH` slots."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(sentences(300, 0), folder / "tokenizer.model", 90, "bpe")
    settings = dict(layers=2, width=32, heads=2, feed_forward_width=48, dtype="float32", dropout=0.0)
    settings |= dict(vocab_size=tokenizer.vocab_size, positions=PositionConfig(max_length=LENGTH))
    model = ModelConfig(**{**settings, **changes})
    word_1x8 = jnp.ones((1, 8), jnp.int32)
    (folder / "config.json").write_text(json.dumps(config_to_dict(Config(model=model))))
    (folder / "rows.json").write_text(json.dumps({"length": LENGTH, "tokenizer_sha256": tokenizer.sha256}))
    save_params(folder, {"encoder": random_params(Encoder(model), word_1x8, word_1x8, std=std)})
    return folder
