"""What a linear classifier reads from the mean vector of a sentence, layer by layer (Luo et al. 2021;
positional_artefacts.md 2.3). The encoder stays as it is."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.analysis.transforms import Transform
from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import find_task
from posenc_jax.errors import UsageError
from posenc_jax.interop.pretrained import FrozenEncoder


@dataclasses.dataclass(frozen=True)
class SentenceProbe:
    """One linear softmax a layer, and what it is worth on sentences it was not trained on."""

    weights_ExDxC: np.ndarray
    bias_ExC: np.ndarray
    accuracy_E: np.ndarray
    """Shares, of the test sentences."""
    error_E: np.ndarray
    """Binomial standard error of these; it knows nothing of seeds and of the choice of a layer."""
    train_accuracy_E: np.ndarray
    majority: float
    """Accuracy on the test sentences of the most frequent label of the training sentences."""
    train_sentences: int
    test_sentences: int


def linear_sentence_probe(
    train_ExNxD: np.ndarray,
    train_labels_N: np.ndarray,
    test_ExTxD: np.ndarray,
    test_labels_T: np.ndarray,
    *,
    batch: int = 768,
    epochs: int = 10,
    learning_rate: float = 1e-3,
    seed: int = 0,
    transform: Transform | None = None,
) -> SentenceProbe:
    """Trains softmax(W v + b) on vectors [E, N, D] with labels 0 to C - 1, in all layers alike, and scores it.

    Adam, cross-entropy, 10 epochs and batches of 768 for SST-2 (128 IMDB, 1,536 SST-5) are the paper's. Ours, for it
    does not say: the learning rate, weights from 0, and the bias, without which a coordinate that is constant, as an
    outlier nearly is, would serve for one, and clipping take it away. The order of sentences is drawn anew each epoch
    and is the same in all layers; what is left of it after the last whole batch is left out. `transform` changes both
    sides, [E, N, D] to the same shape. Raises `ValueError` for shapes that do not go together.
    """
    if transform is not None:
        train_ExNxD, test_ExTxD = transform(train_ExNxD), transform(test_ExTxD)
    _check(train_ExNxD, train_labels_N, test_ExTxD, test_labels_T)
    count, classes = len(train_labels_N), int(max(train_labels_N.max(), test_labels_T.max())) + 1
    batch = min(batch, count)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(count)[: count // batch * batch].reshape(-1, batch) for _ in range(epochs)]
    params = _train(train_ExNxD, np.asarray(train_labels_N), np.concatenate(orders), classes, learning_rate)
    accuracy_E = _accuracy(params, test_ExTxD, test_labels_T)
    counts_C = np.bincount(train_labels_N, minlength=classes)
    return SentenceProbe(
        weights_ExDxC=np.asarray(params["weights_ExDxC"]),
        bias_ExC=np.asarray(params["bias_ExC"]),
        accuracy_E=accuracy_E,
        error_E=np.sqrt(accuracy_E * (1 - accuracy_E) / len(test_labels_T)),
        train_accuracy_E=_accuracy(params, train_ExNxD, train_labels_N),
        majority=float((test_labels_T == counts_C.argmax()).mean()),
        train_sentences=count,
        test_sentences=len(test_labels_T),
    )


def probe_task(
    encoder: FrozenEncoder,
    directory: str | Path,
    task: str = "SST-2",
    *,
    most: int | None = None,
    seed: int = 0,
    transforms: Mapping[str, Transform | None] = MappingProxyType({"raw": None}),
) -> dict[str, SentenceProbe]:
    """The probe on a classification task of single sentences under DIR in the GLUE layout, trained on "train" (its
    first `most` sentences), scored on "dev".

    {name: probe} for each of `transforms` (None: the vectors as they are); texts are encoded once, and each variant
    sees the same sentences in the same order. The mean is over the words' subwords, without [CLS] and [SEP]. All
    vectors are held: 2.7 GB for the 67,349 sentences of SST-2 at base size. Raises `UsageError` for a task of another
    kind, `UserError` for files that lack or are damaged.
    """
    spec = find_task(task)
    if spec.kind != "classification" or len(spec.texts) != 1 or not spec.dev_splits:
        raise UsageError(f"{task} is no classification of single sentences; take SST-2, CoLA or order")
    splits = [load_split(directory, spec, split) for split in ("train", spec.dev_splits[0])]
    texts, labels = [one.texts_a for one in splits], [one.labels for one in splits]
    texts[0], labels[0] = texts[0][:most], labels[0][:most]
    train_ExNxD, test_ExTxD = (
        mean_vectors(encoder, sentence_rows(encoder.pretrained, side)[0]).swapaxes(0, 1) for side in texts
    )
    sides = train_ExNxD, labels[0], test_ExTxD, labels[1]
    return {
        name: linear_sentence_probe(*sides, seed=seed, transform=transform) for name, transform in transforms.items()
    }


@functools.partial(jax.jit, static_argnums=(3, 4))
def _train(
    vectors_ExNxD: jax.Array, labels_N: jax.Array, order_SxB: jax.Array, classes: int, learning_rate: float
) -> Any:
    """All layers at once, a step a row of `order_SxB`."""
    layers, _, width = vectors_ExNxD.shape
    params = {"weights_ExDxC": jnp.zeros((layers, width, classes)), "bias_ExC": jnp.zeros((layers, classes))}
    optimizer = optax.adam(learning_rate)

    def loss(params: Any, index_B: jax.Array) -> jax.Array:
        logits_ExBxC = _logits(params, vectors_ExNxD[:, index_B].astype(jnp.float32))
        labels_ExB = jnp.broadcast_to(labels_N[index_B][None], logits_ExBxC.shape[:2])
        return optax.softmax_cross_entropy_with_integer_labels(logits_ExBxC, labels_ExB).mean(1).sum()

    def step(carry: tuple[Any, Any], index_B: jax.Array) -> tuple[tuple[Any, Any], None]:
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, index_B), state)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), order_SxB)
    return params


def _logits(params: Any, vectors_ExNxD: Any) -> Any:
    return jnp.einsum("end,edc->enc", vectors_ExNxD, params["weights_ExDxC"]) + params["bias_ExC"][:, None]


def _accuracy(params: Any, vectors_ExNxD: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
    answers_ExN = np.asarray(_logits(params, vectors_ExNxD).argmax(2))
    return (answers_ExN == labels_N[None]).mean(1)


def _check(
    train_ExNxD: np.ndarray, train_labels_N: np.ndarray, test_ExTxD: np.ndarray, test_labels_T: np.ndarray
) -> None:
    shapes = [np.shape(one) for one in (train_ExNxD, train_labels_N, test_ExTxD, test_labels_T)]
    (layers, train, width), labels, *others = shapes if len(shapes[0]) == 3 else ((0, 0, 0), *shapes[1:])
    if not train or labels != (train,) or others != [(layers, *others[1], width), others[1]] or not all(others[1]):
        raise ValueError("vectors {}, labels {}, test vectors {}, test labels {} do not go together".format(*shapes))
