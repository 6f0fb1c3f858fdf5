"""One step on every mesh is the step of one device; what it sends between devices is what it must, and no more.

A wanted change of the traffic: `UPDATE_GOLDEN=1 python -m pytest tests/parallel/test_sharding.py`, then read the diff.
"""

import dataclasses
import functools
import itertools
import os
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec

from posenc_jax.config import MeshConfig, MlmConfig, RtdConfig
from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.errors import UsageError
from posenc_jax.layers import Dropout
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.objectives.pretraining import make_objective
from posenc_jax.objectives.rtd import Rtd
from posenc_jax.parallel.collectives import collectives
from posenc_jax.parallel.mesh import batch_sharding, check_mesh, constrain, make_mesh, param_shardings, put_batch
from posenc_jax.training.state import TrainState, abstract_state, count_parameters, create_state
from posenc_jax.training.step import make_eval_step, make_train_step
from tests.variants import small_model

GOLDEN = Path(__file__).parent.parent / "golden" / "collectives.tsv"
ROWS, LENGTH = 16, 16
SIZE = dict(vocab_size=72, width=32, heads=8, feed_forward_width=64)
MESHES = [
    sizes for sizes in itertools.product((1, 2, 4, 8), repeat=3) if 1 < np.prod(sizes) <= 8
]  # every (data, fsdp, tensor) on 2, 4 and 8 devices
MIXED = [(2, 2, 2), (1, 4, 2)]
SGD = optax.sgd(1.0)  # parameters after a step show the gradient itself


@functools.cache
def objective(name):
    match name:
        case "bert":
            return Mlm(small_model("bert_a", **SIZE), MlmConfig(rate=0.3))
        case "tupe_r":
            return Mlm(small_model("tupe_r", **SIZE), MlmConfig(rate=0.3))
        case "convbert":
            size = SIZE | dict(heads=16, feed_forward_groups=2, embedding_width=16, remat=True)
            return Mlm(small_model("bert_a", mixer="mixed", **size), MlmConfig(rate=0.3))
        case "rtd":
            model = small_model("bert_a", **SIZE | dict(heads=16))
            # As few words as a tokenizer that does not divide leaves: the table is padded.
            return Rtd(model, MlmConfig(rate=0.3, random_share=0.0), RtdConfig(generator_size=0.5), words=70)


def batch():
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 70, (ROWS, LENGTH)).astype(np.int32)
    segments = np.ones_like(tokens)
    for row in range(ROWS):  # uneven numbers of words: means of means would differ
        tokens[row, LENGTH - row // 2 :] = segments[row, LENGTH - row // 2 :] = 0
    return {"tokens": tokens, "segments": segments, "row": np.arange(ROWS, dtype=np.int32)}


def mesh_of(sizes):
    return make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])


@functools.cache
def fresh(name):
    return jax.device_get(create_state(objective(name), SGD, mesh_of((1, 1, 1)), seed=0).params)


@functools.cache
def compiled(name, sizes, accumulate=1):
    """A training step with dropout, and the state it takes."""
    mesh = mesh_of(sizes)
    target = abstract_state(objective(name), SGD, mesh)
    step = make_train_step(objective(name), SGD, mesh, accumulate=accumulate)
    return step.lower(target, rows_on(mesh)).compile(), target


def rows_on(mesh):
    return {
        key: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=batch_sharding(mesh))
        for key, value in batch().items()
    }


@functools.cache
def one_step(name, sizes, accumulate=1):
    """Parameters and metrics after a step, and what of the state does not lie as it should."""
    step, target = compiled(name, sizes, accumulate)
    start = TrainState(step=np.zeros((), np.int32), params=fresh(name), opt_state=SGD.init(fresh(name)))
    state = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), start, target)
    state, metrics = step(state, put_batch(batch(), mesh_of(sizes)))
    layouts_differ = [
        jax.tree_util.keystr(path)
        for (path, leaf), like in zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(target), strict=True)
        if not leaf.sharding.is_equivalent_to(like.sharding, leaf.ndim)
    ]
    return jax.device_get(state.params), jax.device_get(metrics), layouts_differ


def assert_same_step(name, sizes, accumulate=1):
    one, other = one_step(name, (1, 1, 1), accumulate), one_step(name, sizes, accumulate)
    assert other[2] == []
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=1e-5), one[0], other[0])
    assert one[1].keys() == other[1].keys()
    for metric, value in one[1].items():
        np.testing.assert_allclose(other[1][metric], value, rtol=1e-5, atol=1e-6, err_msg=metric)


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_a_step_of_bert_on_every_mesh_is_that_of_one_device(sizes):
    """With dropout: its draws and the masks lie with the rows, wherever those are."""
    assert_same_step("bert", sizes)


@pytest.mark.parametrize("sizes", MIXED, ids=str)
@pytest.mark.parametrize("name", ["tupe_r", "convbert", "rtd"])
def test_a_step_of_other_objectives_is_that_of_one_device(name, sizes):
    assert_same_step(name, sizes)


