# %% [markdown]
# # 6. Representation confusion: words and heads that are alike
#
# Zhang et al. (2023) find that masked language models end with vectors of different words that are much alike, and with
# heads whose attention is much alike, and penalise both: TCD lowers the mean cosine between last vectors of different
# words, HCD that between the attention weights of different heads. MTH is masked words with both.
#
# Neither their formulas nor any number of theirs could be had: pairs, norms, layers and factors are our choice (0.1
# each), the results are MTH-*style*, and there is nothing published to compare them with. What can be asked here: do
# the penalties lower what they penalise, what else moves with it, and what does it cost in loss?

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import arms
import numpy as np
from IPython.display import Markdown

from posenc_jax.analysis.attention_maps import attention_maps
from posenc_jax.analysis.attention_measures import attention_entropy, head_similarity, token_similarity
from posenc_jax.analysis.plots.attention import plot_similarities
from posenc_jax.analysis.plots.likeness import plot_likeness, plot_similarity_by_layer
from posenc_jax.analysis.plots.words import plot_head_maps
from posenc_jax.analysis.states import encode_with
from posenc_jax.data.loader import validation_batches
from posenc_jax.evaluation.report import training_table
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.evaluation.tables import Table
from posenc_jax.interop.pretrained import layer_names, load_encoder

# %% [markdown]
# ## Three arms
#
# `mlm` has no penalty, `mth` both in their plain form, `mth_squared` both of squared cosines. The encoder of all is
# DDRP-style (`configs/mth.py`): relative positions of a distance and a direction.

# %%
ARMS = ("mlm", "mth", "mth_squared")[: 2 if arms.FAST else 3]
workdirs = {name: arms.trained(f"configs/mth.py:{name},tiny", name) for name in ARMS}
runs = dict(zip(ARMS, read_runs(list(workdirs.values())), strict=True))
Markdown(training_table(list(runs.values())).markdown())

# %% [markdown]
# The validation loss of the table is that of hidden words alone; penalties are not in it.
#
# ## How alike are they?
#
# Three forms of each mean cosine over pairs: *plain*, *squared*, and *centred*, of words after the text's mean vector
# was taken away, of heads less the mean attention weight. Held-out rows, nothing hidden.

# %%
info = arms.rows()
ROWS = 8 if arms.FAST else 128
batch = validation_batches(info, batch_size=ROWS, rows=ROWS)[0]
encoders = {name: load_encoder(workdir) for name, workdir in workdirs.items()}
layers = layer_names(encoders["mlm"].pretrained.model)
tokens_BxL, segments_BxL = batch["tokens"], batch["segments"]  # positions are relative: a text may begin anywhere
states = {name: np.asarray(encode_with(encoder)(tokens_BxL, segments_BxL)) for name, encoder in encoders.items()}
weights = {
    name: attention_maps(encoder.pretrained.model, encoder.params, tokens_BxL, segments_BxL)
    for name, encoder in encoders.items()
}
of_words = {name: token_similarity(states_ExBxLxD, segments_BxL) for name, states_ExBxLxD in states.items()}
of_heads = {name: head_similarity(weights_ExBxHxLxL, segments_BxL) for name, weights_ExBxHxLxL in weights.items()}
entropy = {name: attention_entropy(weights_ExBxHxLxL, segments_BxL) for name, weights_ExBxHxLxL in weights.items()}
last_words = {name: {form: float(value_E[-1]) for form, value_E in forms.items()} for name, forms in of_words.items()}
mean_heads = {
    name: {form: float(value_E.mean()) for form, value_E in forms.items()} for name, forms in of_heads.items()
}
plot_similarities(last_words, mean_heads)

# %% [markdown]
# *Left: mean cosine between the last vectors of different words of a text. Right: mean cosine between the attention
# rows of different heads, mean over layers.*

# %%
plot_similarity_by_layer({name: forms["plain"] for name, forms in of_words.items()}, layers)

# %% [markdown]
# *The plain cosine of words in every layer. "last" is the output of the encoder, after its final LayerNorm, which is
# what TCD penalises.*

