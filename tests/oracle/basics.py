"""What all rooms of the oracle need."""

import numpy as np
from scipy.special import erf


def layer_norm(x, params, eps):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * params["scale"] + params["bias"]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def affine(params, x):
    return x @ params["kernel"] + params["bias"]


def heads_of(params, x):
    """[H, L, d] of x [L, D]: kernel [D, H, d], bias [H, d]."""
    return np.stack([x @ params["kernel"][:, h] + params["bias"][h] for h in range(params["bias"].shape[0])])


def pick(tree, n):
    """Layer n of a tree whose leaves are stacked over the layers."""
    return {name: pick(leaf, n) if isinstance(leaf, dict) else leaf[n] for name, leaf in tree.items()}
