"""The encoder in NumPy float64, written from the papers' formulas and not from the modules: the truth of the tests.

Loops over heads and layers, no broadcasting tricks. Parameters are the model's own tree, as float64.
"""

import math

import numpy as np

from posenc_jax.config import ModelConfig

_erf = np.vectorize(math.erf)


def layer_norm(x, params, eps):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * params["scale"] + params["bias"]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def t5_bucket(relative, buckets=32, max_distance=128):
    """The published function, one difference (key - query) at a time."""
    half = buckets // 2
    base, distance = (half if relative > 0 else 0), abs(relative)
    exact = half // 2
    if distance < exact:
        return base + distance
    # int() of the ratio of logarithms, in exact integers: the largest k with (distance / exact) ** steps >= ratio ** k
    k = 0
    while k < half - exact - 1 and distance ** (half - exact) * exact ** (k + 1) >= max_distance ** (k + 1) * exact ** (
        half - exact
    ):
        k += 1
    return base + exact + k


def position_bias(params, config: ModelConfig, position, terms):
    """[H, L, L] of one row, from tupe.md 1.2 and 1.3."""
    positions, heads = config.positions, config.heads
    d = config.width // heads
    parts = [] if positions.scheme == "none" else positions.scheme.split("+")
    length = len(position)
    bias = np.zeros((heads, length, length))
    if "tupe" in parts:
        p = params["tupe"]
        normed = layer_norm(p["table"], p["norm"], config.norm_eps)
        for h in range(heads):
            q = (normed @ p["query"]["kernel"][:, h] + p["query"]["bias"][h]) / math.sqrt(terms * d)
            k = normed @ p["key"]["kernel"][:, h] + p["key"]["bias"][h]
            shift = 1 if positions.untie_cls else 0
            for i in range(length):
                for j in range(length):
                    value = q[position[i] + shift] @ k[position[j] + shift]
                    if positions.untie_cls and position[j] == 0:
                        value = q[1] @ k[1]
                    if positions.untie_cls and position[i] == 0:
                        value = q[0] @ k[0]
                    bias[h, i, j] += value
    if "t5" in parts:
        table = params["t5"]["table"]
        for i in range(length):
            for j in range(length):
                bucket = t5_bucket(position[j] - position[i], positions.buckets, positions.max_distance)
                if positions.untie_cls:
                    if positions.relative_reset == "theta_alone" and 0 in (position[i], position[j]):
                        continue
                    if position[j] == 0:
                        bucket = positions.buckets
                    if position[i] == 0:
                        bucket = positions.buckets // 2
                bias[:, i, j] += table[bucket]
    return bias


def encode_row(params, config: ModelConfig, tokens, segments, position):
    """[L, D] of one row; `params` is the encoder's tree."""
    eps, heads = config.norm_eps, config.heads
    d = config.width // heads
    parts = config.positions.scheme.split("+")
    terms = 2 if "tupe" in parts else 1
    x = params["words"][tokens]
    if "learned" in parts:
        x = x + params["positions"]["learned"]["table"][position]
    x = layer_norm(x, params["norm"], eps) * (segments > 0)[:, None]
    bias = position_bias(params.get("positions"), config, position, terms)
    allowed = (segments[:, None] == segments[None, :]) & (segments > 0)[None, :]
    for n in range(config.layers):
        layer = _pick(params["layers"], n)
        attention = lambda x, p=layer["attention"]: _attention(p, x, bias, allowed, heads, d, terms)  # noqa: E731
        feed_forward = lambda x, p=layer["feed_forward"]: _affine(p["outer"], gelu(_affine(p["inner"], x)))  # noqa: E731
        if config.norm == "post":
            x = layer_norm(x + attention(x), layer["attention_norm"], eps)
            x = layer_norm(x + feed_forward(x), layer["feed_forward_norm"], eps)
        else:
            x = x + attention(layer_norm(x, layer["attention_norm"], eps))
            x = x + feed_forward(layer_norm(x, layer["feed_forward_norm"], eps))
    return layer_norm(x, params["final_norm"], eps) if config.norm == "pre" else x


def mlm_logits(params, config: ModelConfig, hidden):
    """[M, V] for hidden [M, D]; `params` is the whole MLM tree."""
    head = params["head"]
    x = layer_norm(gelu(_affine(head["dense"], hidden)), head["norm"], config.norm_eps)
    return x @ params["encoder"]["words"].T + head["bias"]


def _attention(p, x, bias, allowed, heads, d, terms):
    out = np.tile(p["output"]["bias"], (len(x), 1))
    for h in range(heads):
        q = x @ p["query"]["kernel"][:, h] + p["query"]["bias"][h]
        k = x @ p["key"]["kernel"][:, h] + p["key"]["bias"][h]
        v = x @ p["value"]["kernel"][:, h] + p["value"]["bias"][h]
        logits = q @ k.T / math.sqrt(terms * d) + bias[h]
        out = out + softmax(np.where(allowed, logits, -1e30)) @ v @ p["output"]["kernel"][h]
    return out


def _affine(p, x):
    return x @ p["kernel"] + p["bias"]


def _pick(tree, n):
    return {name: _pick(leaf, n) if isinstance(leaf, dict) else leaf[n] for name, leaf in tree.items()}
