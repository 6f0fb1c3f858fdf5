"""What the TPU compiler says of shipped configs, held to a snapshot within bands.

A wanted change: `UPDATE_GOLDEN=1 python -m pytest -m '' tests/evaluation/preflight/test_compiling.py`, then read the
diff of tests/golden/preflight.json. Without libtpu the compiling tests are skipped.
"""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path

import pytest

from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.preflight.compiling import pallas_kernels, read_refusal
from posenc_jax.evaluation.preflight.process import Question, compiler
from posenc_jax.parallel.topologies import parse_topology

GOLDEN = Path(__file__).parents[2] / "golden" / "preflight.json"
BAND = 0.05
"""Compilers of other versions may need so much more or less."""
GIB = 2**30

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


@pytest.fixture(scope="module")
def ask():
    with compiler() as ask:
        yield ask


def question(spec, topology="v5e:2x4", memory_only=False, draft=False, **changes):
    config = load_config(spec, {"model.vocab_size": 32_768, **changes})
    return Question(config, 512, parse_topology(topology), memory_only=memory_only, draft=draft)


def snapshot(name, found):
    """The kept value under a name, after keeping `found` where that is asked for."""
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        kept[name] = found
        GOLDEN.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    if name not in kept:
        pytest.skip(f"no snapshot of {name} was taken yet; the head of this file says how")
    return kept[name]


# ---- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message, figures",
    [
        ("the total memory required for HLO temporaries (23.50G) exceeds available HBM (15.75G).", (23.5, 15.75)),
        ("Ran out of memory in memory space hbm. Used 16.25G of 15.50G hbm. Exceeded by 768.00M.", (16.25, 15.5)),
        ("HLO temporaries (512.00M) exceeds available HBM (0.25G)", (0.5, 0.25)),
    ],
)
def test_both_figures_of_a_refusal_are_read(message, figures):
    assert read_refusal(f"RESOURCE_EXHAUSTED: {message}") == tuple(round(figure * GIB) for figure in figures)


@pytest.mark.parametrize("message", ["", "INTERNAL: Mosaic failed", "RESOURCE_EXHAUSTED: Ran out of memory in vmem"])
def test_another_failure_is_no_refusal(message):
    assert read_refusal(message) is None


def test_kernels_are_named_once():
    call = '  %{} = f32[8]{{0}} custom-call(%p), custom_call_target="{}", metadata={{}}'
    lines = [call.format(*pair) for pair in (("mix.3", "tpu_custom_call"), ("mix", "tpu_custom_call"), ("x", "Other"))]
    assert pallas_kernels("\n".join(lines)) == ["mix"]


# ---- the compiler itself ------------------------------------------------------------------------------------------


def variants():
    """Every shipped one; those that are one config, or differ in where weights start, once."""
    seen = {}
    for variant in shipped_variants():
        config = load_config(f"{variant},base", {"model.vocab_size": 32_768})
        compatibility = dataclasses.replace(config.model.compatibility, matched_init=False, start="normal")
        model = dataclasses.replace(config.model, compatibility=compatibility)
        seen.setdefault(repr(dataclasses.replace(config, model=model)), variant)
    return list(seen.values())


FIRST = list({variant.partition(":")[0]: variant for variant in reversed(variants())}.values())
"""The first of each file."""
PROGRAM = "configs/tupe.py:tupe_r"
"""Of this one the code is made in every run: it takes ten times as long as asking for the memory."""


@needs_libtpu
@pytest.mark.parametrize("variant", [variant for variant in variants() if variant not in FIRST])
def test_a_shipped_config_compiles_for_a_tpu_and_needs_as_much_memory_as_before(ask, variant):
    """Base, cut to two layers, up to where the compiler makes code; the first of each file is the next test's."""
    facts = ask(question(f"{variant},base", memory_only=True, **{"model.layers": 2, "train.batch_size": 64}))
    assert facts["fits"] and facts["available"] == pytest.approx(15.75 * GIB)
    assert facts["needed"] == pytest.approx(snapshot(variant, facts["needed"]), rel=BAND)


@needs_libtpu
@pytest.mark.parametrize("variant", FIRST)
def test_a_base_config_whole_compiles_and_needs_as_much_memory_as_before(ask, variant):
    facts = ask(question(f"{variant},base", memory_only=True))
    found = {"fits": facts["fits"], "needed": facts["needed"]}
    kept = snapshot(f"{variant}, whole", found)
    assert found["fits"] == kept["fits"]
    assert found["needed"] == pytest.approx(kept["needed"], rel=BAND)


@needs_libtpu
@pytest.mark.parametrize("variant", [pytest.param(v, marks=[pytest.mark.full] if v != PROGRAM else []) for v in FIRST])
def test_the_program_of_a_shipped_config_sends_and_holds_as_much_as_before(ask, variant):
    facts = ask(question(f"{variant},base", draft=True, **{"model.layers": 2, "train.batch_size": 16}))
    assert_as_before(f"{variant}, program", facts)


def assert_as_before(name, facts):
    found = {"memory": facts["memory"], "collectives": facts["collectives"]}
    kept = snapshot(name, found)
    for size in ("arguments", "temporaries"):
        assert found["memory"][size] == pytest.approx(kept["memory"][size], rel=BAND), size
    traffic, before = ({(row["kind"], *row["axes"]): row["bytes"] for row in it["collectives"]} for it in (found, kept))
    assert traffic == pytest.approx(before, rel=BAND)


