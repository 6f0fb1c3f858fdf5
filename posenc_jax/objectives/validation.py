"""The validation loss of a pre-training run: the same held-out rows with the same masks, for every run and step."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from posenc_jax.data.loader import validation_batches
from posenc_jax.data.rows import RowsInfo
from posenc_jax.parallel.mesh import put_batch, row_share
from posenc_jax.training.objective import Objective
from posenc_jax.training.step import make_eval_step, means

EVALUATION_KEY = 20200628
"""Seed of the masks of the validation loss: the same for every run, step and variant."""


def make_evaluation(
    objective: Objective, info: RowsInfo, mesh: Mesh, *, batch_size: int, rows: int
) -> Callable[[Any], dict[str, float]]:
    """Returns evaluate(params) -> "loss", the weighted sum of all terms, and what else the objective says, over the
    first `rows` held-out rows; each process reads its share of them."""
    look = make_eval_step(objective, mesh)
    share = row_share(mesh, batch_size)
    size = batch_size // share.count
    mine = slice(share.index * size, (share.index + 1) * size)
    batches = [
        {name: rows_BxL[mine] for name, rows_BxL in batch.items()}
        for batch in validation_batches(info, batch_size=batch_size, rows=rows)
    ]
    key = jax.random.key(EVALUATION_KEY)

    def evaluate(params: Any) -> dict[str, float]:
        looks = [look(params, put_batch(batch, mesh), key) for batch in batches]
        terms = functools.reduce(lambda one, other: jax.tree.map(operator.add, one, other), looks)
        values = {name: float(value) for name, value in means(terms).items()}
        total = sum(factor * values[f"{name}_loss"] for name, factor in objective.coefficients.items())
        if len(objective.coefficients) == 1:
            del values["mlm_loss"]  # it is the total
        return {"loss": total, **values}

    return evaluate
