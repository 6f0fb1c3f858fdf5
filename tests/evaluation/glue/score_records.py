"""Records as `glue` writes them, of scores that are made up."""

from posenc_jax.config import ModelConfig
from posenc_jax.data.tasks import TASKS
from posenc_jax.evaluation.glue.protocols import PROTOCOLS

MODEL = ModelConfig(width=768)


def record(
    task, *scores, seed=0, rate=None, protocol="default", column=None, metrics=None, majority=0.5, rows=1000, **more
):
    """`scores` are those of the task's columns, of which `column` names a single one; `metrics` are by default all
    equal to the score."""
    plan = PROTOCOLS[protocol]
    settings = plan.settings(TASKS[task], MODEL, 512, rows)
    rates = plan.rates(MODEL)
    rate = rate or rates[0]
    names = [column or task] if len(scores) == 1 else [f"{task}-m", f"{task}-mm"]
    columns = {
        name: {
            "score": score,
            "metrics": metrics or dict.fromkeys(TASKS[task].metrics, score),
            "majority": majority,
            "majorities": dict.fromkeys(TASKS[task].metrics, majority),
            "rows": 1043,
        }
        for name, score in zip(names, scores, strict=True)
    }
    return {
        "id": f"{task}-{protocol}-{rate:g}-seed{seed}-{more.get('start', '')[:4]}", "task": task, "seed": seed,
        "protocol": protocol, "settings": settings.as_json(), "start": "step 10 (ab)", "data": "x", "model": "y",
        "learning_rate": rate, "rates": list(rates), "answered": {}, "training_rows": rows,
        "score": scores[0] if scores else None,
        "metrics": metrics or {}, "columns": columns, "seconds": 2.0, "steps": 9, "notes": [], **more,
    }  # fmt: skip
