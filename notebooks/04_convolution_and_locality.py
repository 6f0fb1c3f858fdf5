# %% [markdown]
# # 4. Span-dynamic convolution, and how local heads are
#
# ConvBERT (Jiang et al. 2020) gives half of the attention heads away. In their place stand convolutions over nine
# words whose weights each word makes for itself, from the span around it: `softmax(W (query * span key))`, the span key
# being a depthwise separable convolution of the layer's input. The paper's argument: many heads look at neighbours
# only, and attention over all words is a waste for that.
#
# This notebook sets four small encoders beside each other, and one without positions as a control, asks how local
# their heads are, and looks at the windows that the convolutions make. All of them guess masked words; the published
# models find replaced ones.

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import arms
import numpy as np
from IPython.display import Markdown

from posenc_jax.analysis.attention_maps import attention_maps
from posenc_jax.analysis.attention_measures import attention_by_distance, diagonal_concentration
from posenc_jax.analysis.convolution_windows import convolution_windows
from posenc_jax.analysis.learning import seed_band
from posenc_jax.analysis.plots.attention import plot_by_distance
from posenc_jax.analysis.plots.learning import plot_learning
from posenc_jax.analysis.plots.words import plot_windows
from posenc_jax.analysis.texts import mark_texts
from posenc_jax.config_files import load_config
from posenc_jax.data.loader import validation_batches
from posenc_jax.data.tokenizer import SPECIALS
from posenc_jax.evaluation.report import training_table
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.evaluation.tables import Table
from posenc_jax.interop.pretrained import load_encoder
from posenc_jax.model.cost import encoder_flops, encoder_parameters

# %% [markdown]
# ## What it costs
#
# Counted, not measured: parameters, and floating-point operations of a forward pass as the program is traced.

# %%
PUBLISHED = {"electra.py:electra,small": "14M", "convbert.py:convbert,small": "14M"}
lines = []
for config, published in PUBLISHED.items():
    model = load_config(f"configs/{config}", {"model.vocab_size": 30_522}).model
    operations = (f"{encoder_flops(model, length) / length / 1e6:.1f}" for length in (128, 512))
    lines.append((config, f"{encoder_parameters(model):,}", published, *operations))
COLUMNS = ("config", "parameters", "published", "MFLOPs a word, rows of 128", "rows of 512")
Markdown(Table("Encoder with embeddings, 30,522 words, no head.", COLUMNS, lines, COLUMNS[1:]).markdown())

# %% [markdown]
# The paper puts the small model at 78.9 on GLUE's test set (mean of eight tasks, a million updates) beside ELECTRA's
# 78.0 at as many parameters; 84.9 beside 83.5 at base size. Its table of the kinds of convolution against each other
# could not be had, so there is nothing to compare the arms below with.
#
# ## Four arms and a control
#
# | arm | half of the heads | positions |
# |---|---|---|
# | `bert_a` | attend, as the others | learned, at the input |
# | `tupe_r` | attend, as the others | TUPE-R: in the attention |
# | `dynamic` | convolve with a window made from the word | learned, at the input |
# | `span_dynamic` | the same, from the word and the span around it: ConvBERT | learned, at the input |
# | `none` | attend, as the others | none |
#
# The first two are those of the tour. `tupe_r` is there because a convolution tells a word the order of its neighbours
# for free, and learned positions take long to learn: without it one could not say what is owed to that. `none`, in the
# losses only, is the control of the tour: what a bag of words is worth.

# %%
BERT = "configs/tupe.py:bert_a,tiny"
workdirs = {name: arms.trained(f"configs/tupe.py:{name},tiny", name) for name in ("bert_a", "tupe_r")}
for kind in ("dynamic", "span_dynamic"):
    mixed = {"model.mixer": "mixed", "model.convolution.kind": kind}
    workdirs[kind] = arms.trained(BERT, f"bert_a_{kind}", **mixed)
ARMS = tuple(workdirs)
control = arms.trained("configs/bert.py:none,tiny", "none")
runs = dict(zip((*ARMS, "none"), read_runs([*workdirs.values(), control]), strict=True))
Markdown(training_table(list(runs.values())).markdown())

# %%
info = arms.rows()
entropy = info.validation.unigram_entropy
curves = {name: seed_band([run.curve("validation")]) for name, run in runs.items()}
plot_learning(curves, "validation loss, nats a hidden piece", thresholds=[entropy])

# %% [markdown]
# *Validation loss over steps, one seed each; dotted: unigram entropy, with the step at which a run first reached it.*

