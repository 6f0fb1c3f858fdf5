"""Replaced-token detection against float64, scikit-learn and transformers, and what must not leak or differ."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from scipy.special import erf, expit, log_softmax
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from posenc_jax.config import DifferentiationConfig, MeshConfig, MlmConfig, RtdConfig
from posenc_jax.errors import UsageError
from posenc_jax.objectives.rtd import Rtd, detection, generator_config
from posenc_jax.parallel.mesh import make_mesh, put_batch
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_eval_step, make_train_step
from tests.oracle import encode_row, mlm_logits
from tests.variants import MAIN, float64, small_model

MASKS = MlmConfig(rate=0.3, random_share=0.0, kept_share=0.15)
HALF = RtdConfig(generator_size=1 / 3, generator_layers=0.5)


def make(variant="bert_a", rtd=HALF, mlm=MASKS, differentiation=DifferentiationConfig(), std=0.3, **changes):
    objective = Rtd(small_model(variant, **changes), mlm, rtd, words=66, differentiation=differentiation)
    shapes = nn.unbox(jax.eval_shape(objective.init, jax.random.key(0)))
    rng = np.random.default_rng(1)
    return objective, jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, std, leaf.shape), jnp.float32), shapes)


def make_batch(rows=4, length=23):
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 66, (rows, length)).astype(np.int32)
    tokens[:, 0] = 2
    segments = np.ones_like(tokens)
    for row in range(rows):
        tokens[row, length - row :] = segments[row, length - row :] = 0
    return {"tokens": tokens, "segments": segments, "row": np.arange(rows, dtype=np.int32)}


def examine(objective, params, batch=None):
    """Examples, the corrupted words, and the sums."""
    examples = jax.jit(objective.prepare)(batch or make_batch(), jax.random.key(5))

    @jax.jit
    def look(params, examples):
        logits = objective._generate(params, examples, jax.random.key(0), False)
        return objective._replace(logits, examples)[0], objective.sums(params, examples, jax.random.key(0), False)

    tokens, (sums, metrics) = look(params, examples)
    return jax.tree.map(np.asarray, (examples, tokens, sums, metrics))


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


@pytest.mark.parametrize(
    ("variant", "rtd", "changes"),
    [
        ("bert_a", HALF, dict(embedding_width=12, token_types=2)),
        ("tupe_r", HALF, {}),
        ("bert_a", RtdConfig(generator_size=1 / 3, share_embeddings=False), {}),
        ("bert_a", RtdConfig(generator="discriminator"), {}),
        ("tupe_r", RtdConfig(generator_size=1 / 3, generator_scheme="rope"), {}),
    ],
    ids=["shared", "tupe", "own_tables", "one_network", "other_scheme"],
)
def test_losses_equal_the_float64_oracle(variant, rtd, changes):
    objective, params = make(variant, rtd, **changes)
    examples, corrupted, sums, _ = examine(objective, params)
    small = generator_config(objective.model, rtd)
    exact = float64(params)
    generator = float64(objective.generator_params(params))
    mlm, rtd_total = 0.0, 0.0
    for row in range(4):
        segments = examples["segments"][row]
        hidden = encode_row(generator["encoder"], small, examples["tokens"][row], segments, np.arange(23))
        logits = mlm_logits(generator, small, hidden[examples["predicted"][row]])
        target, weight = examples["target"][row], examples["predicted_weight"][row]
        mlm -= (log_softmax(logits, -1)[np.arange(len(target)), target] * weight).sum()
        hidden = encode_row(exact["encoder"], objective.model, corrupted[row], segments, np.arange(23))
        head = exact["rtd_head"]
        x = gelu(hidden @ head["dense"]["kernel"] + head["dense"]["bias"])
        scores = (x @ head["output"]["kernel"] + head["output"]["bias"])[:, 0]
        label = corrupted[row] != examples["original"][row]
        loss = np.where(label, -np.log(expit(scores)), -np.log(expit(-scores)))
        rtd_total += loss[segments > 0].sum()
    np.testing.assert_allclose(sums["mlm"], mlm, rtol=3e-5)
    np.testing.assert_allclose(sums["rtd"], rtd_total, rtol=3e-5)


def test_the_total_is_one_and_fifty_and_all_words_count_with_cls():
    objective, params = make()
    examples = examine(objective, params)[0]
    weights = objective.weights(examples)
    assert objective.coefficients == {"mlm": 1.0, "rtd": 50.0}
    assert float(weights["rtd"]) == (make_batch()["segments"] > 0).sum()
    assert float(weights["mlm"]) == examples["predicted_weight"].sum()


def test_a_sample_that_is_the_original_counts_as_real_and_every_masked_slot_is_written():
    objective, params = make(std=0.05)
    batch = make_batch(rows=64)
    batch["tokens"][batch["segments"] > 0] = 7  # a word that the generator is made to guess often
    params["generator"]["head"]["bias"] = params["generator"]["head"]["bias"].at[7].set(4.0)
    examples, corrupted, _, metrics = examine(objective, params, batch)
    used = examples["predicted_weight"] > 0
    sampled = np.take_along_axis(corrupted, examples["predicted"], 1)[used]
    right = (sampled == 7).mean()
    assert 0.3 < right < 0.7
    np.testing.assert_allclose(metrics["sample_accuracy"][0], (sampled == 7).sum())
    assert metrics["replaced"][0] == (sampled != 7).sum() == (corrupted != examples["original"]).sum()
    untouched = np.ones(corrupted.shape, bool)
    np.put_along_axis(untouched, np.where(used, examples["predicted"], 0), False, 1)
    assert (corrupted == examples["original"])[untouched].all()
    assert 4 not in corrupted[batch["segments"] > 0] or 4 in sampled  # no [MASK] is left


def test_samples_follow_the_generators_probabilities():
    objective, _ = make(std=0.1)
    batch = {name: np.repeat(value[:1], 4000, 0) for name, value in make_batch().items()}
    batch["row"] = np.arange(4000, dtype=np.int32)
    logits = np.random.default_rng(3).normal(0, 1.5, 66).astype(np.float32)
    examples = jax.jit(objective.prepare)(batch, jax.random.key(1))
    width = examples["predicted"].shape[1]
    replace = jax.jit(objective._replace)
    tokens = replace(jnp.broadcast_to(jnp.append(logits, jnp.full(5, 9.0)), (4000, width, 71)), examples)[0]
    used = np.asarray(examples["predicted_weight"]) > 0
    drawn = np.take_along_axis(np.asarray(tokens), np.asarray(examples["predicted"]), 1)[used]
    expected = np.exp(log_softmax(logits.astype(np.float64))) * len(drawn)
    counts = np.bincount(drawn, minlength=66)
    assert len(counts) == 66  # rows that pad the table beyond the tokenizer's words are never drawn
    assert ((counts - expected) ** 2 / expected).sum() < 65 + 5 * np.sqrt(2 * 65)


@pytest.mark.parametrize("variant", ["bert_a", "tupe_r"])
def test_no_gradient_reaches_the_generator_from_the_discriminators_loss(variant):
    """Through shared embeddings it does, as the discriminator reads them itself (convbert_and_electra.md trap 24)."""
    objective, params = make(variant)
    examples = jax.jit(objective.prepare)(make_batch(), jax.random.key(5))

    @jax.jit
    def gradients(params):
        return [
            jax.grad(lambda p, n=n: objective.sums(p, examples, jax.random.key(0), True)[0][n])(params)
            for n in ("rtd", "mlm")
        ]

    of_rtd, of_mlm = gradients(params)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(of_rtd["generator"]))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(of_mlm["rtd_head"]))
    for path, leaf in flatten_dict(of_rtd["encoder"]).items():
        assert (np.asarray(leaf) != 0).any() or path[-2:] == ("key", "bias"), path  # softmax cannot see a key's bias
    generator_only = flatten_dict(of_mlm["generator"])
    assert all((np.asarray(x) != 0).any() or p[-2:] == ("key", "bias") for p, x in generator_only.items())
    for path, leaf in flatten_dict(of_mlm["encoder"]).items():
        is_shared = path[0] in ("words", "norm") or path[:2] == ("positions", "learned")
        assert (np.asarray(leaf) != 0).any() == is_shared, path


def test_what_is_shared_stands_once():
    trees = {
        name: flatten_dict(make(rtd=rtd, token_types=2, **changes)[1])
        for name, rtd, changes in [
            ("shared", HALF, {}),
            ("own", RtdConfig(generator_size=1 / 3, share_embeddings=False), {}),
            ("one", RtdConfig(generator="discriminator"), {}),
            ("uniform", RtdConfig(generator="uniform"), {}),
        ]
    }
    inside = {name: {p[2] for p in tree if p[:2] == ("generator", "encoder")} for name, tree in trees.items()}
    assert inside == {
        "shared": {"widen", "layers"},
        "own": {"words", "types", "positions", "norm", "layers"},
        "one": set(),
        "uniform": set(),
    }
    assert trees["shared"]["generator", "encoder", "widen", "kernel"].shape == (30, 10)
    assert trees["own"]["generator", "encoder", "words"].shape == (71, 10)
    assert not any(path[0] == "generator" for path in trees["uniform"])
    assert all(("generator", "head", "bias") in trees[name] for name in ("shared", "own", "one"))


def test_other_schemes_tables_are_each_networks_own():
    tree = flatten_dict(make("tupe_r")[1])
    assert {path[3] for path in tree if path[:3] == ("generator", "encoder", "positions")} == {"tupe", "t5"}


def test_a_uniform_generator_has_the_loss_of_a_uniform_guess():
    objective, params = make(rtd=RtdConfig(generator="uniform"))
    examples, corrupted, sums, metrics = examine(objective, params)
    np.testing.assert_allclose(sums["mlm"] / examples["predicted_weight"].sum(), np.log(66), rtol=1e-6)
    assert "generator_accuracy" not in metrics and corrupted.max() < 66


def test_generators_have_the_published_sizes():
    """convbert_and_electra.md 2: width, heads, heads that attend, head width."""
    from posenc_jax.config_files import load_config

    wanted = {
        "configs/electra.py:electra,small": (64, 1, 1, 64), "configs/electra.py:electra,base": (256, 4, 4, 64),
        "configs/electra.py:electra,large": (256, 4, 4, 64), "configs/convbert.py:convbert,small": (64, 1, 1, 64),
        "configs/convbert.py:convbert,medium_small": (96, 2, 1, 48),
        "configs/convbert.py:convbert,base": (256, 4, 2, 64),
    }  # fmt: skip
    for spec, sizes in wanted.items():
        config = load_config(spec)
        small = generator_config(config.model, config.rtd)
        assert (small.width, small.heads, small.attention_heads, small.head_width) == sizes, spec
        assert small.feed_forward_width == 4 * small.width and small.layers == config.model.layers
        assert small.embedding_width == (config.model.embedding_width or config.model.width)


def test_a_size_that_makes_no_generator_is_refused_with_the_numbers():
    with pytest.raises(UsageError, match=r"rtd.generator_size=0.5 makes .* 15 wide, with 2 heads, of model.width=30"):
        generator_config(small_model("bert_a"), RtdConfig(generator_size=0.5))


def test_a_slot_drawn_twice_becomes_the_mean_id_as_in_electras_code():
    """convbert_and_electra.md 3.3: ids are summed and divided with the remainder dropped."""
    objective, _ = make(mlm=MlmConfig(random_share=0.0, kept_share=0.15, with_replacement=True))
    examples = {
        "original": jnp.full((1, 6), 9), "predicted": jnp.array([[2, 2, 4, 0]]), "target": jnp.full((1, 4), 9),
        "predicted_weight": jnp.array([[1.0, 1.0, 1.0, 0.0]]),
        "sample_key": jax.random.key_data(jax.random.key(0))[None],
    }  # fmt: skip
    logits = jnp.full((1, 4, 71), -1e9).at[0, jnp.arange(4), jnp.array([20, 31, 50, 60])].set(0.0)
    tokens, replaced, _ = objective._replace(logits, examples)
    assert tokens.tolist() == [[9, 9, 25, 9, 50, 9]] and replaced.tolist() == [[0, 0, 1, 0, 1, 0]]


def test_metrics_equal_scikit_learns_over_all_words(rng):
    logits, label = rng.normal(0, 2, (50, 40)), rng.random((50, 40)) < 0.1
    logits = logits + 1.5 * label
    is_word = rng.random((50, 40)) < 0.8
    halves = [
        jax.jit(detection)(jnp.float32(logits[part]), jnp.float32(label[part]), jnp.float32(is_word[part]))
        for part in (slice(0, 20), slice(20, 50))
    ]
    got = {name: float(term.value()) for name, term in jax.tree.map(jnp.add, *halves).items()}
    truth, scores = label[is_word], logits[is_word]
    np.testing.assert_allclose(got["auc"], roc_auc_score(truth, scores), atol=5e-4)
    np.testing.assert_allclose(got["precision"], precision_score(truth, scores > 0), rtol=1e-6)
    np.testing.assert_allclose(got["recall"], recall_score(truth, scores > 0), rtol=1e-6)
    np.testing.assert_allclose(got["replaced"], truth.mean(), rtol=1e-6)
    np.testing.assert_allclose(got["detection_accuracy"], (truth == (scores > 0)).mean(), rtol=1e-6)


def test_the_area_has_a_value_where_nothing_was_replaced_and_is_a_half_for_one_score():
    ones = jnp.ones((2, 3))
    assert float(detection(ones, jnp.zeros((2, 3)), ones)["auc"].value()) == 0.5
    assert float(detection(ones, ones.at[0].set(0.0), ones)["auc"].value()) == 0.5
    tiny = detection(jnp.array([[1e-3, 2e-3]]), jnp.array([[0.0, 1.0]]), jnp.ones((1, 2)))["auc"]
    assert float(tiny.value()) == 1.0


@functools.cache
def one_step(devices=1, accumulate=1, fsdp=1, tensor=1, mixer="attention", **changes):
    extra = DifferentiationConfig(token_weight=0.3, head_weight=0.2, head_form="squared")
    sizes = dict(vocab_size=72, width=32, heads=4, feed_forward_width=64, dropout=0.0, attention_dropout=0.0)
    objective = Rtd(
        small_model("tupe_r", mixer=mixer, **{**sizes, **changes}),
        MASKS,
        RtdConfig(generator_size=0.5),
        66,
        differentiation=extra,
    )
    mesh = make_mesh(MeshConfig(fsdp=fsdp, tensor=tensor), jax.devices()[:devices])
    sgd = optax.sgd(0.05)
    state = create_state(objective, sgd, mesh, seed=0)
    state, metrics = make_train_step(objective, sgd, mesh, accumulate=accumulate)(
        state, put_batch(make_batch(16), mesh)
    )
    return jax.device_get(state.params), jax.device_get(metrics)


@pytest.mark.parametrize(
    "other",
    [
        dict(accumulate=4),
        dict(devices=8),
        dict(devices=8, fsdp=2, tensor=2),
        dict(scan=False, remat=True),
    ],
    ids=str,
)
def test_slices_devices_and_recomputation_change_nothing(other):
    """Samples among it: each row draws its own, wherever it is worked through. 1e-6 of parameters after a step."""
    for one, two in zip(one_step(), one_step(**other), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, two)


AT_INPUT_IN_LOGITS_IN_WORDS = ("bert_a", "tupe_r", "deberta", "rope")


@pytest.mark.parametrize(
    "variant", [pytest.param(v, marks=[] if v in AT_INPUT_IN_LOGITS_IN_WORDS else [pytest.mark.full]) for v in MAIN]
)
def test_every_scheme_trains_both_networks(variant):
    objective, params = make(variant, std=0.2)
    examples = jax.jit(objective.prepare)(make_batch(), jax.random.key(5))

    @jax.jit
    def gradient(params):
        sums = lambda p: objective.sums(p, examples, jax.random.key(0), True)[0]  # noqa: E731
        return jax.grad(lambda p: sums(p)["mlm"] + sums(p)["rtd"])(params)

    for path, leaf in flatten_dict(gradient(params)).items():
        assert np.isfinite(leaf).all() and ((np.asarray(leaf) != 0).any() or "key" in path), path


def test_logits_sampling_and_losses_are_float32_under_bfloat16():
    objective, params = make(dtype="bfloat16")
    examples, _, sums, _ = examine(objective, params)
    logits = jax.eval_shape(lambda p: objective._generate(p, examples, jax.random.key(0), False), params)
    assert logits.dtype == jnp.float32 and all(total.dtype == np.float32 for total in sums.values())


def test_padding_alone_has_loss_zero_and_no_nan():
    objective, params = make(differentiation=DifferentiationConfig(token_weight=1.0, head_weight=1.0))
    batch = jax.tree.map(np.zeros_like, make_batch())
    look = make_eval_step(objective, make_mesh(MeshConfig(), jax.devices()[:1]))
    for name, term in look(params, batch, jax.random.key(0)).items():
        assert float(term.value()) == (0.5 if name == "auc" else 0.0), name


def test_no_loss_asks_padding_alone_for_a_gradient():
    """Attention relies on it: in such a row the weights are even, and would pass one on."""
    objective, params = make(differentiation=DifferentiationConfig(token_weight=1.0, head_weight=1.0), std=0.2)
    examples = jax.jit(objective.prepare)(jax.tree.map(np.zeros_like, make_batch()), jax.random.key(5))

    @jax.jit
    def gradient(params):
        return jax.grad(lambda p: sum(objective.sums(p, examples, jax.random.key(0), True)[0].values()))(params)

    for path, leaf in flatten_dict(gradient(params)).items():
        np.testing.assert_array_equal(leaf, 0, err_msg=str(path))
