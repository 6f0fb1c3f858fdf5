"""The protocols are those of their papers (tupe.md 3, convbert_and_electra.md 5, ddrp_mth_and_symmetric.md 2.4)."""

import json
import pickle

import pytest

from posenc_jax.config import ModelConfig
from posenc_jax.data.tasks import GLUE_TASKS, TASKS
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.glue.averages import AVERAGES
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, find_protocol, override
from posenc_jax.evaluation.metrics import METRICS

BASE = ModelConfig(width=768)


def settings(name, task="RTE", model=BASE, rows=2490, length=512):
    return PROTOCOLS[name].settings(TASKS[task], model, length, rows)


def test_tupe_is_a_grid_of_four_rates_and_five_seeds():
    protocol, of = PROTOCOLS["tupe"], settings("tupe")
    assert protocol.rates(BASE) == (2e-5, 3e-5, 4e-5, 5e-5) and len(protocol.seeds) == 5
    assert {task: settings("tupe", task).epochs for task in GLUE_TASKS if task != "WNLI"} == {
        "MNLI": 5, "QNLI": 5, "QQP": 5, "CoLA": 10, "RTE": 10, "MRPC": 10, "STS-B": 10, "SST-2": 10
    }  # fmt: skip
    assert (of.batch_size, of.length, of.warmup, of.head, of.loss) == (32, 512, 0.06, "pooler", "mean")
    optimizer = of.optimizer
    assert (optimizer.b1, optimizer.b2, optimizer.eps, optimizer.weight_decay, optimizer.clip_norm) == (
        0.9, 0.999, 1e-6, 0.01, 1.0
    )  # fmt: skip
    assert optimizer.decay_norms_and_biases and optimizer.bias_correction and of.layer_decay is None


@pytest.mark.parametrize(
    ("name", "width", "rate", "decay"),
    [
        ("convbert", 256, 3e-4, 0.8), ("convbert", 384, 3e-4, 0.8), ("convbert", 768, 1e-4, 0.8),
        ("convbert", 128, 3e-4, 0.8), ("electra", 256, 1e-4, 0.8), ("electra", 768, 1e-4, 0.8),
        ("electra", 1024, 5e-5, 0.9), ("electra", 128, 1e-4, 0.8),
    ],
)  # fmt: skip
def test_electra_and_convbert_go_by_size(name, width, rate, decay):
    model = ModelConfig(width=width)
    of = settings(name, model=model)
    assert PROTOCOLS[name].rates(model) == (rate,) and of.layer_decay == decay and of.layer_decay_form == "official"
    assert (of.head, of.loss, of.separators, of.length, of.warmup) == ("single", "sum", 1, 128, 0.1)
    optimizer = of.optimizer
    assert (optimizer.schedule, optimizer.bias_correction, optimizer.decay_norms_and_biases) == (
        "linear_product", False, False
    )  # fmt: skip
    assert [settings(name, task).doubled for task in ("MRPC", "STS-B", "RTE")] == [True, True, False]
    assert [settings(name, task).epochs for task in ("RTE", "STS-B", "MNLI")] == [10, 10, 3]


def test_symmetric_is_one_fixed_setting_and_scores_by_two_metrics():
    of, protocol = settings("symmetric", "MRPC"), PROTOCOLS["symmetric"]
    assert protocol.rates(BASE) == (1e-5,) and protocol.seeds == (1, 2, 3, 4, 5) and protocol.aggregation == "mean"
    assert (of.epochs, of.batch_size, of.length, of.warmup) == (5, 16, 128, 0.1)
    assert (of.optimizer.eps, of.optimizer.weight_decay) == (1e-8, 0.0)
    assert of.metrics == ("accuracy", "f1") and settings("symmetric", "STS-B").metrics == ("pearson", "spearman")


def test_quick_caps_its_rows_and_default_its_epochs():
    assert settings("quick", rows=10_000).most_rows is None and settings("quick", rows=10_001).most_rows == 10_000
    assert settings("quick").epochs == 3 and settings("quick").length == 128
    assert [settings("default", rows=rows).epochs for rows in (10_000, 10_001)] == [10, 3]
    assert PROTOCOLS["quick"].rates(ModelConfig(width=128)) == pytest.approx((3e-4,))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_fits_every_task_and_says_so_in_json(name):
    protocol = PROTOCOLS[name]
    assert protocol.average in AVERAGES and protocol.source and pickle.loads(pickle.dumps(protocol)) == protocol
    for task in TASKS.values():
        of = protocol.settings(task, BASE, 64, 100)
        assert of.length == 64  # never more than the encoder was trained on
        assert all(metric in METRICS and metric in task.metrics for metric in of.metrics)
        assert json.loads(json.dumps(of.as_json())) == of.as_json()


@pytest.mark.parametrize("name", ["tupe", "electra", "symmetric"])
def test_a_protocols_average_is_over_the_metrics_it_scores_by(name):
    protocol = PROTOCOLS[name]
    for column, metric in AVERAGES[protocol.average].scores:
        task = next(task for task in GLUE_TASKS if column.startswith(task))
        assert metric in protocol.metrics_for(TASKS[task])


def test_what_is_changed_is_in_the_label():
    changed = override(PROTOCOLS["quick"], seeds=3, epochs=2, batch_size=16, learning_rates=[1e-3])
    assert changed.label == "quick, 2 epochs, 16 rows a step, learning rate 0.001" and changed.seeds == (0, 1, 2)
    assert changed.rates(BASE) == (1e-3,) and override(PROTOCOLS["symmetric"], seeds=2).seeds == (1, 2)
    assert changed.settings(TASKS["RTE"], BASE, 512, 50).protocol == changed.label
    assert override(PROTOCOLS["default"], batch_size=32).label == "default"


def test_an_unknown_protocol_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'electra'"):
        find_protocol("elektra")