# %%
loss = {name: run.validation_loss for name, run in runs.items()}
order = sorted(loss, key=loss.get)
gain = {name: loss["bert_a"] - loss[name] for name in loss}
below_none = {name: loss["none"] - loss[name] for name in ARMS}
first = runs[order[0]]
arms.say(
    f"After {first.step:,} steps of {first.config.train.batch_size} rows x {info.length} pieces, seed "
    f"{first.config.train.seed}, from least loss to most: "
    + ", ".join(f"`{name}` {loss[name]:.3f}" for name in order)
    + f" nats. Less than `bert_a`: `span_dynamic` by {gain['span_dynamic']:+.3f}, `dynamic` by {gain['dynamic']:+.3f}, "
    f"`tupe_r`, which attends alone but is told positions otherwise, by {gain['tupe_r']:+.3f}, and `none` by "
    f"{gain['none']:+.3f}. Less than `none`, to which a text is a bag of words: "
    f"`tupe_r` by {below_none['tupe_r']:+.3f}, `span_dynamic` by {below_none['span_dynamic']:+.3f}. "
    + (
        "So the loss of `tupe_r` is no sign that it uses positions."
        if below_none["tupe_r"] <= 0.05
        else "So `tupe_r` makes some use of positions."
    )
)

# %% [markdown]
# ## How local are the heads?
#
# The paper measures how much of the attention lies near the diagonal, by a formula that could not be had. Here, of our
# own definition: the share of a head's attention that falls on keys fewer than four slots away, the word itself
# included, over all words of held-out rows. Beside it stands what uniform attention over the same words would have. Of
# a convolution's window it is the weight of the seven slots in its middle.

# %%
ROWS = 8 if arms.FAST else 128
batch = validation_batches(info, batch_size=ROWS, rows=ROWS)[0]
words = (batch["tokens"], batch["segments"], batch["positions"])
is_word_BxL = batch["segments"] > 0
encoders = {name: load_encoder(workdir) for name, workdir in workdirs.items()}
weights, windows = {}, {}
for name, encoder in encoders.items():
    model = encoder.pretrained.model
    weights[name] = attention_maps(model, encoder.params, *words)
    if model.mixer == "mixed":
        windows[name] = convolution_windows(model, encoder.params, *words)

# %%
near = {name: diagonal_concentration(weights_ExBxHxLxL, words[1]) for name, weights_ExBxHxLxL in weights.items()}
near_of_window = {name: each[:, is_word_BxL][..., 1:-1].sum(-1).mean(1) for name, each in windows.items()}
layers = range(1, encoders["bert_a"].pretrained.model.layers + 1)


def shares(values_H: np.ndarray) -> str:
    return " ".join(f"{value:.2f}" for value in sorted(values_H, reverse=True))


lines = []
for name in ARMS:
    of_heads = [shares(near[name].share_ExH[layer - 1]) for layer in layers]
    of_windows = [shares(near_of_window[name][layer - 1]) if name in windows else "-" for layer in layers]
    lines.append((name, *of_heads, *of_windows))
COLUMNS = ("arm", *(f"attention, layer {n}" for n in layers), *(f"windows, layer {n}" for n in layers))
Markdown(
    Table(
        f"Share of the weight on fewer than four slots away, each head; uniform attention has "
        f"{near['bert_a'].uniform:.2f}, a uniform window 0.78. {is_word_BxL.sum():,} words of {ROWS} held-out rows.",
        COLUMNS,
        lines,
        COLUMNS[1:],
    ).markdown()
)

# %%
mean_near = {name: near[name].share_ExH.mean() for name in ARMS}
uniform = near["bert_a"].uniform
freed = mean_near["span_dynamic"] - mean_near["bert_a"]
arms.say(
    "If convolutions take over the work with neighbours, the heads that still attend may look farther. Mean over heads "
    f"and layers: {mean_near['bert_a']:.3f} in `bert_a`, {mean_near['tupe_r']:.3f} in `tupe_r`, "
    f"{mean_near['span_dynamic']:.3f} beside span-dynamic convolutions ({uniform:.3f} were attention uniform). So here "
    "the attention beside convolutions is "
    + ("less local than" if freed < -0.01 else "more local than" if freed > 0.01 else "as local as")
    + " that of `bert_a`"
    + (
        ", which after so few steps is itself hardly more local than uniform attention."
        if mean_near["bert_a"] < 1.2 * uniform
        else "."
    )
)

# %% [markdown]
# The same as weight by distance: attention heads and the windows of convolution heads on one scale.

# %%
REACH = 8


def by_distance(name: str) -> tuple[dict, np.ndarray]:
    measures = attention_by_distance(weights[name], words[1], REACH)
    value_ExHxC = np.stack([measure.value_ExH for measure in measures], -1)
    panels = {}
    for layer, value_HxC in enumerate(value_ExHxC):
        lines = {f"attention head {head + 1}": value_C for head, value_C in enumerate(value_HxC)}
        if name in windows:
            window_HxK = windows[name][layer][is_word_BxL].mean(0)
            side = REACH - window_HxK.shape[-1] // 2
            padded_HxC = np.pad(window_HxK, ((0, 0), (side, side)))
            lines |= {f"window, head {head + 1}": value_C for head, value_C in enumerate(padded_HxC)}
        panels[f"{name}, layer {layer + 1}"] = lines
    return panels, np.array([measure.uniform for measure in measures])


plot_by_distance(*by_distance("tupe_r"))

# %%
plot_by_distance(*by_distance("span_dynamic"))