@needs_libtpu
def test_gradients_meet_once_and_nothing_else_is_sent_along_data(ask):
    facts = ask(question("configs/tupe.py:tupe_r,tiny", draft=True))
    assert {(row["kind"], *row["axes"], row["group"]) for row in facts["collectives"]} == {("all-reduce", "data", 8)}
    assert sum(row["bytes"] for row in facts["collectives"]) == pytest.approx(4 * facts["parameters"], rel=0.01)
    assert facts["memory"]["arguments"] >= facts["state_bytes"] >= 3 * facts["parameter_bytes"]
    assert facts["memory"]["aliased"] >= facts["state_bytes"]  # the state is updated in place
    assert facts["pallas_kernels"] == ["biased_attention_backward", "biased_attention_forward"]


@needs_libtpu
@pytest.mark.parametrize("variant", [PROGRAM, pytest.param("configs/electra.py:electra", marks=pytest.mark.full)])
def test_the_program_of_a_mesh_of_three_axes_sends_and_holds_as_much_as_before(ask, variant):
    mesh = {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2}
    facts = ask(question(f"{variant},base", draft=True, **{"model.layers": 2, "train.batch_size": 16, **mesh}))
    assert_as_before(f"{variant}, program of a mesh", facts)


@needs_libtpu
def test_slices_tell_each_other_the_gradients_once(ask):
    spec = load_config("configs/tupe.py:tupe_r,tiny", {"model.vocab_size": 32_768})
    facts = ask(Question(spec, 64, parse_topology("v5e:2x2", 2), draft=True))
    (between,) = (row for row in facts["collectives"] if "slices" in row["axes"])
    assert (between["kind"], between["group"]) == ("all-reduce", 2)
    # At least each chip its quarter; at most, where a sum within the slice is not scattered, all.
    assert facts["parameters"] <= between["bytes"] <= 4.01 * facts["parameters"]


@needs_libtpu
@pytest.mark.parametrize("mesh", [{"mesh.fsdp": 4}, {"mesh.fsdp": 2, "mesh.tensor": 2}], ids=str)
def test_layers_that_would_be_written_out_compile_with_kernels_on_every_mesh(ask, mesh):
    spec = "configs/convbert.py:convbert_mlm,tiny" if "mesh.tensor" not in mesh else "configs/tupe.py:tupe_r,tiny"
    facts = ask(question(spec, draft=True, **{"model.scan": False, **mesh}))
    assert {"biased_attention_backward", "biased_attention_forward"} <= set(facts["pallas_kernels"])


@needs_libtpu
@pytest.mark.parametrize(
    "variant, most, saved", [("configs/tupe.py:tupe_r", 7.3, 6.5), ("configs/convbert.py:convbert_mlm", 7.4, 3.3)]
)
def test_kernels_save_what_32_rows_of_512_need(ask, variant, most, saved):
    """Twelve layers, none of them computed twice. ConvBERT's have half as many attention heads to save on."""
    needed = {}
    for kernels in ("auto", "xla"):
        changes = {"train.batch_size": 32, "model.kernels": kernels}
        needed[kernels] = ask(question(f"{variant},base", "v5e:1x1", memory_only=True, **changes))["needed"]
    assert needed["auto"] < most * GIB
    assert needed["auto"] < needed["xla"] - saved * GIB


@needs_libtpu
def test_an_oversize_batch_is_refused_by_the_compiler_with_both_figures(ask):
    facts = ask(question("configs/tupe.py:tupe_r,base", **{"train.batch_size": 4096}))
    assert not facts["fits"]
    assert facts["available"] == round(15.75 * GIB) and facts["needed"] > 4 * facts["available"]
    assert "memory" not in facts


@needs_libtpu
def test_a_topology_that_no_machine_has_is_refused(ask):
    with pytest.raises(UsageError, match=r"no machine has the topology v5e:3x5 .*names are"):
        ask(question("configs/tupe.py:tupe_r,tiny", "v5e:3x5"))


@needs_libtpu
def test_what_training_refuses_is_refused_with_its_words(ask):
    with pytest.raises(UsageError, match=r"train.batch_size=12 is not divisible by 8 devices.*nearest"):
        ask(question("configs/tupe.py:tupe_r,tiny", **{"train.batch_size": 12}))
    with pytest.raises(UsageError, match=r"mesh.fsdp=3"):
        ask(question("configs/tupe.py:tupe_r,tiny", **{"mesh.fsdp": 3}))


@needs_libtpu
@pytest.mark.parametrize("topology, devices", [("v4:2x2x1", 4), ("v5p:2x2x1", 4), ("v6e:2x4", 8), ("tpu7x:2x2x1", 8)])
def test_other_generations_are_known_to_the_compiler(ask, topology, devices):
    """By the refusal of a batch that does not divide: nothing is compiled."""
    with pytest.raises(UsageError, match=f"divisible by {devices} devices"):
        ask(question("configs/tupe.py:tupe_r,tiny", topology, **{"train.batch_size": 1}))