# %%
fell_words = last_words["mlm"]["plain"] - last_words["mth"]["plain"]
fell_heads = mean_heads["mlm"]["plain"] - mean_heads["mth"]["plain"]
arms.say(
    "Different words of a text have a mean cosine of "
    f"{last_words['mlm']['plain']:.3f} without a penalty and {last_words['mth']['plain']:.3f} with both; different "
    f"heads {mean_heads['mlm']['plain']:.3f} and {mean_heads['mth']['plain']:.3f}. "
    + (
        "Each penalty lowers what it penalises."
        if min(fell_words, fell_heads) > 0.01
        else "Not each penalty has lowered what it penalises in these steps."
    )
)

# %% [markdown]
# ## A lower cosine of words may mean nothing
#
# The plain mean cosine sees the common mean of the vectors and little else. Take one vector, the mean over all words,
# away from every last vector of the arm without a penalty: no two words are further apart than before, and yet the
# cosine falls. The centred mean is no way out: once a text's mean is gone, cosines of m vectors average about
# -1 / (m - 1) whatever the vectors are. What is left to look at is the square of the centred ones: how far words lie
# along the same few lines.


# %%
def less_text_mean(states_BxLxD: np.ndarray) -> np.ndarray:
    """Each vector less the mean of its text."""
    same_BxLxL = (segments_BxL[:, :, None] == segments_BxL[:, None]) & (segments_BxL > 0)[:, None]
    share_BxLxL = same_BxLxL / np.maximum(same_BxLxL.sum(-1, keepdims=True), 1)
    return states_BxLxD - share_BxLxL @ states_BxLxD


def cosines(states_BxLxD: np.ndarray) -> dict[str, float]:
    found = token_similarity(np.stack([states_BxLxD, less_text_mean(states_BxLxD)]), segments_BxL)
    return {form: float(value_E[0]) for form, value_E in found.items()} | {
        "centred, squared": float(found["squared"][1])
    }


last = {name: states_ExBxLxD[-1].astype(np.float64) for name, states_ExBxLxD in states.items()}
vectors = {"mlm": last["mlm"], "mlm, one vector taken away": last["mlm"] - last["mlm"][segments_BxL > 0].mean(0)}
vectors |= {name: last[name] for name in ARMS[1:]}
of = {name: cosines(states_BxLxD) for name, states_BxLxD in vectors.items()}
lines = [(name, *(f"{value:.3f}" for value in values.values())) for name, values in of.items()]
COLUMNS = ("vectors", *of["mlm"])
Markdown(Table("Cosines of different words of a text, last vectors.", COLUMNS, lines, COLUMNS[1:]).markdown())

# %%
shifted = of["mlm, one vector taken away"]
free = of["mlm"]["plain"] - shifted["plain"]
start = of["mlm"]["centred, squared"]
more = {name: of[name]["centred, squared"] / start - 1 for name in ARMS[1:]}  # alike, than without a penalty


def direction(more: float) -> str:
    if abs(more) <= 0.1:
        return "words differ about as much as without a penalty"
    return f"words are {'more' if more > 0 else 'less'} alike than without a penalty"


arms.say(
    f"The shift lowers the plain cosine by {free:.3f} and changes nothing once texts are centred "
    f"({shifted['centred, squared'] - start:+.0e}). With the plain penalty it is "
    f"{abs(fell_words):.3f} {'lower' if fell_words > 0 else 'higher'}"
    + (", which a shift could have done, too. " if 0 < fell_words <= free + 0.05 else ". ")
    + f"Centred and squared, which no shift moves, the mean without a penalty is {start:.4f}; "
    + "; ".join(
        f"in `{name}` it is {of[name]['centred, squared']:.4f}, {100 * value:+.0f} %: by that measure "
        f"{direction(value)}"
        for name, value in more.items()
    )
    + "."
)

# %% [markdown]
# ## Heads that differ, or heads that are sharp?
#
# Sharper heads are less alike by that alone. So the attention of the arm without a penalty is made sharper and flatter
# after the fact, each row to a power and normalised, and its heads compared again: a curve of likeness against entropy
# that needs no training. An arm below the curve has heads that differ more than their sharpness explains.


# %%
def powered(weights_ExBxHxLxL: np.ndarray, power: float) -> np.ndarray:
    raised = weights_ExBxHxLxL**power
    return raised / raised.sum(-1, keepdims=True)


