"""The benchmark of forward passes: blocks of equal width, encoders of equal size. No speed is tested."""

import json

import jax
import numpy as np
import pytest

from posenc_jax.commands import bench
from posenc_jax.evaluation.bench.blocks import BLOCKS, block, block_config, block_facts, block_flops, block_table
from posenc_jax.evaluation.bench.inference import PEERS, our_encoder
from posenc_jax.evaluation.bench.workloads import Workload
from posenc_jax.model.cost import encoder_parameters


def test_the_blocks_are_equally_wide_and_half_of_the_heads_convolve():
    attention, mixed = (block_config(name, "base") for name in BLOCKS)
    assert attention.width == mixed.width == 768
    assert (attention.attention_heads, mixed.attention_heads, mixed.convolution.kind) == (12, 6, "span_dynamic")


@pytest.mark.parametrize("length", [64, 512])
@pytest.mark.parametrize("batch", [1, 8])
def test_operations_are_those_of_the_products_and_little_else(batch, length):
    """convbert_and_electra.md 1.2: A = D / 2 channels a branch, K = 9 slots, H' heads."""
    attention, mixed = (block_config(name, "base") for name in BLOCKS)
    width, inner, heads, slots = 768, 384, 6, 9
    products = {
        "attention": 4 * width**2 + 2 * length * width,
        "mixed": 5 * width * inner + 2 * inner * width + 2 * length * inner + inner * heads * slots,
    }
    for name, config in (("attention", attention), ("mixed", mixed)):
        counted = block_flops(config, batch, length) / (2 * batch * length * products[name])
        assert 1 < counted < 1.05
    assert block_flops(mixed, 8, length) == 8 * block_flops(mixed, 1, length)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_mixes_the_words_of_a_row_and_no_others(name, rng):
    config = block_config(name, "tiny")
    f, shapes = block(config, 2, 8)
    params = jax.tree.map(lambda leaf: 0.05 * rng.normal(size=leaf.shape).astype(np.float32), shapes)
    x_BxLxD = rng.normal(size=(2, 8, config.width)).astype(np.float32)
    before = f(params, x_BxLxD)
    x_BxLxD[0, 0] += 1
    after = f(params, x_BxLxD)
    assert before.shape == (2, 8, config.width)
    assert (before[0] != after[0]).any(-1).all()
    np.testing.assert_array_equal(before[1], after[1])


def test_every_length_and_batch_has_a_line_with_both_blocks(tmp_path):
    facts = list(block_facts("tiny", 2, lengths=(8,), batches=(1, 2)))
    assert [(one["length"], one["batch"]) for one in facts] == [(8, 1), (8, 2)]
    for one in facts:
        assert {name: len(seconds) for name, seconds in one["seconds"].items()} == {"attention": 2, "mixed": 2}
        assert all(second > 0 for seconds in one["seconds"].values() for second in seconds)
    one = dict(
        facts[0], flops={"attention": 4e9, "mixed": 2e9}, seconds={"attention": [3e-3, 1e-3], "mixed": [1e-3] * 2}
    )
    (row,) = block_table("tiny", [one]).rows
    assert row == ("8", "1", "4", "2", "2.00 x", "2", "1", "2.00 x (1.00 to 3.00)")
    json.dumps(facts)


@pytest.mark.parametrize("size", ["small", "base"])
@pytest.mark.parametrize("work", PEERS)
def test_the_encoder_of_the_peer_has_as_many_parameters_as_ours(work, size):
    """BERT's types of tokens are what it has more."""
    torch = pytest.importorskip("torch")
    from posenc_jax.evaluation.bench.peers import encoder_of

    workload = Workload(work=work, size=size, vocab_size=1000)
    with torch.device("meta"):  # shapes alone
        theirs = sum(parameter.numel() for parameter in encoder_of(workload).parameters())
    model = workload.config.model
    assert theirs - encoder_parameters(model) == (2 * model.width if work == "bert" else 0)


def test_our_encoder_runs_over_the_words_of_the_workload():
    run, device = our_encoder(Workload(size="tiny", batch_size=2, length=8, vocab_size=50))
    run(5)
    assert device.startswith("jax ")


def test_a_file_for_the_facts_that_has_no_folder_is_wrong_use_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(["inference", "--only", "blocks", "--json", "nowhere/facts.json"])
    assert caught.value.code == 2 and "there is no folder nowhere" in capsys.readouterr().err
