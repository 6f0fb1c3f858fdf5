"""One update of the parameters, and one look at a batch without it; both pure and jitted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from posenc_jax.parallel.forward import jit_forward
from posenc_jax.parallel.mesh import batch_sharding, replicated, row_by_row, summed_over_data
from posenc_jax.training.objective import Mean, Objective, Terms
from posenc_jax.training.state import TrainState, abstract_state

Metrics = dict[str, jax.Array]


def make_train_step(
    objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, *, accumulate: int = 1, seed: int = 0
) -> Callable[[TrainState, dict[str, jax.Array]], tuple[TrainState, Metrics]]:
    """Returns step(state, batch) -> state, metrics; the state given is consumed.

    The batch is worked through in `accumulate` slices whose gradients are summed; with dropout off the result is
    that of one slice (tested to 1e-6). Randomness is a function of (seed, step). Where the loss or the gradient is not
    finite, parameters and optimizer keep their values and only the step counts on. Metrics are float32 scalars on the
    device: "loss" (the weighted sum of all terms), "grad_norm" before clipping, "skipped" (1 where the update was left
    out), each term where there are several, and the objective's own.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(objective, optimizer, mesh))
    layouts = jax.tree.map(lambda sharding: sharding.spec, shardings.params)

    def sum_gradients(whole: tuple[Any, Any, jax.Array], examples: Any) -> tuple[Any, Any]:
        params, weights, key = whole

        def loss(params: Any, slice_: dict[str, jax.Array], key: jax.Array) -> tuple[jax.Array, Any]:
            sums, terms = objective.sums(params, slice_, key, train=True)
            return combine(objective, sums, weights), (sums, terms)

        def gradient(slice_: Any, key: jax.Array) -> tuple[Any, Any]:
            values, grads = jax.value_and_grad(loss, has_aux=True)(params, slice_, key)
            return values, jax.tree.map(jax.lax.with_sharding_constraint, grads, layouts)

        return gradient(examples, key) if accumulate == 1 else _accumulate(gradient, examples, key, accumulate)

    def step(state: TrainState, batch: dict[str, jax.Array]) -> tuple[TrainState, Metrics]:
        prepare_key, dropout_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), state.step))
        examples = row_by_row(lambda key, rows: objective.prepare(rows, key), mesh)(prepare_key, batch)
        weights = objective.weights(examples)
        whole = state.params, weights, dropout_key
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            (total, (sums, terms)), grads = summed_over_data(sum_gradients, mesh)(whole, examples)
        if len(sums) > 1:
            terms = {**losses(sums, weights), **terms}
        norm = optax.tree.norm(grads)
        is_finite = jnp.isfinite(total) & jnp.isfinite(norm)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(is_finite, new, old), (params, opt_state), (state.params, state.opt_state)
        )
        metrics = {"loss": total, "grad_norm": norm, "skipped": 1.0 - is_finite.astype(jnp.float32), **means(terms)}
        return TrainState(step=state.step + 1, params=params, opt_state=opt_state), metrics

    return jax.jit(
        step,
        in_shardings=(shardings, batch_sharding(mesh)),
        out_shardings=(shardings, replicated(mesh)),
        donate_argnums=0,
    )


def make_eval_step(objective: Objective, mesh: Mesh) -> Callable[[Any, dict[str, jax.Array], jax.Array], Terms]:
    """Returns look(params, batch, key) -> terms, without dropout; "NAME_loss" are the loss terms. Sums of several
    batches add up; `key` feeds `prepare` only, so one key gives one set of masks."""

    def look(params: Any, batch: dict[str, jax.Array], key: jax.Array) -> Terms:
        examples = row_by_row(lambda key, rows: objective.prepare(rows, key), mesh)(key, batch)
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            sums, metrics = objective.sums(params, examples, key, train=False)
        return {**losses(sums, objective.weights(examples)), **metrics}

    return jit_forward(look, out_shardings=replicated(mesh))


def combine(objective: Objective, sums: dict[str, jax.Array], weights: dict[str, jax.Array]) -> jax.Array:
    """The loss: each term's sum over its weight, times its coefficient. A term that nothing weighs is 0, not NaN."""
    return sum(objective.coefficients[name] * sums[name] / jnp.maximum(weights[name], 1e-9) for name in sums)


def means(terms: Terms) -> Metrics:
    """What the statistics come to."""
    return {name: term.value() for name, term in terms.items()}


def losses(sums: dict[str, jax.Array], weights: dict[str, jax.Array]) -> Terms:
    """Each loss term as a statistic."""
    return {f"{name}_loss": Mean(total, weights[name]) for name, total in sums.items()}


def _accumulate(gradient: Callable, examples: Any, key: jax.Array, slices: int) -> Any:
    """Sums `gradient` over `slices` of the batch. Slice s takes rows s, s + slices, ...: each device keeps its own."""
    stacked = jax.tree.map(lambda x: x.reshape(-1, slices, *x.shape[1:]).swapaxes(0, 1), examples)

    def add(total: Any, index_and_slice: tuple[jax.Array, Any]) -> tuple[Any, None]:
        index, slice_ = index_and_slice
        return jax.tree.map(jnp.add, total, gradient(slice_, jax.random.fold_in(key, index))), None

    one = jax.tree.map(lambda x: x[0], stacked)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(gradient, one, key))
    return jax.lax.scan(add, zero, (jnp.arange(slices), stacked))[0]
