"""Numbers of parameters as published, or as counted from the published programs; shapes alone, nothing is made."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.extend.core import jaxprs_in_params

from posenc_jax.config import CompatibilityConfig, ModelConfig, PositionConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.heads import RtdHead
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.training.state import count_parameters
from tests.variants import SCHEMES, small_model

WORD = jax.ShapeDtypeStruct((1, 8), jnp.int32)
BERT = dict(vocab_size=30_522, token_types=2)
SMALL = dict(layers=12, width=256, heads=4, feed_forward_width=1024, embedding_width=128)
MEDIUM_SMALL = dict(layers=12, width=384, heads=8, feed_forward_width=1536, embedding_width=128, feed_forward_groups=2)
BASE = dict(layers=12, width=768, heads=12, feed_forward_width=3072)
LARGE = dict(layers=24, width=1024, heads=16, feed_forward_width=4096)


def tree(module, *arguments):
    return nn.unbox(jax.eval_shape(module.init, jax.random.key(0), *arguments))["params"]


def encoder(**settings):
    return tree(Encoder(ModelConfig(**settings)), WORD, WORD)


@pytest.mark.parametrize(
    ("scheme", "count"), [("bert_a", 111_239_936), ("tupe_a", 112_423_424), ("tupe_r", 112_423_820)]
)
def test_tupe_base_with_its_head(scheme, count):
    """tupe.md 1.1, at a vocabulary of 32,768."""
    model = ModelConfig(**BASE, vocab_size=32_768, positions=PositionConfig(**SCHEMES[scheme]))
    assert count_parameters(nn.unbox(jax.eval_shape(Mlm(model).init, jax.random.key(0)))) == count


@pytest.mark.parametrize(
    ("size", "total", "layer", "head"),
    [(SMALL, 13_143_768, 761_490, 66_049), (MEDIUM_SMALL, 17_475_888, 1_121_124, 148_225),
     (BASE, 105_680_520, 6_820_278, 591_361)],
    ids=["small", "medium_small", "base"],
)  # fmt: skip
def test_convbert(size, total, layer, head):
    """convbert_and_electra.md 2: encoder with embeddings, one layer, the head that tells replaced words."""
    params = encoder(**size, **BERT, mixer="mixed")
    assert count_parameters(params) == total
    assert count_parameters(params["layers"]) == 12 * layer
    hidden = jax.ShapeDtypeStruct((1, 8, size["width"]), jnp.float32)
    assert count_parameters(tree(RtdHead(ModelConfig(**size)), hidden)) == head


@pytest.mark.parametrize(
    ("size", "total"),
    [(SMALL, 13_483_008), (BASE, 108_891_648), (LARGE, 334_092_288)],
    ids=["small", "base", "large"],
)
def test_electra(size, total):
    """convbert_and_electra.md 2."""
    assert count_parameters(encoder(**size, **BERT)) == total


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        (dict(layers=4, width=512, heads=8, feed_forward_width=2048, **BERT), (28_763_648, 27_713_024, 27_844_096)),
        (dict(**BASE, **BERT), (109_482_240, 102_395_136, 102_984_960)),
        (dict(**LARGE, **BERT), (335_141_888, 309_951_488, 311_524_352)),
        (
            dict(**BASE, vocab_size=50_265, token_types=1, positions=PositionConfig(offset=2)),
            (124_645_632, 117_558_528, 118_148_352),
        ),
    ],
    ids=["small", "base", "large", "roberta"],
)
def test_symmetric_and_pairwise(size, counts):
    """ddrp_mth_and_symmetric.md 2.2, whose counts hold a pooler, H^2 + H, that is not ours: pre-training has none."""
    pooler = size["width"] ** 2 + size["width"]
    for name, count in zip(("dot_product", "symmetric", "pairwise"), counts, strict=True):
        assert count_parameters(encoder(**size, compatibility=CompatibilityConfig(name=name))) == count - pooler, name


def test_symmetric_and_pairwise_with_the_head_of_pretraining():
    """The same table's row without a pooler and with a tied decoder."""
    counts = {"dot_product": 109_514_298, "symmetric": 102_427_194, "pairwise": 103_017_018}
    for name, count in counts.items():
        model = ModelConfig(**BASE, **BERT, compatibility=CompatibilityConfig(name=name))
        assert count_parameters(nn.unbox(jax.eval_shape(Mlm(model).init, jax.random.key(0)))) == count, name


