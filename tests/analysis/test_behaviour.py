"""LayerNorms zeroed in the model: what becomes 0 where, and what loss and predictions make of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from posenc_jax.analysis.behaviour import hide_words, kl_influence, load_masked_model, mlm_loss, zero_ln
from posenc_jax.analysis.texts import batches, mark_texts
from posenc_jax.errors import UserError
from posenc_jax.interop.pretrained import layer_states, load_pretrained
from posenc_jax.objectives.mlm import MlmNetwork
from posenc_jax.training.checkpoint import save_params
from tests.tiny_workdirs import LENGTH, sentences, write_workdir
from tests.variants import apply, random_params

DIMS = [3, 20]
TEXTS = sentences(41, 5, 4)  # no multiple of a batch


@pytest.fixture(scope="module", params=["post", "pre"])
def either(request, tmp_path_factory):
    return masked_model(tmp_path_factory.mktemp("run") / "run", request.param)


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return masked_model(tmp_path_factory.mktemp("run") / "run", "post")


def masked_model(workdir, norm):
    """A model with a head, as `pretrain` leaves it."""
    write_workdir(workdir, norm=norm)
    model, word = load_pretrained(workdir).model, jnp.ones((1, 8), jnp.int32)
    params = random_params(MlmNetwork(model), {"tokens": word, "segments": word}, word, std=0.2)
    (workdir / "checkpoints").rename(workdir / "without_a_head")
    save_params(workdir, params)
    return load_masked_model(workdir)


@pytest.fixture(scope="module")
def examples(masked):
    tokenizer = masked.pretrained.tokenizer
    marked = mark_texts(tokenizer, TEXTS, LENGTH)
    return hide_words(batches(marked, LENGTH, 512), tokenizer, seed=0)


def states(masked, encoder):
    tokens = jnp.asarray(np.random.default_rng(0).integers(5, 60, (2, 9)), jnp.int32)
    return np.asarray(compiled_states(masked.pretrained.model, encoder, tokens, jnp.ones_like(tokens)))


compiled_states = jax.jit(layer_states, static_argnums=0)


def logits(masked, params, batch):
    return np.asarray(apply(MlmNetwork(masked.pretrained.model), params, dict(batch), batch["predicted"]), float)


def test_a_zeroed_norm_leaves_zeros_where_it_is_the_last_to_write(either):
    """After the blocks: in a layer's own states. Before them: in "last" alone, for the sum keeps the dimension."""
    encoder, is_pre = either.params["encoder"], either.pretrained.model.norm == "pre"
    whole, found = states(either, encoder), states(either, zero_ln(encoder, DIMS, "output"))
    is_zero_E = (found[..., DIMS] == 0).all((1, 2, 3))
    assert is_zero_E.tolist() == ([False, False, False, True] if is_pre else [False, True, True])
    np.testing.assert_array_equal(found[0], whole[0])
    second = states(either, zero_ln(encoder, DIMS, "output", [2]))
    np.testing.assert_array_equal(second[:2], whole[:2])
    assert (second[-1][..., DIMS] == 0).all()
    if is_pre:
        np.testing.assert_array_equal(second[2], whole[2])
    first = states(either, zero_ln(encoder, DIMS, "output", [1]))
    assert (first[2] != whole[2]).any() and (first[1][..., DIMS] == 0).all() == (not is_pre)


def test_embedding_and_attention_norms_are_others_than_output(either):
    encoder = either.params["encoder"]
    whole = states(either, encoder)
    embedding = states(either, zero_ln(encoder, DIMS, "embedding"))
    assert (embedding[0][..., DIMS] == 0).all() and (np.delete(embedding[0], DIMS, -1) != 0).all()
    attention = zero_ln(encoder, DIMS, "attention", [1])
    changed = "feed_forward_norm" if either.pretrained.model.norm == "pre" else "attention_norm"
    for name, norm in attention["layers"].items():
        same = jax.tree.map(lambda new, old: bool((new == old).all()), norm, encoder["layers"][name])
        assert all(jax.tree.leaves(same)) == (name != changed)
    assert (np.asarray(attention["layers"][changed]["scale"])[0, DIMS] == 0).all()
    assert (np.asarray(attention["layers"][changed]["bias"])[1, DIMS] != 0).all()
    assert (states(either, attention)[1] != whole[1]).any()
    assert (encoder["layers"][changed]["scale"][0, DIMS] != 0).all()  # what was given stays


def test_loss_is_that_of_the_logits_whatever_fills_the_batches_up(masked, examples):
    total = weight = 0.0
    for batch in examples:
        each = -np.take_along_axis(
            log_softmax(logits(masked, masked.params, batch), -1), batch["target"][..., None], -1
        )
        total += (each[..., 0] * batch["predicted_weight"]).sum()
        weight += batch["predicted_weight"].sum()
    model = masked.pretrained.model
    assert mlm_loss(model, masked.params, examples) == pytest.approx(total / weight, rel=1e-5)
    words = sum(len(masked.pretrained.tokenizer.encode(text)) for text in TEXTS)
    assert 0.1 < weight / words < 0.2
    tokenizer = masked.pretrained.tokenizer
    others = hide_words(batches(mark_texts(tokenizer, TEXTS, LENGTH), LENGTH, 1024), tokenizer, seed=0)
    assert others[0]["tokens"].shape != examples[0]["tokens"].shape
    assert mlm_loss(model, masked.params, others) == pytest.approx(total / weight, rel=1e-5)


@pytest.mark.parametrize("layer", [1, 2])
def test_influence_is_the_divergence_of_the_predictions(masked, examples, layer):
    batch, model = examples[0], masked.pretrained.model
    found = kl_influence(model, masked.params, [batch], layer, DIMS)
    whole = logits(masked, masked.params, batch)
    for influence, dim in zip(found, DIMS, strict=True):
        params = {**masked.params, "encoder": zero_ln(masked.params["encoder"], [dim], layers=[layer])}
        changed = logits(masked, params, batch)
        kl = (softmax(whole, -1) * (log_softmax(whole, -1) - log_softmax(changed, -1))).sum(-1)
        expected = np.average(kl, weights=batch["predicted_weight"])
        assert expected > 1e-4 and influence == pytest.approx(expected, rel=1e-3)
    params = {**masked.params, "encoder": zero_ln(masked.params["encoder"], DIMS)}
    np.testing.assert_allclose(kl_influence(model, params, [batch], layer, DIMS), 0, atol=1e-6)  # already without


def test_hidden_words_depend_on_the_seed(masked):
    tokenizer = masked.pretrained.tokenizer
    rows = list(batches(mark_texts(tokenizer, sentences(9, 5), LENGTH), LENGTH, 512))
    one, again, other = (hide_words(rows, tokenizer, seed)[0]["tokens"] for seed in (0, 0, 1))
    assert (one == again).all() and (one != other).any()


def test_what_is_not_there_is_refused(masked, examples):
    encoder = masked.params["encoder"]
    for dims, options in (
        ([32], {}),
        ([0], dict(layers=[3])),
        ([0], dict(layers=[0])),
        ([-1], dict(which="embedding")),
    ):
        with pytest.raises(ValueError):
            zero_ln(encoder, dims, **options)
    with pytest.raises(ValueError, match="none of them"):
        zero_ln(encoder, [0], "embedding", [1])
    with pytest.raises(ValueError, match="no word is hidden"):
        mlm_loss(masked.pretrained.model, masked.params, [])


def test_a_model_without_the_head_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="no head that predicts hidden words, only encoder; take a run"):
        load_masked_model(write_workdir(tmp_path / "run"))
