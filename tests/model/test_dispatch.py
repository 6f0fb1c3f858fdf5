"""Which program mixes the words, and that both give the same."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from posenc_jax.config import DifferentiationConfig, MeshConfig, MlmConfig, ModelConfig
from posenc_jax.model import dispatch
from posenc_jax.model.dispatch import XLA, attention_kernel, convolution_kernel
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import batch_sharding, make_mesh, put_batch
from posenc_jax.training.state import abstract_state, create_state
from posenc_jax.training.step import make_eval_step, make_train_step
from tests.variants import small_model

ROWS, LENGTH = 8, 24
SIZE = dict(vocab_size=72, width=64, heads=16, feed_forward_width=64, kernels="pallas")
SGD = optax.sgd(1.0)


def one_step(model, sizes=(1, 1, 1), **options):
    """Parameters and metrics after a step with dropout, on rows of uneven length."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 70, (ROWS, LENGTH)).astype(np.int32)
    segments = np.ones_like(tokens)
    for row in range(ROWS):
        tokens[row, LENGTH - row :] = segments[row, LENGTH - row :] = 0
        segments[row, : LENGTH - row] += np.arange(LENGTH - row) >= 10  # a second document
    mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])
    objective = Mlm(model, MlmConfig(rate=0.3), **options)
    batch = put_batch({"tokens": tokens, "segments": segments, "row": np.arange(ROWS, dtype=np.int32)}, mesh)
    state, metrics = make_train_step(objective, SGD, mesh)(create_state(objective, SGD, mesh, 0), batch)
    return jax.device_get(state.params), jax.device_get(metrics)


@pytest.fixture
def taken(monkeypatch):
    """The kernels that a program was made of."""
    names = []
    for name in ("mixed_by_attention", "convolved"):
        module = "attention" if name == "mixed_by_attention" else "convolution"
        inner = getattr(dispatch, name)

        def spy(*arguments, name=name, inner=inner):
            names.append(name)
            return inner(*arguments)

        monkeypatch.setattr(f"posenc_jax.model.{module}.{name}", spy)
    return names


@pytest.mark.parametrize(
    "variant, changes, expected",
    [
        ("tupe_r", {}, {"mixed_by_attention"}),
        ("bert_a", {"mixer": "mixed", "remat": True}, {"mixed_by_attention", "convolved"}),
        ("rope", {"attention_dropout": 0.0}, {"mixed_by_attention"}),
    ],
)
def test_a_step_by_kernels_is_the_step_by_xla_dropout_included(variant, changes, expected, taken):
    model = small_model(variant, **SIZE | changes)
    ours, metrics = one_step(model)
    assert set(taken) == expected
    taken.clear()
    plain, plain_metrics = one_step(dataclasses.replace(model, kernels=XLA))
    assert not taken
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), ours, plain)
    assert metrics["loss"] == pytest.approx(plain_metrics["loss"], rel=1e-6)


@pytest.mark.parametrize("sizes, mixer", [((2, 2, 2), "attention"), ((4, 2, 1), "mixed")], ids=str)
def test_so_is_a_step_on_a_mesh(sizes, mixer, taken):
    model = small_model("tupe_r", mixer=mixer, **SIZE)
    ours, metrics = one_step(model, sizes)
    assert "mixed_by_attention" in taken
    plain, plain_metrics = one_step(dataclasses.replace(model, kernels=XLA))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=1e-5), ours, plain)
    assert metrics["loss"] == pytest.approx(plain_metrics["loss"], rel=1e-6)


def test_what_reads_the_weights_is_left_to_xla_and_told_once(taken, capsys):
    dispatch._say.cache_clear()
    model = small_model("bert_a", **SIZE)
    one_step(model, differentiation=DifferentiationConfig(head_weight=1.0))
    one_step(small_model("shaw_values", **SIZE))
    one_step(small_model("ddrp", **SIZE))
    assert not taken
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "attention runs by XLA, not by the pallas kernel: the loss reads the weights",
        "attention runs by XLA, not by the pallas kernel: a term of words and positions is added to the logits",
    ]


def on(monkeypatch, platform, kind=""):
    monkeypatch.setattr(dispatch, "_device", lambda: (platform, kind))


BASE = ModelConfig(dtype="bfloat16", vocab_size=100)
CONVBERT = dataclasses.replace(BASE, mixer="mixed")


def ask(model, shape=(8, 512), reasons=()):
    """On one device."""
    with jax.sharding.use_abstract_mesh(make_mesh(MeshConfig(), jax.devices()[:1]).abstract_mesh):
        return attention_kernel(model, shape, has_bias=True, reasons=reasons)


