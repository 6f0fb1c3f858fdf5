"""Where in its sentence is this token? A linear probe, and which dimensions its answer is made of (Luo et al. 2021, 4).

A contribution |w v| is large where v is large, whether or not v says anything of positions: a dimension that is the
same in every token comes out first, for a probe without bias uses it as one. `center` takes that away; accuracy without
the dimension, or with it alone, is the other control. Shape letters: E layers, N tokens, D width, P positions.
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax.analysis.checks import check_choice

Mode = Literal["gold", "pred", "all"]


class Probe(NamedTuple):
    """Logits of positions are x W^T, plus the bias where there is one."""

    weights_PxD: np.ndarray
    bias_P: np.ndarray | None
    losses: tuple[float, ...]
    """Mean cross-entropy of each epoch, in nats."""


class Accuracy(NamedTuple):
    """Shares between 0 and 1, of tokens unless said otherwise."""

    accuracy: float
    macro: float
    """Mean over the positions that occur: frequent small positions count no more than others."""
    per_position_P: np.ndarray
    """NaN for a position that does not occur."""
    majority: float
    """What the best constant answer would get."""


def train_position_probe(
    states_NxD: np.ndarray,
    position_N: np.ndarray,
    *,
    positions: int = 300,
    bias: bool = False,
    epochs: int = 10,
    batch: int = 128,
    rate: float = 1e-3,
    seed: int = 0,
) -> Probe:
    """A softmax over `positions` trained by Adam on one layer's tokens.

    As in the paper: linear, no bias, 300 positions, batches of 128, 10 epochs, Adam. Its learning rate, what a batch
    counts and how weights start are not stated: 1e-3, tokens and zeros are ours. Every epoch sees each token once, in
    an order that `seed` gives. Raises `ValueError` for positions outside 0 to `positions` - 1.
    """
    if len(states_NxD) != len(position_N) or not len(position_N):
        raise ValueError(f"{states_NxD.shape} states and {position_N.shape} positions")
    if position_N.min() < 0 or position_N.max() >= positions:
        raise ValueError(f"positions from {position_N.min()} to {position_N.max()}, and {positions} classes")
    params = {"weights_PxD": jnp.zeros((positions, states_NxD.shape[1]))}
    if bias:
        params["bias_P"] = jnp.zeros(positions)
    state = params, optax.adam(rate).init(params)
    data = jnp.asarray(states_NxD, jnp.float32), jnp.asarray(position_N, jnp.int32)
    rng, losses = np.random.default_rng(seed), []
    for _ in range(epochs):
        order = rng.permutation(len(position_N))
        order_SxB = np.pad(order, (0, -len(order) % batch), constant_values=-1).reshape(-1, batch)
        state, loss = _epoch(state, rate, *data, order_SxB.astype(np.int32))
        losses.append(float(loss))
    trained = jax.device_get(state[0])
    return Probe(trained["weights_PxD"], trained.get("bias_P"), tuple(losses))


@functools.partial(jax.jit, donate_argnums=0)
def _epoch(state: Any, rate: float, states_NxD: jax.Array, position_N: jax.Array, order_SxB: jax.Array) -> tuple:
    """One step for each row of `order_SxB`, in which -1 is nobody; and the mean loss over all tokens."""

    def step(state: Any, order_B: jax.Array) -> tuple:
        params, moments = state
        weight_B = (order_B >= 0).astype(jnp.float32)

        def loss(params: Any) -> jax.Array:
            logits_BxP = states_NxD[order_B] @ params["weights_PxD"].T
            if "bias_P" in params:
                logits_BxP = logits_BxP + params["bias_P"][None]
            each_B = optax.softmax_cross_entropy_with_integer_labels(logits_BxP, position_N[order_B])
            return (each_B * weight_B).sum() / weight_B.sum()

        value, gradient = jax.value_and_grad(loss)(params)
        updates, moments = optax.adam(rate).update(gradient, moments)
        return (optax.apply_updates(params, updates), moments), value * weight_B.sum()

    state, losses_S = jax.lax.scan(step, state, order_SxB)
    return state, losses_S.sum() / len(position_N)


def probe_answers(probe: Probe, states_NxD: np.ndarray, rows: int = 8192) -> np.ndarray:
    """Int [N]: the position with the highest logit."""
    bias_1xP = 0.0 if probe.bias_P is None else probe.bias_P[None]
    parts = (states_NxD[start : start + rows] for start in range(0, len(states_NxD), rows))
    return np.concatenate([(part_RxD @ probe.weights_PxD.T + bias_1xP).argmax(1) for part_RxD in parts])


def probe_accuracy(probe: Probe, states_NxD: np.ndarray, position_N: np.ndarray) -> Accuracy:
    """Of a probe on tokens, which should not be those it was trained on."""
    positions = len(probe.weights_PxD)
    right_N = probe_answers(probe, states_NxD) == position_N
    count_P = np.bincount(position_N, minlength=positions)
    right_P = np.bincount(position_N, weights=right_N, minlength=positions)
    per_position_P = np.where(count_P > 0, right_P / np.maximum(count_P, 1), np.nan)
    return Accuracy(
        float(right_N.mean()), float(np.nanmean(per_position_P)), per_position_P, float(count_P.max() / len(right_N))
    )


def contributions(
    probe: Probe,
    states_NxD: np.ndarray,
    position_N: np.ndarray | None = None,
    *,
    mode: Mode,
    center: bool,
) -> np.ndarray:
    """Float64: the mean over tokens of |w v|, for each dimension (Luo et al. 2021, 4.1: c(i) = |w_i v_i|).

    Which row of the weights the paper takes is not stated. "gold": that of the token's own position, and "pred": that
    of the answer, [D]; "all": every row, [P, D], the paper's heat-map. `center` takes v - mean(v), without which large
    constant dimensions come out first. "gold" needs `position_N`, else `ValueError`.
    """
    from scipy.sparse import csr_array

    check_choice("mode", mode, Mode)
    states_NxD = states_NxD.astype(np.float64)
    size_NxD = np.abs(states_NxD - states_NxD.mean(0) if center else states_NxD)
    weights_PxD = np.abs(probe.weights_PxD)
    if mode == "all":
        return weights_PxD * size_NxD.mean(0)
    row_N = position_N if mode == "gold" else probe_answers(probe, states_NxD)
    if row_N is None or len(row_N) != len(size_NxD):
        raise ValueError(f"mode={mode!r} needs the position of each of the {len(size_NxD)} tokens")
    # Rows that share a position share their weights: sums first, for a [N, D] of weights would be as large as the data.
    tokens = len(size_NxD)
    is_of_PxN = csr_array((np.ones(tokens), (row_N, np.arange(tokens))), shape=(len(weights_PxD), tokens))
    return (weights_PxD * (is_of_PxN @ size_NxD)).sum(0) / tokens


def weight_rank(probe: Probe) -> np.ndarray:
    """Int [D]: dimensions by their mean |w| over positions, the largest first: activations are not looked at.

    After Durrani et al. (2020), who rank for each class; the mean over classes is ours.
    """
    return np.argsort(-np.abs(probe.weights_PxD).mean(0), kind="stable")


def contribution_heatmap(weights_ExPxD: np.ndarray, means_ExD: np.ndarray, dim: int) -> np.ndarray:
    """[E, P]: |w v| of one dimension for every position, v the mean vector of a layer (Luo et al. 2021, fig. 11, 12).

    Positions that no token had have learned one thing, to be unlikely; a large constant dimension serves that, too.
    """
    _check_layers(weights_ExPxD, means_ExD)
    return np.abs(weights_ExPxD[:, :, dim] * means_ExD[:, dim, None])


def best_non_outlier(
    weights_ExPxD: np.ndarray, means_ExD: np.ndarray, outliers: tuple[int, ...] | list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """[E, P] twice: the largest |w v| among dimensions that are not in `outliers`, and which dimension it is of.

    What an outlier's heat-map has to be held against (positional_artefacts.md 3.6)."""
    _check_layers(weights_ExPxD, means_ExD)
    size_ExPxD = np.abs(weights_ExPxD * means_ExD[:, None])
    size_ExPxD[:, :, list(outliers)] = -1
    return size_ExPxD.max(-1), size_ExPxD.argmax(-1)


def _check_layers(weights_ExPxD: np.ndarray, means_ExD: np.ndarray) -> None:
    if (weights_ExPxD.shape[0], weights_ExPxD.shape[2]) != means_ExD.shape:
        raise ValueError(f"weights {weights_ExPxD.shape} and mean vectors {means_ExD.shape} are not of the same layers")
