"""ConvBERT's second branch, one word and one slot of its window at a time (convbert_and_electra.md 1.2, 1.3, 1.7)."""

import numpy as np

from tests.oracle.basics import affine, heads_of, softmax


def convolution_heads(params, config, x, q, segments):
    """[H, L, d]; x [L, D] is the layer's input, q [H, L, d] its unscaled queries."""
    kind, width = config.convolution.kind, config.convolution.width
    heads, length, d = q.shape
    looks = _looks(segments, width, config.convolution.mask)
    if kind == "separable":
        return _separable(params["key"], x, looks)
    if kind == "light":
        windows = np.tile(softmax(params["window"])[:, None], (1, length, 1))
    else:
        asked = q * _separable(params["key"], x, looks) if kind == "span_dynamic" else q
        flat = asked.swapaxes(0, 1).reshape(length, heads * d)  # the spec's A = H d channels, head by head
        kernel = params["window"]["kernel"].reshape(heads * d, heads * width)
        logits = flat @ kernel + params["window"]["bias"].reshape(-1)
        windows = softmax(logits.reshape(length, heads, width)).swapaxes(0, 1)
    values = heads_of(params["value"], x)
    out = np.zeros((heads, length, d))
    for t, slot, at in looks:
        out[:, t] += windows[:, t, slot, None] * values[:, at]
    return out


def _separable(params, x, looks):
    filtered = np.zeros_like(x)
    for t, slot, at in looks:
        filtered[t] += params["depthwise"][slot] * x[at]
    return heads_of(params["pointwise"], filtered)


def _looks(segments, width, masked):
    """Triples (word, slot of its window, word seen there): none beyond the ends, and masked none elsewhere either."""
    triples = []
    for t in range(len(segments)):
        for slot in range(width):
            at = t + slot - (width - 1) // 2
            inside = 0 <= at < len(segments)
            if inside and not (masked and (segments[at] != segments[t] or segments[t] == 0)):
                triples.append((t, slot, at))
    return triples


def grouped(params, x):
    """A dense map whose matrix is block-diagonal (convbert_and_electra.md 1.4); an ordinary one has two axes."""
    kernel = params["kernel"]
    if kernel.ndim == 2:
        return affine(params, x)
    groups, inputs, outputs = kernel.shape
    dense = np.zeros((groups * inputs, groups * outputs))
    for g in range(groups):
        dense[g * inputs : (g + 1) * inputs, g * outputs : (g + 1) * outputs] = kernel[g]
    return x @ dense + params["bias"]
