"""What each position scheme adds, one pair of words (or one pair of axes) at a time, from the published formulas."""

import math

import numpy as np

from tests.oracle.basics import heads_of, layer_norm


def parts_of(config):
    return [] if config.positions.scheme == "none" else config.positions.scheme.split("+")


def number_of_terms(config):
    """tupe.md 1.0: 1 BERT, 2 TUPE, 4 BERT-A^d; DeBERTa 1 and one for each of its two terms that is on."""
    positions = config.positions
    deberta = int(positions.content_to_position) + int(positions.position_to_content != "none")
    return 1 + sum({"tupe": 1, "bert_ad": 3, "deberta": deberta}.get(part, 0) for part in parts_of(config))


def at_input(params, config, position, width):
    """[L, E] to be added to the words: learned tables and sinusoids (Vaswani et al. 2017, 3.5)."""
    added = np.zeros((len(position), width))
    if "learned" in parts_of(config):
        for i, p in enumerate(position):
            added[i] += params["learned"]["table"][p + config.positions.offset]
    if "sinusoidal" in parts_of(config):
        amplitude = config.positions.sinusoid_amplitude or config.init_std
        for i, p in enumerate(position):
            for axis in range(0, width, 2):
                angle = p / 10_000 ** (axis / width)
                added[i, axis] += amplitude * math.sin(angle)
                if axis + 1 < width:
                    added[i, axis + 1] += amplitude * math.cos(angle)
    return added


def words_with_positions(shared, config, q, k, position, scale):
    """Logits [H, L, L] of the terms in which both sides are vectors: content, turned by RoPE, and BERT-A^d's others."""
    turned_q, turned_k = (_turned(x, position, config) if "rope" in parts_of(config) else x for x in (q, k))
    logits = turned_q @ turned_k.swapaxes(1, 2)
    if "bert_ad" in parts_of(config):
        p = layer_norm(shared["bert_ad"]["table"], shared["bert_ad"]["norm"], config.norm_eps)[position]
        p_q, p_k = heads_of(shared["bert_ad"]["query"], p), heads_of(shared["bert_ad"]["key"], p)
        word_to_position = q @ p_k.swapaxes(1, 2)
        position_to_word = p_q @ k.swapaxes(1, 2)
        position_to_position = p_q @ p_k.swapaxes(1, 2)
        logits = logits + word_to_position + position_to_word + position_to_position
    return logits * scale


def terms_of_pairs(shared, own, config, q, k, meet, position, scale):
    """[H, L, L] of everything else; `shared` and `own` are the trees at the encoder and at this layer, `meet` the
    layer's map from vectors [R, D] to queries and keys [H, R, d]."""
    logits = np.zeros((q.shape[0], len(position), len(position)))
    for part in parts_of(config):
        if part == "alibi":
            logits += _alibi(config.attention_heads, position)
        if part == "tupe":
            logits += _tupe(shared["tupe"], config, position, scale)
        if part == "t5":
            tree = own if config.positions.shared_over_layers is False else shared
            logits += _t5(tree["t5"]["table"], config.positions, position)
        if part in ("shaw", "ddrp"):
            r_LxLxd = relative_vectors(shared, own, config, part, "keys", position)
            logits += np.einsum("hid,ijd->hij", q, r_LxLxd) * scale
        if part == "deberta":
            logits += _deberta(shared["deberta"]["table"], own.get("deberta"), config, q, k, meet, position) * scale
    return logits


def terms_of_values(shared, own, config, weights, position):
    """[H, L, d] that Shaw's and DDRP's values add: sum_j weight_ij r'_ij."""
    moved = 0.0
    for part in set(parts_of(config)) & {"shaw", "ddrp"}:
        if config.positions.on_values:
            r_LxLxd = relative_vectors(shared, own, config, part, "values", position)
            moved = moved + np.einsum("hij,ijd->hid", weights, r_LxLxd)
    return moved


