# %% [markdown]
# # 1. A tour: from a config to a score
#
# Two small encoders learn to guess hidden words. They differ in one config line: how they are told where the words
# are. Then each answers a question that cannot be answered without word order. Everything runs on the documentation of
# some Python packages that are installed anyway; nothing is downloaded.
#
# What this notebook makes stays in `out/notebooks`, and the other notebooks go on from it.

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import dataclasses
import math
from collections import Counter

import arms
import jax
import numpy as np
from IPython.display import Markdown

from posenc_jax.analysis.behaviour import hide_words, load_masked_model
from posenc_jax.analysis.learning import seed_band
from posenc_jax.analysis.plots.learning import plot_learning
from posenc_jax.analysis.texts import batches, mark_texts
from posenc_jax.config import config_diff
from posenc_jax.config_files import load_config
from posenc_jax.data.loader import RowSource
from posenc_jax.data.probes import write_probes
from posenc_jax.data.sentences import split_sentences
from posenc_jax.data.sources import documents
from posenc_jax.data.tokenizer import Tokenizer
from posenc_jax.evaluation.glue.grid import run_glue
from posenc_jax.evaluation.report import training_table
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.objectives.mlm import MlmNetwork

# %% [markdown]
# ## A config
#
# `configs/tupe.py` holds the variants of one paper (Ke et al. 2021); `tiny` is a size for minutes on a processor. What
# a config comes to is a frozen dataclass, so two of them can be compared field by field:

# %%
ARMS = {name: f"configs/tupe.py:{name},tiny" for name in ("bert_a", "tupe_r")}
config_diff(*map(load_config, ARMS.values()))

# %% [markdown]
# `bert_a` adds a learned vector of the position to each word at the input, as BERT does. `tupe_r` keeps words and
# positions apart: how much two positions attend to each other is a matrix of its own, added to the attention of every
# layer, plus a bias by distance, and [CLS] is freed from its place. All else is the same.

# %%
model = load_config(ARMS["tupe_r"]).model
{field.name: getattr(model, field.name) for field in dataclasses.fields(model) if field.name != "convolution"}

# %% [markdown]
# ## Text to rows
#
# `prepare` reads text, learns a vocabulary of word pieces, and packs the pieces into rows. Several documents may share
# a row; none attends to another.

# %%
info = arms.rows()
of = info.statistics
arms.say(
    f"{of['words']:,} words of `{arms.SOURCE}` became {of['tokens']:,} pieces in {of['rows']:,} rows of {info.length}, "
    f"with a vocabulary of {info.vocab_size:,}; {info.validation.rows:,} rows are held out. Whoever knows how frequent "
    f"each piece is and nothing else guesses a hidden piece at **{info.validation.unigram_entropy:.3f} nats**, the "
    "unigram entropy of the held-out rows: the number to beat."
)

# %%
tokenizer = Tokenizer.load(info.path / "tokenizer.model")
row = RowSource(info, "validation")[0]
print(" ".join(tokenizer.id_to_piece(int(token)) for token in row["tokens"]))

# %% [markdown]
# ## Pre-training
#
# 15 % of the pieces are hidden, and the loss is the cross-entropy of guessing them, in nats a hidden piece. A run that
# is interrupted goes on from where it stood when the same cell runs again; one that is finished is taken as it is.
#
# A third encoder is the control: `none` is `bert_a` without any positions. To it a text is a bag of words, so that what
# it learns is how frequent words are and which occur together.

# %%
workdirs = {name: arms.trained(config, name) for name, config in ARMS.items()}
control = arms.trained("configs/bert.py:none,tiny", "none")
runs = {run.name: run for run in read_runs([*workdirs.values(), control])}
Markdown(training_table(list(runs.values())).markdown())

# %%
curves = {name: seed_band([run.curve("validation")]) for name, run in runs.items()}
entropy = info.validation.unigram_entropy
plot_learning(curves, "validation loss, nats a hidden piece", thresholds=[entropy])

# %% [markdown]
# *Validation loss over steps; dotted: unigram entropy, with the step at which a run first reached it.*


# %%
def beside(below: float) -> str:
    return f"{abs(below):.3f} {'below' if below > 0 else 'above'}"


below = {name: entropy - run.validation_loss for name, run in runs.items()}
first, second = sorted(ARMS, key=below.get, reverse=True)
batch = runs[first].config.train.batch_size
steps = runs[first].step
arms.say(
    f"After {steps:,} steps of {batch} rows x {info.length} pieces ({steps * batch * info.length / 1e6:.2f} million "
    f"pieces), seed {runs[first].config.train.seed}, `{first}` is at {runs[first].validation_loss:.3f} nats, "
    f"{beside(below[first])} the unigram entropy, `{second}` at {runs[second].validation_loss:.3f}, "
    f"{beside(below[second])} it: `{first}` is ahead by {below[first] - below[second]:.3f}. One seed each: notebook "
    f"7 asks whether such a difference is one. `none` is at {runs['none'].validation_loss:.3f}, "
    f"{beside(below['none'])} the entropy: "
    + (
        "a loss below it can be had from a bag of words, and does not show that positions are used."
        if below["none"] > 0
        else "in these steps a bag of words does not get below it."
    )
)

# %% [markdown]
# ## What they guess
#
# One held-out sentence, the same pieces hidden for both; the three likeliest guesses of each.

