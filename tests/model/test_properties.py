"""What holds whatever the variant: every scheme x {attention, mixed} x every compatibility.

`make test` runs half of them, in which every two of the three meet; `make test-full` all.

Each combination compiles two programs, which answer all questions. The first runs a batch in which the same two
documents stand packed, padded left and right, moved and shuffled, with its gradient, the documents alone, and the batch
in bfloat16. The second is the batch and its gradient again in the way that shares no more with it than the promise:
layers unrolled, activations recomputed, on eight devices with batch, weights and heads spread over them.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from posenc_jax.config import MeshConfig, ModelConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import batch_sharding, make_mesh, param_shardings, put_batch, replicated
from posenc_jax.positions import is_relative
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_train_step
from tests.variants import COMPATIBILITIES, MAIN, MIXERS, SCHEMES, random_params, small_model

WORDS, LENGTH, DOCUMENT = 18, 23, 11
X, Y = slice(0, DOCUMENT), slice(DOCUMENT, 2 * DOCUMENT)
PACKED, RIGHT, LEFT, PACKED_BACK, LEFT_Y, SHIFTED, SWAPPED, EMPTY = range(8)
"""Rows of the batch: X and Y; X; X; Y and X; Y; X and Y at later positions; X with two neighbours swapped; nothing."""
NEIGHBOURS, FAR = [4, 5], [0, 1, 2, 8, 9, 10]
"""In X, two words that are swapped, and words that stand outside the window of a convolution around them."""


def documents():
    """Tokens of X and of Y, [2, DOCUMENT], in which every word occurs."""
    words = np.random.default_rng(2).permutation(np.arange(2 * DOCUMENT) % WORDS)
    return words.reshape(2, DOCUMENT).astype(np.int32)


def batch():
    """Tokens, segments, positions, [8, LENGTH] each; padding has words of its own."""
    x, y = documents()
    tokens = np.random.default_rng(3).integers(0, WORDS, (8, LENGTH)).astype(np.int32)
    segments, position = np.zeros((8, LENGTH), np.int32), np.zeros((8, LENGTH), np.int32)
    swapped = x.copy()
    swapped[NEIGHBOURS] = x[NEIGHBOURS[::-1]]
    assert len(set(x[NEIGHBOURS])) == 2
    pad = LENGTH - DOCUMENT
    placed = [
        (PACKED, 0, x), (PACKED, DOCUMENT, y), (RIGHT, 0, x), (LEFT, pad, x), (PACKED_BACK, 0, y),
        (PACKED_BACK, DOCUMENT, x), (LEFT_Y, pad, y), (SHIFTED, 0, x), (SHIFTED, DOCUMENT, y), (SWAPPED, 0, swapped),
    ]  # fmt: skip
    for row, start, words in placed:
        here = slice(start, start + DOCUMENT)
        tokens[row, here], segments[row, here] = words, 1 + (start > 0)
        position[row, here] = np.arange(DOCUMENT) + (row == SHIFTED) * (LENGTH - DOCUMENT - (start > 0))
    return tokens, segments, position


def property_model(scheme, compatibility, mixer):
    """Sizes that two devices divide, tables in which every row is used by the batch."""
    model = small_model(scheme, compatibility, mixer, width=24, heads=4, feed_forward_width=20, vocab_size=WORDS)
    positions = dataclasses.replace(model.positions, max_length=LENGTH)
    if "t5" in positions.scheme:
        positions = dataclasses.replace(positions, max_distance=8)
    return dataclasses.replace(model, positions=positions)


def loss_and_output(encoder, params, tokens, segments, position):
    output = encoder.apply({"params": params}, tokens, segments, position, contiguous=True)
    target = jax.random.normal(jax.random.key(3), output.shape)
    return (output * target * (segments > 0)[..., None]).sum(), output


@functools.partial(jax.jit, static_argnums=0)
def first_program(encoder, params, arguments, alone):
    gradient, output = jax.grad(loss_and_output, 1, has_aux=True)(encoder, params, *arguments)
    low = encoder.clone(config=dataclasses.replace(encoder.config, dtype="bfloat16"))
    return {
        "gradient": gradient,
        "batch": output,
        "alone": encoder.apply({"params": params}, alone, jnp.ones_like(alone)),
        "bfloat16": loss_and_output(low, params, *arguments)[1],
    }


def second_program(model, params, arguments):
    encoder = Encoder(dataclasses.replace(model, scan=False, remat=True))
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    shardings = param_shardings(jax.eval_shape(encoder.init, jax.random.key(0), *arguments)["params"], mesh)
    program = jax.jit(
        jax.grad(functools.partial(loss_and_output, encoder), has_aux=True),
        in_shardings=(shardings, *[batch_sharding(mesh)] * 3),
        out_shardings=(shardings, replicated(mesh)),
    )
    return program(jax.device_put(params, shardings), *jax.device_put(arguments, batch_sharding(mesh)))


class Ran(NamedTuple):
    model: ModelConfig
    params: Any
    outputs: dict
    """What `first_program` returns."""


COMBINATIONS = [
    pytest.param((scheme, compatibility, mixer), id=f"{scheme}-{compatibility}-{mixer}", marks=marks)
    for i, scheme in enumerate(MAIN)
    for j, compatibility in enumerate(("dot_product", "symmetric", "pairwise"))
    for k, mixer in enumerate(("attention", "mixed"))
    for marks in [pytest.mark.full if (i + j + k) % 2 else ()]
]


@pytest.fixture(scope="module", params=COMBINATIONS)
def ran(request):
    model, arguments = property_model(*request.param), batch()
    params = random_params(Encoder(model), *arguments, std=0.2)
    outputs = jax.device_get(first_program(Encoder(model), params, arguments, documents()))
    return Ran(model, params, outputs)


def apart(a, b):
    return float(np.abs(a - b).max())


def test_padding_on_either_side_changes_no_word(ran):
    batch, (x, y) = ran.outputs["batch"], ran.outputs["alone"]
    assert apart(batch[RIGHT, X], x) < 1e-5
    assert apart(batch[LEFT, -DOCUMENT:], x) < 1e-5
    assert apart(batch[LEFT_Y, -DOCUMENT:], y) < 1e-5


def test_packed_documents_are_as_they_are_alone(ran):
    batch, (x, y) = ran.outputs["batch"], ran.outputs["alone"]
    for row, first, second in ((PACKED, x, y), (PACKED_BACK, y, x)):
        assert apart(batch[row, X], first) < 1e-5
        assert apart(batch[row, Y], second) < 1e-5


def test_moving_all_positions_changes_nothing_where_the_scheme_is_relative(ran):
    batch = ran.outputs["batch"]
    moved = max(apart(batch[SHIFTED, part], batch[PACKED, part]) for part in (X, Y))
    assert moved < 1e-5 if is_relative(ran.model.positions) else moved > 0.05


def test_output_depends_on_order(ran):
    """Without positions attention is blind to it, and convolutions are not."""
    change = apart(ran.outputs["batch"][SWAPPED, FAR], ran.outputs["batch"][RIGHT, FAR])
    blind = ran.model.positions.scheme == "none" and ran.model.mixer == "attention"
    assert change < 1e-5 if blind else change > 2e-3


def test_gradient_reaches_every_parameter_that_softmax_can_see(ran):
    for path, gradient in jax.tree_util.tree_leaves_with_path(ran.outputs["gradient"]):
        keys = [key.key for key in path]
        rows = np.abs(gradient).reshape(*gradient.shape[: 1 + (keys[0] == "layers")], -1).max(-1)
        unseen = np.zeros(rows.shape, bool)
        unseen[_unseen(ran.model, keys)] = True
        assert (rows[~unseen] > 1e-4).all(), keys
        assert (rows[unseen] < 1e-5).all(), keys


def _unseen(model, keys):
    """The part of a parameter that moves all logits of a query alike, or that nothing reads: an index, or none of it.

    - a bias in the keys, q_i . b for all j, where keys meet nothing but queries: not where RoPE turns it by j's
      position, nor where DeBERTa's queries of positions meet it
    - biases in DeBERTa's and BERT-A^d's keys of positions, for the same reason
    - row 0 of an untied TUPE table: theta_1, the same in all of [CLS]'s row. And its twin in T5's table, the bucket in
      which no difference falls, which without [CLS] untied nothing reads
    """
    nothing, everything = np.zeros(0, int), slice(None)
    scheme, positions = model.positions.scheme, model.positions
    if keys[-2:] == ["key", "bias"] and "convolution" not in keys:
        if "positions" not in keys:
            return nothing if scheme in ("rope", "deberta") else everything
        return nothing if "tupe" in keys else everything
    if keys[-2:] == ["tupe", "table"] and positions.untie_cls:
        return 0
    return positions.buckets // 2 if keys[-2:] == ["t5", "table"] else nothing


def test_a_row_of_padding_alone_is_finite_and_so_is_its_gradient(ran):
    assert np.isfinite(ran.outputs["batch"][EMPTY]).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(ran.outputs["gradient"]))


def test_unrolled_recomputed_and_on_eight_devices_it_is_the_same(ran):
    arguments = batch()
    gradient, output = jax.device_get(second_program(ran.model, ran.params, arguments))
    real = arguments[1] > 0
    assert apart(output[real], ran.outputs["batch"][real]) < 1e-5
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(ran.outputs["gradient"]), strict=True):
        assert apart(ours, theirs) < 2e-5 * max(1, np.abs(theirs).max())


def test_bfloat16_stays_within_a_hundredth_on_average_and_a_tenth_at_worst(ran):
    """Outputs are about 1 wide: the mean is a digit of bfloat16, which has between two and three."""
    real = batch()[1] > 0
    error = np.abs(ran.outputs["bfloat16"].astype(np.float32) - ran.outputs["batch"])[real]
    assert error.mean() < 0.01 and error.max() < 0.1


ARMS = [
    *((scheme,) for scheme in SCHEMES),
    *(("bert_a", compatibility) for compatibility in COMPATIBILITIES),
    *(("bert_a", "dot_product", mixer) for mixer in MIXERS),
]


def test_every_parameter_of_every_arm_has_a_place_on_the_mesh():
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    for arm in ARMS:
        encoder = Encoder(small_model(*arm, feed_forward_groups=2, embedding_width=14, token_types=2))
        boxed = jax.eval_shape(encoder.init, jax.random.key(0), *batch())["params"]
        for leaf, sharding in zip(
            jax.tree.leaves(nn.unbox(boxed)), jax.tree.leaves(param_shardings(boxed, mesh)), strict=True
        ):
            assert len(sharding.spec) == leaf.ndim, arm


def test_a_step_of_training_on_eight_devices_is_that_on_one():
    """The step itself, for one variant; the programs above run its gradient for each variant."""
    model = dataclasses.replace(
        property_model("shaw_values", "pairwise", "attention"), dropout=0.0, attention_dropout=0.0
    )
    objective, optimizer, (tokens, segments, position) = Mlm(model), optax.sgd(1.0), batch()
    rows = {"tokens": tokens, "segments": segments, "positions": position, "row": np.arange(8, dtype=np.int32)}
    after = []
    for devices, config in ((8, MeshConfig(fsdp=2, tensor=2)), (1, MeshConfig())):
        mesh = make_mesh(config, jax.devices()[:devices])
        state = create_state(objective, optimizer, mesh, seed=0)
        state, metrics = make_train_step(objective, optimizer, mesh)(state, put_batch(rows, mesh))
        after.append(jax.device_get((state.params, metrics["loss"])))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), *after)