@pytest.mark.parametrize(
    ("scheme", "count"),
    [
        (dict(scheme="shaw", clip=128), 197_376),
        (dict(scheme="ddrp", clip=128), 100_608),
        (dict(scheme="shaw", clip=64), 99_072),
        (dict(scheme="ddrp", clip=64), 51_456),
        (dict(scheme="t5"), 32 * 12),
        (dict(scheme="tupe", untie_cls=True), 1_183_488 + 512 * 768),
        (dict(scheme="rope"), 0),
        (dict(scheme="alibi"), 0),
        (dict(scheme="sinusoidal"), 0),
    ],
    ids=lambda value: str(value if isinstance(value, int) else value["scheme"]),
)
def test_what_a_scheme_adds_at_base(scheme, count):
    """ddrp_mth_and_symmetric.md 1.2; tupe.md 1.1, there counted over BERT-A with its 512 x 768."""
    plain, other = (encoder(**BASE, vocab_size=9, positions=PositionConfig(**s)) for s in (dict(scheme="none"), scheme))
    assert count_parameters(other) - count_parameters(plain) == count


# ---- products of matrices, which are what a scheme costs -----------------------------------------------------------


def products(scheme):
    """dot_generals of a forward pass outside the layers, and in the body that the layers share."""
    module = Encoder(small_model(scheme))
    params = tree(module, WORD, WORD)
    words = jnp.ones((2, 23), jnp.int32)
    jaxpr = jax.make_jaxpr(lambda params: module.apply({"params": params}, words, words))(params)
    return count_products(jaxpr.jaxpr, 0)


def count_products(jaxpr, depth):
    """By nesting in scans: at depth 0, and deeper. A body counts once however often it runs."""
    outside = inside = 0
    for equation in jaxpr.eqns:
        deeper = depth + (equation.primitive.name == "scan")
        if equation.primitive.name == "dot_general":
            outside, inside = outside + (depth == 0), inside + (depth > 0)
        for inner in jaxprs_in_params(equation.params):
            more_outside, more_inside = count_products(inner, deeper)
            outside, inside = outside + more_outside, inside + more_inside
    return outside, inside


def test_the_layers_of_bert_multiply_eight_times():
    """Query, key, value, logits, their sum, output, and the two of the feed-forward."""
    assert products("bert_a") == (0, 8)


@pytest.mark.parametrize(
    ("scheme", "outside"),
    [("tupe_a_tie_cls", 3), ("tupe_a", 4), ("tupe_r", 4), ("tupe_r_paper", 4), ("t5", 0), ("alibi", 0)],
)
def test_a_shared_bias_is_computed_once_a_forward_pass(scheme, outside):
    """TUPE: the projections of queries and keys and their product, and with [CLS] untied that of the two rows that
    make theta_1 and theta_2. Its layers multiply no more than BERT's."""
    assert products(scheme) == (outside, 8)


@pytest.mark.parametrize(
    ("scheme", "outside", "inside"),
    [
        ("rope", 0, 8),
        ("bert_ad", 2, 8),
        ("shaw", 0, 9),
        ("shaw_values", 0, 10),
        ("ddrp", 0, 9),
        ("deberta", 0, 12),
        ("deberta_c2p", 0, 10),
    ],
)
def test_what_other_schemes_multiply(scheme, outside, inside):
    """Shaw and DDRP one product with their vectors, and one for values; DeBERTa a projection and a product a term."""
    assert products(scheme) == (outside, inside)