# %%
sentence = max(arms.sentences(workdirs["tupe_r"], 40), key=lambda text: -abs(len(text.split()) - 14))
examples = hide_words(batches(mark_texts(tokenizer, [sentence], info.length), info.length), tokenizer, seed=1)[0]
first_row = {name: np.asarray(array)[:1] for name, array in examples.items()}


def guesses(name: str) -> list[str]:
    masked = load_masked_model(workdirs[name])
    network = MlmNetwork(masked.pretrained.model)
    logits_BxMxV = jax.jit(network.apply)({"params": masked.params}, first_row, first_row["predicted"])
    best_MxK = np.argsort(-np.asarray(logits_BxMxV[0]))[:, :3]
    return [" ".join(tokenizer.id_to_piece(int(piece)) for piece in best_K) for best_K in best_MxK]


answers = {name: guesses(name) for name in ARMS}
shown = [tokenizer.id_to_piece(int(token)) for token in first_row["tokens"][0] if token != tokenizer.pad]
lines = [f"`{' '.join(shown)}`", "", f"| hidden | {' | '.join(answers)} |", "|---|" + "---|" * len(answers)]
for place in np.flatnonzero(first_row["predicted_weight"][0]):
    hidden = tokenizer.id_to_piece(int(first_row["target"][0, place]))
    lines.append(f"| {hidden} | " + " | ".join(each[place] for each in answers.values()) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# ## A score
#
# The probe *order*: were two neighbouring words of this sentence exchanged? The two classes hold the same words, so
# whoever does not know positions stays at 50 %. Each encoder gets a fresh head and is fine-tuned with it.

# %%
ROWS, DEV_ROWS, EPOCHS = (64, 32, 1) if arms.FAST else (4000, 1000, 2)
probes = arms.OUT / "probes"
if not (probes / "order" / "dev.tsv").exists():
    texts = (split_sentences(document) for document in documents(arms.SOURCE, Counter()))
    write_probes(texts, probes, rows=ROWS, dev_rows=DEV_ROWS)
records = {
    name: run_glue(workdir, probes, ["order"], epochs=EPOCHS, learning_rate=1e-3)[0]
    for name, workdir in workdirs.items()
}

# %%
dev_rows = len((probes / "order" / "dev.tsv").read_text("utf-8").splitlines()) - 1
error = 100 * math.sqrt(0.25 / dev_rows)
scores = {name: 100 * record["score"] for name, record in records.items()}
above = [f"`{name}`" for name, score in scores.items() if score > 50 + 2 * error]
arms.say(
    f"Accuracy on {dev_rows:,} held-out sentences after {EPOCHS} epochs over {ROWS:,}: "
    + ", ".join(f"`{name}` {score:.1f} %" for name, score in scores.items())
    + f". Chance is 50 %, with a standard error of {error:.1f}; more than two of those above it: "
    + (f"{' and '.join(above)}." if above else "neither.")
)

# %% [markdown]
# ## Beside the paper
#
# Ke et al. pre-train BERT-base for a million steps of 256 x 512 words and score nine GLUE tasks: 82.96 on average with
# absolute positions, 85.04 with TUPE-R (their Table 1). What is above is thousands of times smaller and says nothing of
# GLUE; it shows the way from a config to a score. The last cell says in which direction this one run points, and
# whether that can have to do with positions.

# %%
ABOUT = 0.05  # nats: seeds of one arm lie some hundredths apart (notebook 7)
gap = below["tupe_r"] - below["bert_a"]
worth = below["tupe_r"] - below["none"]
if min(below[name] for name in ARMS) <= 0:
    verdict = "Not both are below the unigram entropy yet, so that the loss says nothing beside the paper."
else:
    verdict = f"By the loss that is {'' if gap > 0 else 'not '}the direction of the paper. "
    if worth < -ABOUT:
        verdict += (
            f"But `none`, which is told no positions, ends {-worth:.3f} nats below TUPE-R: the loss is no evidence "
            "that positions are used"
        )
    elif worth <= ABOUT:
        verdict += (
            f"But `none`, which is told no positions, ends at about the loss of TUPE-R ({worth:+.3f} nats above it): "
            "the loss is no evidence that positions are used"
        )
    else:
        verdict += f"TUPE-R ends {worth:.3f} nats below `none`, so that it makes some use of positions"
    verdict += (
        f", and on *order* {' and '.join(above)} {'is' if len(above) == 1 else 'are'} above chance."
        if above
        else ", and on *order* both are at chance."
    )
arms.say(
    f"TUPE-R less BERT-A: {-gap:+.3f} nats of validation loss, {scores['tupe_r'] - scores['bert_a']:+.1f} points on "
    f"*order*. {verdict}"
)

# %% [markdown]
# ## The same in a shell
#
# ```
# python -m posenc_jax prepare --source docstrings:numpy,scipy,jax --out out/rows --length 64 --vocab-size 2000
# python -m posenc_jax pretrain --config configs/tupe.py:tupe_r,tiny,length=64 --data out/rows --workdir out/tupe_r
# python -m posenc_jax probes --source docstrings:numpy,scipy,jax --out out/probes
# python -m posenc_jax glue --workdir out/tupe_r --data out/probes --tasks order
# python -m posenc_jax report out/tupe_r
# ```
#
# Next: [where the words are](02_where_words_are.ipynb), for every position scheme.
