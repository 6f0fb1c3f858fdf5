"""The benchmark of compilation: what is compiled, and how often. No speed is tested."""

import jax
import pytest

from posenc_jax.evaluation.bench import compilation
from posenc_jax.evaluation.bench.compilation import DEPTHS, compiled_steps
from posenc_jax.training import step


@pytest.mark.parametrize("layers", DEPTHS)
def test_a_piece_of_work_is_one_compilation_of_scanned_layers(layers, monkeypatch):
    events = []

    class Step:
        def lower(self, state, batch):
            depths = {leaf.shape[0] for leaf in jax.tree.leaves(state.params["encoder"]["layers"])}
            events.append((depths, batch["tokens"].shape))
            return self

        def compile(self):
            events.append("compiled")

    def make_train_step(objective, optimizer, mesh):
        assert objective.model.scan and objective.model.width == 768
        return Step()

    monkeypatch.setattr(step, "make_train_step", make_train_step)
    run, _ = compiled_steps("bert", "base", layers)
    run(2)
    assert events == [({layers}, (32, 128)), "compiled"] * 2


def test_a_step_compiles_without_arrays(monkeypatch):
    monkeypatch.setattr(compilation, "VOCAB_SIZE", 50)
    run, device = compiled_steps("bert", "tiny", 1)
    arrays = len(jax.live_arrays())
    run(1)
    assert len(jax.live_arrays()) <= arrays and device.startswith("jax ")
