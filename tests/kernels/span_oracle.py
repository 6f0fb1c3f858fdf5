"""Span-dynamic convolution and its gradients by hand, in float64, one slot of the window at a time."""

import numpy as np


def span_convolution(query, key, weight, bias, value, segments, g):
    """Output, and what `g` times it gives for query, key, weight, bias and value; arrays as the kernel takes them."""
    query, key, weight, bias, value, g = (np.asarray(x, np.float64) for x in (query, key, weight, bias, value, g))
    rows, length, width = query.shape
    _, heads, slots = weight.shape
    asked = query * key
    logits = np.einsum("bla,ahk->blhk", asked, weight) + bias
    window = np.exp(logits - logits.max(-1, keepdims=True))
    window /= window.sum(-1, keepdims=True)
    per_head = g.reshape(rows, length, heads, -1)
    out, g_window, g_value = np.zeros_like(per_head), np.zeros_like(window), np.zeros_like(per_head)
    for row in range(rows):
        for slot in range(slots):
            away = slot - (slots - 1) // 2
            words = np.arange(max(0, -away), min(length, length - away))
            if segments is not None:
                own = segments[row][words]
                words = words[(own > 0) & (segments[row][words + away] == own)]
            seen = value[row].reshape(length, heads, -1)[words + away]
            share = window[row, words, :, slot, None]
            out[row, words] += share * seen
            g_value[row, words + away] += share * per_head[row, words]
            g_window[row, words, :, slot] = (per_head[row, words] * seen).sum(-1)
    g_logits = window * (g_window - (window * g_window).sum(-1, keepdims=True))
    g_asked = np.einsum("blhk,ahk->bla", g_logits, weight)
    g_weight = np.einsum("bla,blhk->ahk", asked, g_logits)
    shape = (rows, length, width)
    grads = (g_asked * key, g_asked * query, g_weight, g_logits.sum((0, 1)), g_value.reshape(shape))
    return out.reshape(shape), *grads