# %% [markdown]
# *Mean weight by distance over the words of held-out rows, above with attention alone under TUPE-R, below in ConvBERT's
# mixed layers. A window ends four words away. The share of uniform attention falls with distance because texts are
# short.*
#
# ## What a window is made of
#
# A window of `dynamic` depends in the first layer on nothing but the word and its position; one of `span_dynamic` sees
# the words around it. The test: every second word of each row is exchanged for one from elsewhere, and the windows of
# the words that stayed are compared, by half the sum of absolute differences (0: the same window, 1: disjoint ones).

# %%
rng = np.random.default_rng(0)
is_piece_BxL = batch["tokens"] > max(SPECIALS.values())
swap_BxL = is_piece_BxL & (np.arange(info.length) % 2 == 1)
changed_BxL = batch["tokens"].copy()
changed_BxL[swap_BxL] = rng.permutation(changed_BxL[swap_BxL])
stayed_BxL = is_piece_BxL & ~swap_BxL
lines, moved = [], {}
for name, window_ExBxLxHxK in windows.items():
    encoder = encoders[name]
    other_ExBxLxHxK = convolution_windows(encoder.pretrained.model, encoder.params, changed_BxL, *words[1:])
    apart_ExH = 0.5 * abs(window_ExBxLxHxK - other_ExBxLxHxK)[:, stayed_BxL].sum(-1).mean(1)
    of_words_ExNxHxK = window_ExBxLxHxK[:, is_word_BxL]
    spread_ExH = 0.5 * abs(of_words_ExNxHxK - of_words_ExNxHxK.mean(1, keepdims=True)).sum(-1).mean(1)
    moved[name] = apart_ExH.mean(1)
    lines.append((name, *(f"{value:.3f}" for value in (*spread_ExH.mean(1), *apart_ExH.mean(1)))))
COLUMNS = ("arm", *(f"word to word, layer {n}" for n in layers), *(f"neighbours changed, layer {n}" for n in layers))
Markdown(
    Table(
        "Half the sum of absolute differences, mean over heads and words. Word to word: a word's window against the "
        "mean window of its head. Neighbours changed: against its own, once every second word was exchanged.",
        COLUMNS,
        lines,
        COLUMNS[1:],
    ).markdown()
)

# %%
arms.say(
    f"In layer 1 a changed neighbourhood moves the window of `dynamic` by {moved['dynamic'][0]:.1e}, nothing but "
    f"rounding, as its definition has it; that of `span_dynamic` by {moved['span_dynamic'][0]:.3f}. In layer 2 "
    f"`dynamic` knows the neighbours, too, through what layer 1 mixed ({moved['dynamic'][1]:.3f} beside "
    f"{moved['span_dynamic'][1]:.3f}): what the span adds is context from the first layer on."
)

# %% [markdown]
# ## The windows over one sentence

# %%
encoder = encoders["span_dynamic"]
tokenizer, model = encoder.pretrained.tokenizer, encoder.pretrained.model
texts = mark_texts(tokenizer, arms.sentences(workdirs["span_dynamic"]), info.length)
row = min(texts, key=lambda text: abs(len(text.ids_L) - 16))
pieces = [tokenizer.id_to_piece(int(token)) for token in row.ids_L]
of_sentence_ExLxHxK = convolution_windows(model, encoder.params, row.ids_L[None], np.ones((1, len(pieces)), int))[:, 0]


def draw(layer: int):
    return plot_windows(of_sentence_ExLxHxK[layer - 1].swapaxes(0, 1), pieces)


draw(1)

# %%
draw(len(layers))

# %% [markdown]
# *Windows of `span_dynamic`, the first layer above and the last one below; a row is a word piece, a column a neighbour,
# 0 the piece itself. At the ends of a text the slots outside take their share and give nothing.*

# %% tags=["slider"]
arms.slide(draw, layer=(1, len(layers)))

# %% [markdown]
# ## In short

# %%
beats = gain["span_dynamic"] > 0.02
ahead = loss["dynamic"] - loss["span_dynamic"]
arms.say(
    f"- ConvBERT's mixed layers end at {loss['span_dynamic']:.3f} nats, attention alone at {loss['bert_a']:.3f}: "
    + (
        "not below the unigram entropy yet, so no finding"
        if max(loss["span_dynamic"], loss["bert_a"]) >= entropy
        else "the direction of the paper"
        if beats
        else "not the direction of the paper"
    )
    + f", from one seed each, {first.step:,} steps and encoders of at most "
    f"{max(run.summary['parameters'] for run in runs.values()):,} parameters.\n"
    f"- Attention alone that is told positions by TUPE-R gains {gain['tupe_r']:+.3f} nats on `bert_a`, attention "
    f"without positions {gain['none']:+.3f}: "
    + (
        "positions are part of the convolutions' gain"
        if beats and min(below_none["tupe_r"], gain["tupe_r"]) > 0.05
        else "that positions are part of the convolutions' gain is not shown by it"
        if beats
        else "there is no gain of the convolutions to share"
    )
    + ". The paper's models train long enough to learn positions from a table.\n"
    f"- The span is worth {ahead:+.3f} nats against windows from the word alone. That is no ranking before it is known "
    "how far apart the seeds of one arm lie (notebook 7)."
)