def relative_vectors(shared, own, config, part, of, position):
    """r_ij [L, L, d]: Shaw's w[clip(j - i)], or D[c] times or plus the direction's (ddrp_mth_and_symmetric.md 1.2)."""
    tree = (shared if config.positions.shared_over_layers else own)[part][of]
    clip, form = config.positions.clip, config.positions.ddrp_form
    r = np.zeros((len(position), len(position), config.width // config.heads))
    for i, p_i in enumerate(position):
        for j, p_j in enumerate(position):
            delta = int(p_j) - int(p_i)
            if part == "shaw":
                r[i, j] = tree["table"][max(-clip, min(clip, delta)) + clip]
                continue
            distance = tree["distance"][min(abs(delta), 1 if form == "direction" else clip)]
            if delta == 0 or form == "distance":
                r[i, j] = distance
            elif form == "sum":
                r[i, j] = distance + tree["direction"][0 if delta > 0 else 1]
            else:
                r[i, j] = distance * tree["factor"][0 if delta > 0 else 1]
    return r


def _turned(x, position, config):
    """A 2 x 2 rotation of each pair of axes (a, a + d / 2) by position / base^(2a / d) (Su et al. 2021)."""
    half = x.shape[-1] // 2
    out = np.empty_like(x)
    for i, p in enumerate(position):
        for a in range(half):
            angle = p / config.positions.rope_base ** (2 * a / x.shape[-1])
            rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            out[:, i, [a, a + half]] = x[:, i, [a, a + half]] @ rotation.T
    return out


def _slopes(heads):
    """Press et al. 2022: a geometric sequence from 2^(-8/n); between powers of two, every other one of the next."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return _slopes(below) + _slopes(2 * below)[0::2][: heads - below]


def _alibi(heads, position):
    distance = np.array([[abs(int(b) - int(a)) for b in position] for a in position], float)
    return np.stack([-slope * distance for slope in _slopes(heads)])


def _tupe(params, config, position, scale):
    """tupe.md 1.2: row t + 1 for position t, theta_1 and theta_2 from rows 0 and 1, the row written last."""
    untied = config.positions.untie_cls
    normed = layer_norm(params["table"], params["norm"], config.norm_eps)
    q, k = heads_of(params["query"], normed) * scale, heads_of(params["key"], normed)
    bias = np.empty((len(q), len(position), len(position)))
    for h in range(len(q)):
        for i, p_i in enumerate(position):
            for j, p_j in enumerate(position):
                bias[h, i, j] = q[h, p_i + untied] @ k[h, p_j + untied]
                if untied and p_j == 0:
                    bias[h, i, j] = q[h, 1] @ k[h, 1]
                if untied and p_i == 0:
                    bias[h, i, j] = q[h, 0] @ k[h, 0]
    return bias


def _t5(table, positions, position):
    """tupe.md 1.3."""
    bias = np.zeros((table.shape[1], len(position), len(position)))
    for i, p_i in enumerate(position):
        for j, p_j in enumerate(position):
            bucket = t5_bucket(int(p_j) - int(p_i), positions.buckets, positions.max_distance)
            if positions.untie_cls:
                if positions.relative_reset == "theta_alone" and 0 in (p_i, p_j):
                    continue
                if p_j == 0:
                    bucket = positions.buckets
                if p_i == 0:
                    bucket = positions.buckets // 2
            bias[:, i, j] = table[bucket]
    return bias


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


def _deberta(table, own, config, q, k, meet, position):
    """Unscaled q_i . K(R[clamp(i - j + K)]) + k_j . Q(R[e]), e as coded that of i - j, as written that of j - i."""
    positions, reach = config.positions, config.positions.clip
    if positions.projections == "words":
        table_q, table_k = meet(table)
    else:
        table_q = heads_of(own["query"], table) if positions.position_to_content != "none" else None
        table_k = heads_of(own["key"], table) if positions.content_to_position else None
    logits = np.zeros((len(q), len(position), len(position)))
    for i, p_i in enumerate(position):
        for j, p_j in enumerate(position):
            forth, back = (max(0, min(2 * reach - 1, int(delta) + reach)) for delta in (p_i - p_j, p_j - p_i))
            if positions.content_to_position:
                logits[:, i, j] += (q[:, i] * table_k[:, forth]).sum(-1)
            if positions.position_to_content == "as_coded":
                logits[:, i, j] += (k[:, j] * table_q[:, forth]).sum(-1)
            if positions.position_to_content == "as_written":
                logits[:, i, j] += (k[:, j] * table_q[:, back]).sum(-1)
    return logits
