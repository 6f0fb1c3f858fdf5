"""The order probe measures positions: blind to them an encoder is at chance, with any scheme it is not.

The text is a small grammar in which every place of a sentence has its own kind of word, so that an exchange of two
neighbours is plain to see, for whoever sees places.
"""

import math
import random

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.data.probes import write_probes
from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.evaluation.glue.batches import make_buckets
from posenc_jax.evaluation.glue.finetune import Bench, fine_tune, make_objective
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, override
from posenc_jax.parallel.mesh import AXES

KINDS = (
    "the a this every",
    "old small quiet yellow brave happy",
    "dog farmer child river teacher horse",
    "often never slowly gladly",
    "sees follows finds likes paints hears",
    "some many few most",
    "green tall broken strange shiny",
    "houses trees boats letters apples.",
)
DEV_ROWS = 1000


def sentence(rng: random.Random) -> str:
    words = [rng.choice(kind.rstrip(".").split()) for kind in KINDS]
    return " ".join(words).capitalize() + "."


@pytest.fixture(scope="module")
def order_probe(tmp_path_factory):
    out, rng = tmp_path_factory.mktemp("order"), random.Random(0)
    documents = [[sentence(rng) for _ in range(20)] for _ in range(300)]
    write_probes(documents, out, rows=4000, dev_rows=DEV_ROWS)
    tokenizer = train_tokenizer((text for document in documents for text in document), out / "tokenizer.model", 64)
    splits = [load_split(out, TASKS["order"], split) for split in ("train", "dev")]
    return tokenizer, [make_buckets(split, tokenizer, 32) for split in splits]


@pytest.mark.parametrize("scheme", ["none", "learned", "tupe+t5"])
def test_the_order_probe_needs_positions(order_probe, scheme):
    tokenizer, (train, dev) = order_probe
    model = ModelConfig(
        layers=2,
        width=64,
        heads=4,
        feed_forward_width=128,
        vocab_size=tokenizer.vocab_size,
        positions=PositionConfig(scheme=scheme, max_length=32, untie_cls=scheme == "tupe+t5"),
        norm="pre",
        init_std=0.1,
        dropout=0.0,
        attention_dropout=0.0,
    )
    settings = override(PROTOCOLS["default"], epochs=2).settings(TASKS["order"], model, 32, sum(map(len, train)))
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)
    objective = make_objective(TASKS["order"], model, settings)
    result, _ = fine_tune(Bench(TASKS["order"], settings, mesh, objective, train, {"dev": dev}, {}), None, 2e-3, seed=0)
    column = result["columns"]["order"]
    assert column["rows"] == DEV_ROWS and column["majority"] == 0.5
    three_sigma = 3 * math.sqrt(0.25 / DEV_ROWS)
    if scheme == "none":
        assert abs(result["score"] - 0.5) <= three_sigma
    else:
        assert result["score"] > 0.65