@pytest.mark.full
@pytest.mark.parametrize("sizes", [sizes for sizes in MESHES if sizes not in MIXED], ids=str)
@pytest.mark.parametrize("name", ["tupe_r", "convbert", "rtd"])
def test_a_step_of_other_objectives_on_every_other_mesh(name, sizes):
    assert_same_step(name, sizes)


@pytest.mark.parametrize("name, sizes", [("bert", (4, 2, 1)), ("rtd", (2, 2, 2))])
def test_so_is_a_step_in_slices(name, sizes):
    assert_same_step(name, sizes, accumulate=2)


@pytest.mark.parametrize("is_partitionable", [True, False])
def test_initialisation_does_not_depend_on_the_devices(is_partitionable):
    with jax.threefry_partitionable(is_partitionable):
        one = jax.device_get(create_state(objective("tupe_r"), SGD, mesh_of((1, 1, 1)), seed=3).params)
        for sizes in [(2, 1, 1), (2, 2, 2)]:
            other = jax.device_get(create_state(objective("tupe_r"), SGD, mesh_of(sizes), seed=3).params)
            jax.tree.map(np.testing.assert_array_equal, one, other)


def dropped(sizes, rate=0.1):
    """Where dropout leaves zeros, asked of it as a step does."""
    mesh = mesh_of(sizes)

    def draw(key, x_BxLxD):
        return Dropout(rate).apply({}, constrain(x_BxLxD, "batch", "length", "width"), True, rngs={"dropout": key})

    def all_rows(key, x_BxLxD):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            if sizes[0] == 1:
                return draw(key, x_BxLxD)
            rows = PartitionSpec("data")
            local = jax.shard_map(
                draw, mesh=mesh, in_specs=(PartitionSpec(), rows), out_specs=rows, axis_names={"data"}, check_vma=False
            )
            return local(key, x_BxLxD)

    ones_BxLxD = jax.device_put(np.ones((ROWS, 5, 30), np.float32), batch_sharding(mesh))
    return np.asarray(jax.jit(all_rows)(jax.random.key(0), ones_BxLxD))


@pytest.mark.parametrize("is_partitionable", [True, False])
def test_dropout_does_not_depend_on_the_devices(is_partitionable):
    with jax.threefry_partitionable(is_partitionable):
        one = dropped((1, 1, 1))
        for sizes in [(2, 1, 1), (1, 2, 2), (4, 1, 1), (2, 2, 2), (8, 1, 1), (1, 8, 1)]:
            np.testing.assert_array_equal(one, dropped(sizes))
    assert 0.05 < (one == 0).mean() < 0.15
    assert len({row.tobytes() for row in one}) == ROWS  # each row draws its own


def test_evaluation_on_a_mesh_is_that_of_one_device():
    looks = []
    for sizes in [(1, 1, 1), (2, 2, 2)]:
        mesh = mesh_of(sizes)
        params = jax.device_put(fresh("rtd"), jax.tree.map(lambda x: x.sharding, compiled("rtd", sizes)[1].params))
        terms = make_eval_step(objective("rtd"), mesh)(params, put_batch(batch(), mesh), jax.random.key(1))
        looks.append(jax.device_get(terms))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *looks)


# ---- sizes that do not divide -------------------------------------------------------------------------------------


def lay(sizes, **changes):
    return abstract_state(Mlm(small_model("bert_a", **SIZE | changes)), SGD, mesh_of(sizes))


@pytest.mark.parametrize(
    "sizes, changes, message",
    [
        (
            (1, 1, 4),
            dict(vocab_size=8001),
            r"mesh.tensor=4 does not divide 8001, the axis 'vocab' of the parameter encoder/words "
            r"\(model.vocab_size\); model.vocab_size=8004 does, its last rows idle; or take mesh.tensor=1",
        ),
        ((1, 1, 4), dict(heads=2), r"mesh.tensor=4 does not divide 2, the axis 'heads' .*model.heads.*mesh.tensor=2"),
        (
            (1, 1, 8),
            dict(feed_forward_width=68),
            r"does not divide 68, .*model.feed_forward_width\); take mesh.tensor=4",
        ),
        ((1, 8, 1), dict(width=36, heads=2), r"mesh.fsdp=8 does not divide 36, .*\(model.width.*; take mesh.fsdp=4"),
        ((1, 8, 1), dict(embedding_width=12), r"mesh.fsdp=8 does not divide 12, .*model.embedding_width"),
        ((1, 1, 4), dict(feed_forward_groups=2, feed_forward_width=60), r"divide 30, the axis 'feed_forward' .*inner"),
    ],
)
def test_a_size_that_does_not_divide_is_refused_by_name(sizes, changes, message):
    with pytest.raises(UsageError, match=message):
        lay(sizes, **changes)


