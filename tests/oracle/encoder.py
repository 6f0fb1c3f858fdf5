"""The encoder around the terms: embeddings, layers, heads."""

import numpy as np

from tests.oracle.basics import affine, gelu, heads_of, layer_norm, pick, softmax
from tests.oracle.convolution import convolution_heads, grouped
from tests.oracle.positions import at_input, number_of_terms, terms_of_pairs, terms_of_values, words_with_positions


def encode_row(params, config, tokens, segments, position, types=None):
    """[L, D] of one row; `params` is the encoder's tree."""
    eps = config.norm_eps
    x = params["words"][tokens]
    if config.token_types:
        x = x + params["types"][np.zeros_like(tokens) if types is None else types]
    x = x + at_input(params.get("positions"), config, position, x.shape[-1])
    x = layer_norm(x, params["norm"], eps)
    if config.embedding_width not in (None, config.width):
        x = affine(params["widen"], x)
    shared = params.get("positions", {})
    for n in range(config.layers):
        layer = pick(params["layers"], n)
        attention = lambda x, p=layer["attention"]: _attention(p, shared, config, x, segments, position)  # noqa: E731
        feed_forward = lambda x, p=layer["feed_forward"]: grouped(p["outer"], gelu(grouped(p["inner"], x)))  # noqa: E731
        if config.norm == "post":
            x = layer_norm(x + attention(x), layer["attention_norm"], eps)
            x = layer_norm(x + feed_forward(x), layer["feed_forward_norm"], eps)
        else:
            x = x + attention(layer_norm(x, layer["attention_norm"], eps))
            x = x + feed_forward(layer_norm(x, layer["feed_forward_norm"], eps))
    return layer_norm(x, params["final_norm"], eps) if config.norm == "pre" else x


def mlm_logits(params, config, hidden):
    """[M, V] for hidden [M, D]; `params` is the whole MLM tree."""
    head = params["head"]
    x = layer_norm(gelu(affine(head["dense"], hidden)), head["norm"], config.norm_eps)
    return x @ params["encoder"]["words"].T + head["bias"]


def queries_and_keys(params, config, x):
    """[H, L, d] each, such that the content logit is q_i . k_j (ddrp_mth_and_symmetric.md 2.1)."""
    q = heads_of(params["query"], x)
    if config.compatibility.name == "dot_product":
        return q, heads_of(params["key"], x)
    if config.compatibility.name == "symmetric":
        return q, q
    matrices = params["meeting"]["kernel"]
    if config.compatibility.form == "diagonal":
        matrices = np.stack([np.diag(diagonal) for diagonal in matrices])
    if config.compatibility.form == "symmetrised":
        matrices = np.stack([(matrix + matrix.T) / 2 for matrix in matrices])
    return q, np.stack([[matrix @ q_j for q_j in q_head] for matrix, q_head in zip(matrices, q, strict=True)])


def _attention(params, shared, config, x, segments, position):
    meet = lambda vectors: queries_and_keys(params, config, vectors)  # noqa: E731
    own = params.get("positions", {})
    q, k = meet(x)
    scale = (number_of_terms(config) * (config.width // config.heads)) ** -0.5
    logits = words_with_positions(shared, config, q, k, position, scale)
    logits = logits + terms_of_pairs(shared, own, config, q, k, meet, position, scale)
    weights = softmax(np.where(_may_meet(segments), logits, -1e30))
    mixed = weights @ heads_of(params["value"], x) + terms_of_values(shared, own, config, weights, position)
    if config.mixer == "mixed" and config.convolution.kind != "none":
        mixed = np.concatenate([mixed, convolution_heads(params["convolution"], config, x, q, segments)])
    return (
        sum(head @ kernel for head, kernel in zip(mixed, params["output"]["kernel"], strict=True))
        + (params["output"]["bias"])
    )


def _may_meet(segments):
    """Words meet words of their document. The published mask is on keys alone, so padding, whose values matter only
    where convolutions leak, meets every word."""
    return np.array([[key > 0 and query in (0, key) for key in segments] for query in segments])
