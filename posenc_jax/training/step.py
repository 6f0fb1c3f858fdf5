"""One update of the parameters, and one look at a batch without it; both pure and jitted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from posenc_jax.parallel.mesh import batch_sharding, replicated
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

    def step(state: TrainState, batch: dict[str, jax.Array]) -> tuple[TrainState, Metrics]:
        prepare_key, dropout_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), state.step))
        examples = objective.prepare(batch, prepare_key)
        weights = objective.weights(examples)

        def loss(params: Any, slice_: dict[str, jax.Array], key: jax.Array) -> tuple[jax.Array, Terms]:
            sums, metrics = objective.sums(params, slice_, key, train=True)
            if len(sums) > 1:
                metrics = {**_losses(objective, sums, slice_), **metrics}
            return combine(objective, sums, weights), metrics

        gradient = jax.value_and_grad(loss, has_aux=True)
        if accumulate == 1:
            (total, terms), grads = gradient(state.params, examples, dropout_key)
        else:
            (total, terms), grads = _accumulate(gradient, state.params, examples, dropout_key, accumulate)
        norm = optax.tree.norm(grads)
        whole = jnp.isfinite(total) & jnp.isfinite(norm)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(whole, new, old), (params, opt_state), (state.params, state.opt_state)
        )
        metrics = {"loss": total, "grad_norm": norm, "skipped": 1.0 - whole.astype(jnp.float32), **means(terms)}
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
        examples = objective.prepare(batch, key)
        sums, metrics = objective.sums(params, examples, key, train=False)
        return {**_losses(objective, sums, examples), **metrics}

    return jax.jit(look, out_shardings=replicated(mesh))


def combine(objective: Objective, sums: dict[str, jax.Array], weights: dict[str, jax.Array]) -> jax.Array:
    """The loss: each term's sum over its weight, times its coefficient. A term that nothing weighs is 0, not NaN."""
    return sum(objective.coefficients[name] * sums[name] / jnp.maximum(weights[name], 1e-9) for name in sums)


def means(terms: Terms) -> Metrics:
    """What the statistics come to."""
    return {name: term.value() for name, term in terms.items()}


def _losses(objective: Objective, sums: dict[str, jax.Array], examples: dict[str, jax.Array]) -> Terms:
    weights = objective.weights(examples)
    return {f"{name}_loss": Mean(total, weights[name]) for name, total in sums.items()}


def _accumulate(gradient: Callable, params: Any, examples: Any, key: jax.Array, slices: int) -> Any:
    """Sums `gradient` over `slices` of the batch. Slice s takes rows s, s + slices, ...: each device keeps its own."""
    stacked = jax.tree.map(lambda x: x.reshape(-1, slices, *x.shape[1:]).swapaxes(0, 1), examples)

    def body(total: Any, index_and_slice: tuple[jax.Array, Any]) -> tuple[Any, None]:
        index, slice_ = index_and_slice
        return jax.tree.map(jnp.add, total, gradient(params, slice_, jax.random.fold_in(key, index))), None

    one = jax.tree.map(lambda x: x[0], stacked)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(gradient, params, one, key))
    return jax.lax.scan(body, zero, (jnp.arange(slices), stacked))[0]