def test_heads_of_mixed_layers_and_of_a_generator_are_refused_by_name():
    mixed = Mlm(small_model("bert_a", mixer="mixed", **SIZE | dict(heads=8)))
    with pytest.raises(UsageError, match=r"mesh.tensor=8 does not divide 4, .*convolution.head_ratio.*mesh.tensor=4"):
        abstract_state(mixed, SGD, mesh_of((1, 1, 8)))
    generator = Rtd(small_model("bert_a", **SIZE), rtd=RtdConfig(generator_size=0.25))
    with pytest.raises(UsageError, match=r"mesh.tensor=4 does not divide 2, .*generator/encoder.*rtd.generator_size"):
        abstract_state(generator, SGD, mesh_of((1, 1, 4)))


def test_every_shipped_config_is_laid_out_on_a_mesh_or_refused_in_words():
    """Nothing is left to fail in JAX, whose words name no setting."""
    meshes, laid = [mesh_of(sizes) for sizes in [(1, 1, 8), (1, 8, 1), (1, 2, 4), (2, 2, 2)]], []
    for spec in shipped_variants():
        config = load_config(f"{spec},base")
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_528))
        boxed = jax.eval_shape(make_objective(config).init, jax.random.key(0))
        for mesh in meshes:
            try:
                check_mesh(boxed, mesh)
            except UsageError as error:
                assert "does not divide" in str(error)
                continue
            jax.tree.map(lambda x, layout: layout.shard_shape(x.shape), nn.unbox(boxed), param_shardings(boxed, mesh))
            laid.append(tuple(mesh.shape.values()))
    assert {(1, 8, 1), (1, 2, 4), (2, 2, 2)} == set(laid)  # 12 heads do not lie on 8


# ---- traffic ------------------------------------------------------------------------------------------------------


def traffic(name, sizes, accumulate=1):
    """The collectives of a compiled step, and its gradients' bytes."""
    step, target = compiled(name, sizes, accumulate)
    return collectives(step.as_text(), mesh_of(sizes)), 4 * count_parameters(target.params)


def moved(found, kind, axes):
    return sum(row.bytes for row in found if row.kind == kind and row.axes == axes)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_over_data_the_gradients_are_reduced_once_and_nothing_else_is_sent(accumulate):
    """However many slices: and the table of words, which is read at both ends of the model, once too."""
    found, gradients = traffic("bert", (4, 1, 1), accumulate)
    assert [(row.kind, row.axes) for row in found] == [("all-reduce", ("data",))]
    assert 0 <= found[0].bytes - gradients < 100  # and the metrics


def test_over_fsdp_parameters_are_gathered_and_gradients_reduced():
    """The CPU's compiler reduces and cuts, where the TPU's scatters."""
    found, parameters = traffic("bert", (1, 4, 1))
    table = 4 * 72 * 32  # gathered at both ends of the model
    assert parameters * 0.95 < moved(found, "all-gather", ("fsdp",)) < 1.05 * parameters + table + 4 * ROWS * LENGTH
    assert parameters * 0.7 < moved(found, "all-reduce", ("fsdp",)) < 1.05 * parameters + table


def test_over_tensor_only_activations_are_reduced():
    found, _ = traffic("bert", (1, 1, 4))
    activation = 4 * ROWS * LENGTH * 32
    assert {row.kind for row in found} == {"all-reduce"}
    # A layer's sums ahead, after attention and feed-forward, and back: queries, keys, values and feed-forward.
    assert found[0].bytes < 2 * 6 * activation + 2.5 * activation


def test_accumulators_and_moments_are_cut_as_the_parameters_are():
    mesh, optimizer = mesh_of((1, 8, 1)), optax.adam(1e-3)
    wide = Mlm(small_model("bert_a", **SIZE | dict(vocab_size=4096)), MlmConfig())
    state = abstract_state(wide, optimizer, mesh)
    moments = state.opt_state[0]
    for tree in (moments.mu, moments.nu):
        jax.tree.map(lambda a, b: assert_equal(a.sharding, b.sharding), tree, state.params)
    program = make_train_step(wide, optimizer, mesh, accumulate=2).lower(state, rows_on(mesh)).compile().as_text()
    (loop,) = [line for line in program.splitlines() if " while(" in line and 'step)/while"' in line]
    carried = loop.partition(" while(")[0]
    assert "f32[4096,4]" in carried
    assert carried.count("f32[4096,32]") <= 1  # the table as it is read, gathered once for all slices


def assert_equal(one, other):
    assert one == other


SNAPSHOTS = [
    *(("bert", sizes, 1) for sizes in [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]),
    ("bert", (4, 2, 1), 2),
    *((name, (2, 2, 2), 1) for name in ("tupe_r", "convbert", "rtd")),
]


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="what a compiler makes of it is its own")
def test_the_traffic_of_every_mesh_is_that_of_the_snapshot():
    lines = ["objective\tdata,fsdp,tensor\taccumulate\tkind\taxes\tgroup\tcount\tbytes"]
    for name, sizes, accumulate in SNAPSHOTS:
        for row in sorted(traffic(name, sizes, accumulate)[0]):
            fields = (name, ",".join(map(str, sizes)), accumulate, row.kind, "+".join(row.axes), *row[2:])
            lines.append("\t".join(map(str, fields)))
    got = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(got)
    assert got == GOLDEN.read_text()
