"""Benchmarks of training steps: what is compared. No speed is tested."""

import importlib.util

import jax
import numpy as np
import pytest

from posenc_jax.evaluation.bench.steps import COMPARED
from posenc_jax.evaluation.bench.workloads import IGNORED, WORKS, Workload
from posenc_jax.objectives.pretraining import make_objective

SMALL = Workload(size="tiny", batch_size=4, length=40, vocab_size=100)


def test_both_sides_learn_from_the_same_words_with_the_model_that_is_named():
    small = Workload()
    model = small.config.model
    assert (model.layers, model.width, model.heads, model.feed_forward_width) == (12, 256, 4, 1024)
    assert (model.vocab_size, model.dropout, model.attention_dropout, model.dtype) == (30_522, 0.1, 0.1, "float32")
    assert small.tokens == 4096 and model.positions.scheme == "learned" and not model.scan


def test_the_labels_are_the_words_at_the_masked_places_and_nowhere_else():
    for words, (tokens, labels) in zip(SMALL.words(), SMALL.masked_batches(), strict=True):
        assert tokens.shape == labels.shape == (4, 40)
        is_masked = labels != IGNORED
        assert set(is_masked.sum(1)) <= {6}  # 15 % of 40
        np.testing.assert_array_equal(labels[is_masked], words[is_masked])
        np.testing.assert_array_equal(tokens[~is_masked], words[~is_masked])
        assert (tokens != words).sum() > 12


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
@pytest.mark.parametrize("work", WORKS)
def test_a_peer_has_as_many_parameters_as_we_have(work, size):
    """BERT's types of tokens are what it has more; a projection of the generator's embeddings is nowhere shared."""
    import torch

    from posenc_jax.evaluation.bench import peers

    workload = Workload(work=work, size=size, vocab_size=1000)
    model = workload.config.model
    shapes = jax.eval_shape(make_objective(workload.config).init, jax.random.key(0))
    ours = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    with torch.device("meta"):  # shapes alone
        module, _ = getattr(peers, f"_{work}")(workload.config, True)
    theirs = sum(parameter.numel() for parameter in module.parameters())
    assert theirs - ours == (2 * model.width if work == "bert" else 0)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("work", WORKS)
def test_a_peer_learns_the_same_with_and_without_logits_of_other_words(work):
    import torch

    from posenc_jax.evaluation.bench import peers

    workload = Workload(work=work, size="tiny", batch_size=2, length=20, vocab_size=50)
    batch = tuple(torch.from_numpy(np.asarray(part, np.int64)) for part in workload.masked_batches()[0])
    losses = []
    for masked_only in (False, True):
        torch.manual_seed(0)
        module, loss = getattr(peers, f"_{work}")(workload.config, masked_only)
        module.eval()  # no dropout
        torch.manual_seed(1)
        losses.append(loss(*batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("names", COMPARED)
def test_variants_are_compared_at_the_same_size(names):
    sizes = [Workload(work=name).config.model for name in names]
    assert (
        len({(model.layers, model.width, model.heads, model.feed_forward_width, model.dropout) for model in sizes}) == 1
    )
