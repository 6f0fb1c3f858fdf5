"""One fine-tuning: compiled once for a grid, each example once, rates and heads as their definitions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.data.tasks import TASKS, Examples
from posenc_jax.data.tokenizer import Specials
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.batches import training_batches
from posenc_jax.evaluation.glue.finetune import Task, fine_tune, labels_of, make_bench, predict, training_examples
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, override
from posenc_jax.interop.pretrained import Pretrained
from posenc_jax.parallel.mesh import AXES, put_batch
from posenc_jax.training.layer_decay import layer_decay
from posenc_jax.training.optimizer import make_optimizer
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_train_step

MODEL = ModelConfig(
    layers=2, width=16, heads=2, feed_forward_width=32, vocab_size=40, dropout=0.1,
    positions=PositionConfig(max_length=64),
)  # fmt: skip


class Words:
    """A tokenizer that gives a word of n letters the id 10 + n."""

    pad, unk, cls, sep, mask = Specials()

    def encode_batch(self, texts):
        return [[10 + len(word) for word in text.split()] for text in texts]


PRETRAINED = Pretrained(None, MODEL, Words(), 64)


def examples(count, seed, labels=6):
    rng = np.random.default_rng(seed)
    texts = [[" ".join("x" * n for n in rng.integers(1, 9, rng.integers(2, 13))) for _ in range(count)] for _ in "ab"]
    return Examples(*texts, rng.integers(0, labels, count).astype(np.float32))


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)


@pytest.fixture(scope="module")
def task():
    test = {"test": dataclasses.replace(examples(9, 3), labels=None)}
    return Task(TASKS["STS-B"], examples(21, 1), {"dev": examples(13, 2)}, test, "x")


def bench_of(task, mesh, protocol, **changes):
    changed = dataclasses.replace(PROTOCOLS[protocol], **changes)
    return make_bench(task, changed.settings(task.spec, MODEL, 64, len(task.train)), PRETRAINED, mesh)


@pytest.fixture(scope="module")
def bench(task, mesh):
    return bench_of(task, mesh, "default", epochs=2, batch_size=8)


def test_all_rates_and_seeds_of_a_task_share_what_the_first_run_compiled(bench):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    scores, counts = {}, []
    for rate in (1e-2, 1e-3):
        for seed in (0, 1):
            scores[rate, seed] = fine_tune(bench, None, rate, seed)[0]["score"]
            counts.append(len(compiled))
    assert counts[0] > 0 and counts[1:] == counts[:1] * 3  # nothing after the first run
    assert len(set(scores.values())) == 4
    assert bench.train_step._cache_size() == len(bench.train) == 2


def test_a_rate_given_as_data_trains_as_one_that_is_built_in(bench):
    settings, rate = bench.settings, 3e-3
    config = dataclasses.replace(settings.optimizer, learning_rate=rate)
    optimizer = make_optimizer(config, bench.steps, round(settings.warmup * bench.steps))
    step = make_train_step(bench.objective, optimizer, bench.mesh)
    state = create_state(bench.objective, optimizer, bench.mesh, 5)
    for batch in training_batches(bench.train, settings.batch_size, settings.epochs, 5):
        state, _ = step(state, put_batch(batch, bench.mesh))
    _, answers = fine_tune(bench, None, rate, 5)
    np.testing.assert_array_equal(answers["test"], predict(bench, state.params, bench.test["test"]).astype(np.float32))


def test_every_example_is_answered_once_whatever_the_batch(bench, task, mesh):
    other = bench_of(task, mesh, "default", batch_size=6)
    params = create_state(bench.objective, bench.optimizer, mesh, 3).params
    for buckets in (bench.dev["dev"], bench.test["test"]):
        places = np.concatenate([bucket.index_N for bucket in buckets])
        assert sorted(places) == list(range(len(places)))
    answers = [predict(one, params, one.dev["dev"]) for one in (bench, other)]
    assert len(answers[0]) == 13 and len(set(answers[0])) > 5
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(labels_of(bench.dev["dev"]), task.dev["dev"].labels)
    alone = [predict(bench, params, make_bench_of_one(task, bench, row)) for row in range(13)]
    np.testing.assert_allclose(np.concatenate(alone), answers[0], rtol=1e-4, atol=1e-4)


def make_bench_of_one(task, bench, row):
    dev = task.dev["dev"]
    one = Examples(dev.texts_a[row : row + 1], dev.texts_b[row : row + 1], dev.labels[row : row + 1])
    return make_bench(dataclasses.replace(task, dev={"dev": one}), bench.settings, PRETRAINED, bench.mesh).dev["dev"]


def test_electra_sums_over_the_batch_and_decays_by_layer(task, mesh):
    bench = bench_of(task, mesh, "electra", batch_size=32)
    (batch, *_) = training_batches(bench.train, 32, 1, 0)
    rows = batch["weight"].sum()
    mean = dataclasses.replace(bench.objective, reduction="mean")
    assert [float(one.weights(batch)["supervised"]) for one in (bench.objective, mean)] == [1.0, rows]
    params = create_state(bench.objective, bench.optimizer, mesh, 0).params
    inner = make_optimizer(
        dataclasses.replace(bench.settings.optimizer, learning_rate=1.0), bench.steps, round(0.1 * bench.steps)
    )
    multiples = jax.tree.map(jnp.ones_like, params)
    multiples, _ = layer_decay(0.8, 2).update(multiples, layer_decay(0.8, 2).init(params))
    gradients, step = jax.tree.map(lambda p: jnp.full_like(p, 0.01), params), jax.jit(bench.optimizer.update)
    ours, theirs, inner_step = bench.optimizer.init(params), inner.init(params), jax.jit(inner.update)
    ours = ours._replace(hyperparams={"learning_rate": jnp.float32(1.0)})
    for _ in range(3):  # the first has rate 0
        (update, ours), (plain, theirs) = step(gradients, ours, params), inner_step(gradients, theirs, params)
    wanted = jax.tree.map(lambda u, m: u * m, plain, multiples)
    for a, b in zip(jax.tree.leaves(update), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-8)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(update)) > 0


def test_pairs_are_doubled_with_their_texts_exchanged(task):
    settings = PROTOCOLS["electra"].settings(task.spec, MODEL, 64, 21)
    doubled = training_examples(task.train, settings)
    assert len(doubled) == 42 and doubled.texts_a[21:] == task.train.texts_b == doubled.texts_b[:21]
    assert doubled.texts_b[21:] == task.train.texts_a
    np.testing.assert_array_equal(doubled.labels, np.tile(task.train.labels, 2))
    single = Examples(["a"], None, np.zeros(1, np.int32))
    assert training_examples(single, settings) == single


def test_the_cap_draws_rows_once_and_keeps_their_order(task):
    settings = dataclasses.replace(override(PROTOCOLS["quick"]).settings(task.spec, MODEL, 64, 21), most_rows=8)
    kept = training_examples(task.train, settings)
    places = [task.train.texts_a.index(text) for text in kept.texts_a]
    assert len(places) == 8 and places == sorted(places) and places != list(range(8))
    assert kept.texts_b == [task.train.texts_b[place] for place in places]
    np.testing.assert_array_equal(kept.labels, task.train.labels[places])
    assert training_examples(task.train, settings).texts_a == kept.texts_a


def test_a_loss_that_is_not_finite_is_an_error(bench):
    encoder = create_state(bench.objective, bench.optimizer, bench.mesh, 0).params["encoder"]
    broken = jax.tree.map(lambda leaf: leaf * np.nan, encoder)
    with pytest.raises(UserError, match="not finite at step 1"):
        fine_tune(bench, broken, 1e-3, 0)


def test_two_dev_splits_are_two_columns(mesh):
    spec = TASKS["MNLI"]
    splits = {split: dataclasses.replace(examples(11, n), labels=np.arange(11, dtype=np.int32) % 3)
              for n, split in enumerate(("train", *spec.dev_splits, "AX"))}  # fmt: skip
    train, ax = splits.pop("train"), splits.pop("AX")
    bench = bench_of(Task(spec, train, splits, {"AX": ax}, "x"), mesh, "quick", epochs=1, batch_size=8)
    part, answers = fine_tune(bench, None, 1e-3, 0)
    assert list(part["columns"]) == ["MNLI-m", "MNLI-mm"] and part["score"] == part["columns"]["MNLI-m"]["score"]
    assert set(answers["AX"]) <= {0.0, 1.0, 2.0} and answers["AX"].shape == (11,) and answers["AX"].dtype == np.float32