def ask_convolution(model, shape=(8, 512)):
    with jax.sharding.use_abstract_mesh(make_mesh(MeshConfig(), jax.devices()[:1]).abstract_mesh):
        return convolution_kernel(model, shape)


@pytest.mark.parametrize(
    "platform, settings, attention, convolution",
    [
        ("tpu", {}, "pallas", "pallas"),
        ("tpu", {"kernels": "xla"}, XLA, XLA),
        ("gpu", {}, XLA, XLA),
        ("gpu", {"kernels": "pallas"}, XLA, XLA),
        ("cpu", {}, XLA, XLA),
        ("cpu", {"kernels": "pallas"}, "pallas", "pallas"),
        ("tpu", {"width": 720}, XLA, "pallas"),  # heads 60 wide
        ("tpu", {"dtype": "float64"}, XLA, XLA),
    ],
)
def test_the_table(monkeypatch, platform, settings, attention, convolution):
    on(monkeypatch, platform, "TPU v5 lite")
    model = dataclasses.replace(CONVBERT, **settings)
    assert ask(dataclasses.replace(model, mixer="attention")) == attention
    assert ask_convolution(model) == convolution


def test_a_kernel_that_is_asked_for_where_there_is_none_is_told(monkeypatch, capsys):
    dispatch._say.cache_clear()
    on(monkeypatch, "gpu", "NVIDIA H100 80GB HBM3")
    assert ask(dataclasses.replace(BASE, kernels="pallas")) == ask(BASE) == XLA
    assert capsys.readouterr().err == "attention runs by XLA: there is no kernel of it for gpu\n"


def test_other_convolutions_have_no_kernel(monkeypatch):
    on(monkeypatch, "tpu", "TPU v5 lite")
    dynamic = dataclasses.replace(CONVBERT, convolution=dataclasses.replace(CONVBERT.convolution, kind="dynamic"))
    assert ask_convolution(dynamic) == XLA


def test_a_reason_speaks_against_every_kernel(monkeypatch):
    on(monkeypatch, "tpu", "TPU v5 lite")
    assert ask(BASE, reasons=(None, None)) == "pallas"
    assert ask(BASE, reasons=(None, "positions differ from row to row")) == XLA


def test_the_chip_and_the_length_decide(monkeypatch):
    on(monkeypatch, "tpu", "TPU v4")
    assert ask(BASE, (8, 2048)) == XLA and ask_convolution(CONVBERT, (8, 2048)) == XLA
    on(monkeypatch, "tpu", "TPU v5 lite")
    assert ask(BASE, (8, 1024)) == "pallas" and ask_convolution(CONVBERT, (8, 2048)) == "pallas"


def test_rows_that_do_not_divide_and_devices_without_a_mesh_are_left_to_xla(monkeypatch):
    on(monkeypatch, "tpu", "TPU v5 lite")
    assert attention_kernel(BASE, (8, 512), has_bias=True) == XLA
    with jax.sharding.use_abstract_mesh(make_mesh(MeshConfig()).abstract_mesh):
        assert attention_kernel(BASE, (8, 512), has_bias=True) == "pallas"
        assert attention_kernel(BASE, (12, 512), has_bias=True) == XLA


@pytest.mark.parametrize("platform, kernels", [("tpu", True), ("cuda", False)])
@pytest.mark.parametrize("mixer", ["attention", "mixed"])
@pytest.mark.parametrize("sizes", [(8, 1, 1), (2, 2, 2)], ids=str)
def test_training_and_evaluation_lower_on_every_mesh(monkeypatch, mixer, sizes, platform, kernels):
    """A kernel is refused in a program that the compiler cuts: it must stand in parts of its own."""
    on(monkeypatch, {"cuda": "gpu"}.get(platform, platform), "TPU v5 lite")
    model = small_model("tupe_r", mixer=mixer, **SIZE | dict(kernels="auto", dtype="bfloat16", heads=4))
    mesh, objective = make_mesh(MeshConfig(*sizes)), Mlm(model, MlmConfig(rate=0.3))
    state = abstract_state(objective, SGD, mesh)
    rows = jax.ShapeDtypeStruct((16, 32), np.int32, sharding=batch_sharding(mesh))
    batch = {"tokens": rows, "segments": rows, "row": jax.ShapeDtypeStruct((16,), np.int32)}
    key = jax.eval_shape(lambda: jax.random.key(0))
    for traced in (
        make_train_step(objective, SGD, mesh).trace(state, batch),
        make_eval_step(objective, mesh).program().trace(state.params, batch, key),
    ):
        assert ("tpu_custom_call" in traced.lower(lowering_platforms=(platform,)).as_text()) == kernels