def head_point(weights_ExBxHxLxL: np.ndarray) -> tuple[float, float]:
    alike = head_similarity(weights_ExBxHxLxL, segments_BxL)["plain"].mean()
    return float(attention_entropy(weights_ExBxHxLxL, segments_BxL).value_ExH.mean()), float(alike)


POWERS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
curve = [head_point(powered(weights["mlm"], power)) for power in POWERS]
points = {name: (float(entropy[name].value_ExH.mean()), mean_heads[name]["plain"]) for name in ARMS}
plot_likeness(curve, points, "mlm, attention to a power")

# %% [markdown]
# *Mean cosine between the attention rows of different heads over the mean entropy of the rows, both means over heads
# and layers. Line: the arm without a penalty with each row raised to powers from 0.25 (right) to 8 (left).*

# %%
expected = {name: float(np.interp(points[name][0], *np.array(sorted(curve)).T)) for name in ARMS}
below = {name: expected[name] - points[name][1] for name in ARMS[1:]}
uniform = entropy["mlm"].uniform
arms.say(
    "At the entropy that its attention has, the curve gives "
    + " and ".join(f"{expected[name]:.3f} for `{name}`, which has {points[name][1]:.3f}" for name in below)
    + f" (entropies {' and '.join(f'{points[name][0]:.2f}' for name in below)} nats, without a penalty "
    f"{points['mlm'][0]:.2f}, uniform attention {uniform:.2f}): "
    + "; ".join(
        f"in `{name}` heads differ "
        + (
            "more than their sharpness explains"
            if gap > 0.01
            else "less than their sharpness explains"
            if gap < -0.01
            else "about as much as their sharpness explains"
        )
        + f" ({gap:+.3f})"
        for name, gap in below.items()
    )
    + "."
)

# %% [markdown]
# ## Head by head
#
# The attention of one held-out text in layer 1, without a penalty and with both.

# %%
length_B = (segments_BxL == 1).sum(1)
text = int(np.argmin(abs(length_B - 20)))
count = int(length_B[text])
print(encoders["mlm"].pretrained.tokenizer.decode(tokens_BxL[text, :count].tolist()))


def draw(layer: int):
    return plot_head_maps({name: weights[name][layer - 1, text, :, :count, :count] for name in ("mlm", "mth")})


draw(1)

# %% [markdown]
# *Attention of every head, query by key in the order of the text, one scale for all; a row of panels an arm.*

# %% tags=["slider"]
arms.slide(draw, layer=(1, len(of_heads["mlm"]["plain"])))

# %% [markdown]
# ## In short

# %%
loss = {name: run.validation_loss for name, run in runs.items()}
first = runs["mlm"]
order, dearer = sorted(loss, key=loss.get), loss["mth"] - loss["mlm"]
over = loss["mlm"] - first.unigram_entropy
arms.say(
    f"- Scale: {first.step:,} steps of {first.config.train.batch_size} rows x {info.length} pieces, encoders of "
    f"{encoders['mlm'].pretrained.model.layers} x {encoders['mlm'].pretrained.model.width}, seed "
    f"{first.config.train.seed}, {len(tokens_BxL):,} held-out rows.\n"
    "- Validation loss of hidden words, penalties not counted: "
    + ", ".join(f"`{name}` {loss[name]:.3f}" for name in order)
    + f". With both penalties it is {dearer:+.3f} nats, one seed each; the paper's claim is about GLUE after a whole "
    "pre-training, which this says nothing of.\n"
    f"- Words: without a penalty the plain cosine is {last_words['mlm']['plain']:.3f}"
    + (
        f", of an encoder whose loss is still {over:.3f} nats above the unigram entropy, so that it says nothing of "
        "what training leads to"
        if over >= 0
        else ", so after this little training the confusion that the paper starts from is "
        + (
            "there"
            if last_words["mlm"]["plain"] > 0.4
            else "slight"
            if last_words["mlm"]["plain"] > 0.15
            else "hardly there"
        )
    )
    + ".\n- Of both penalties look at the centred form and at the entropy before believing the plain cosine."
)
