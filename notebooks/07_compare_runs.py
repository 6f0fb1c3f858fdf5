# %% [markdown]
# # 7. Is it a difference? Comparing runs
#
# A table of one run each says which number is smaller, not which setting is better. Small encoders sit on a plateau for
# a while and leave it at a step that depends on the seed; before and after, arms look alike or worlds apart. Here the
# two arms of the tour run with other seeds, too, and what can be said about them is said with the spread beside it. So
# does their control, `none`, which is `bert_a` without positions: what a bag of words can learn, no arm needs positions
# for.
#
# The papers report one pre-training run an arm (TUPE, ConvBERT, symmetric attention); the spread they give, where they
# give one, is that of fine-tunings.

# %%
# %matplotlib inline
# %config InlineBackend.figure_format = "retina"
import itertools
import math

import arms
import jax
import numpy as np
from IPython.display import Markdown

from posenc_jax.analysis.behaviour import hide_words, load_masked_model
from posenc_jax.analysis.learning import plateau_exit, seed_band, steps_to
from posenc_jax.analysis.plots.learning import plot_learning
from posenc_jax.analysis.texts import batches, mark_texts
from posenc_jax.config import config_diff
from posenc_jax.evaluation.page.build import write_page
from posenc_jax.evaluation.report import training_table
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.evaluation.similarity.wic import mcnemar
from posenc_jax.evaluation.tables import Table
from posenc_jax.objectives.mlm import MlmNetwork

# %% [markdown]
# ## The same arms, other seeds
#
# The seed decides the start and the order of the rows. Rows, held-out rows and the masks of the validation loss are the
# same for all.

# %%
SEEDS = (0, 1) if arms.FAST else (0, 1, 2)
ARMS = ("bert_a", "tupe_r", "none")
CONFIGS = {"bert_a": "configs/tupe.py:bert_a", "tupe_r": "configs/tupe.py:tupe_r", "none": "configs/bert.py:none"}
workdirs = {
    (arm, seed): arms.trained(f"{CONFIGS[arm]},tiny", arm if seed == 0 else f"{arm}_seed{seed}", **{"train.seed": seed})
    for arm in ARMS
    for seed in SEEDS
}
runs = dict(zip(workdirs, read_runs(list(workdirs.values())), strict=True))
Markdown(training_table(list(runs.values())).markdown())

# %% [markdown]
# Where two of them differ, field by field; what changes no result is left out:

# %%
(
    config_diff(runs["bert_a", 0].config, runs["tupe_r", 0].config),
    config_diff(runs["bert_a", 0].config, runs["none", 0].config),
    config_diff(*(runs["bert_a", n].config for n in (0, 1))),
)

# %%
info = arms.rows()
entropy = info.validation.unigram_entropy
curves = {arm: [runs[arm, seed].curve("validation") for seed in SEEDS] for arm in ARMS}
plot_learning(
    {arm: seed_band(every) for arm, every in curves.items()}, "validation loss, nats a hidden piece", [entropy]
)

# %% [markdown]
# *Validation loss; line: median over seeds, band: least to most, which is no confidence interval. Dotted: unigram
# entropy.*

# %%
last = {arm: np.array([runs[arm, seed].validation_loss for seed in SEEDS]) for arm in ARMS}
spread = {arm: np.ptp(values) for arm, values in last.items()}
ways = math.comb(2 * len(SEEDS), len(SEEDS))


def compared(one: str, other: str) -> str:
    """How far the means of two arms lie apart, and whether every run of one is below every run of the other."""
    better, worse = sorted((one, other), key=lambda arm: last[arm].mean())
    far = f"`{better}` is {last[worse].mean() - last[better].mean():.3f} nats below `{worse}`, means over seeds, and "
    if last[better].max() < last[worse].min():
        return (
            f"{far}every run of it is below every run of the other. Were the names of the arms drawn at random, "
            f"that would happen in 2 of {ways} ways, p = {2 / ways:.2f}: with {len(SEEDS)} seeds an arm no test can "
            "say more."
        )
    return f"{far}their runs overlap, so these runs do not order them."


learned = max(values.max() for values in last.values()) < entropy
lower = last["bert_a"].mean() - last["tupe_r"].mean()
shared = last["bert_a"].mean() - last["none"].mean()
arms.say(
    f"Last losses over seeds {', '.join(map(str, SEEDS))}: "
    + "; ".join(f"`{arm}` {', '.join(f'{value:.3f}' for value in values)}" for arm, values in last.items())
    + f". Seeds of one arm are up to {max(spread.values()):.3f} apart.\n\n"
    f"- {compared('tupe_r', 'bert_a')}\n- {compared('tupe_r', 'none')}\n\n"
    f"The paper's direction is `tupe_r` below `bert_a`, at a million steps; here are {runs['bert_a', 0].step:,} of "
    f"{runs['bert_a', 0].config.train.batch_size} x {info.length} pieces. "
    + (
        f"Not all runs are below the unigram entropy, {entropy:.3f}, so nothing follows for the paper."
        if not learned
        else "The direction is not found here."
        if lower <= 0
        else f"The direction is the same here, but by {shared:.3f} of these {lower:.3f} nats the encoder without "
        "positions is below `bert_a`, too: the lead of `tupe_r` is for the most part no use of positions."
        if shared > lower / 2
        else f"The direction is the same here, and `tupe_r` is {lower - shared:.3f} nats below the encoder without "
        "positions, too."
    )
)

# %% [markdown]
# ## Steps to a level
#
# "Trains twice as fast" is the ratio of two such numbers. Each is one crossing of one curve; between evaluations it is
# interpolated. What a level means is a question of its own: a loss some tenths of a nat below the unigram entropy can
# be had by knowing which words occur together, and the control shows how far that goes.

# %%
LEVELS = tuple(round(entropy - below, 2) for below in (0.1, 0.2, 0.3))


def steps(arm: str, level: float) -> list[float | None]:
    return [steps_to(curve, level, falling=True).step for curve in curves[arm]]


def shown(found: list[float | None]) -> str:
    return ", ".join("never" if step is None else f"{step:,.0f}" for step in found)


def ratio_range(level: float) -> str:
    """Least and most ratio over all pairs of seeds, where both reached the level."""
    pairs = itertools.product(*(steps(arm, level) for arm in ("tupe_r", "bert_a")))
    ratios = [mine / other for mine, other in pairs if mine is not None and other is not None]
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-"


lines = [(f"{level:.2f}", *(shown(steps(arm, level)) for arm in ARMS), ratio_range(level)) for level in LEVELS]
COLUMNS = ("level (nats)", *ARMS, "tupe_r / bert_a")
Markdown(
    Table(
        "Steps to a validation loss, a number a seed; never: not within these steps. Ratio: least to most over all "
        "pairs of seeds that reached it.",
        COLUMNS,
        lines,
        COLUMNS,
    ).markdown()
)

# %%
leaves = {arm: [plateau_exit(curve, entropy - 0.1) for curve in curves[arm]] for arm in ARMS}
said = [
    f"- `{arm}` seed {seed}: {'; '.join(caveats)}"
    for arm in ARMS
    for seed, curve in zip(SEEDS, curves[arm], strict=True)
    if (caveats := steps_to(curve, LEVELS[0], falling=True).caveats)
]
free = [f"{level:.2f}" for level in LEVELS if any(step is not None for step in steps("none", level))]
arms.say(
    "First evaluated step more than 0.1 below the unigram entropy: "
    + "; ".join(f"`{arm}` {shown(found)}" for arm, found in leaves.items())
    + f". Evaluations come every {runs['bert_a', 0].config.train.eval_every} steps, and nothing finer is known. "
    + (
        f"Of the encoders without positions at least one reaches {', '.join(free)} nats: to these levels the steps, "
        "and their ratio, say how fast an arm learns which words occur together, not how fast it learns their order."
        if free
        else "Encoders without positions reach none of these levels."
    )
    + f"\n\nWhat the crossings of {LEVELS[0]:.2f} nats rest on:\n\n"
    + ("\n".join(said) or "- nothing to note")
)

# %% [markdown]
# ## A test between two runs is not a test between two arms
#
# Both models guess the same hidden pieces, so their answers can be paired: McNemar's test asks whether the pieces that
# only one of them gets right are split evenly. It is exact, and it is about these two *runs*. The control is the same
# test between two seeds of one arm.

# %%
texts = arms.sentences(workdirs["bert_a", 0], 600)
tokenizer = load_masked_model(workdirs["bert_a", 0]).pretrained.tokenizer
examples = hide_words(batches(mark_texts(tokenizer, texts, info.length), info.length), tokenizer, seed=0)


def right(workdir) -> np.ndarray:
    """Whether each hidden piece is the likeliest guess."""
    masked = load_masked_model(workdir)
    run, found = jax.jit(MlmNetwork(masked.pretrained.model).apply), []
    for batch in examples:
        logits_BxMxV = run({"params": masked.params}, batch, batch["predicted"])
        is_right_BxM = np.asarray(logits_BxMxV).argmax(-1) == np.asarray(batch["target"])
        found.append(is_right_BxM[np.asarray(batch["predicted_weight"]) > 0])
    return np.concatenate(found)


PAIRS = [(("bert_a", 0), ("tupe_r", 0)), *(((arm, 0), (arm, 1)) for arm in ("bert_a", "tupe_r"))]
answers = {key: right(workdirs[key]) for key in dict.fromkeys(itertools.chain(*PAIRS))}
tests = {pair: mcnemar(*(answers[key] for key in pair)) for pair in PAIRS}
lines = [
    (
        f"{one[0]} seed {one[1]}, {other[0]} seed {other[1]}",
        *(f"{100 * answers[key].mean():.1f} %" for key in (one, other)),
        f"{only_one:,}",
        f"{only_other:,}",
        f"{p:.2g}",
    )
    for (one, other), (only_one, only_other, p) in tests.items()
]
COLUMNS = ("runs", "first right", "second right", "only the first", "only the second", "p")
Markdown(
    Table(
        f"{len(next(iter(answers.values()))):,} hidden pieces of {len(texts):,} held-out sentences, the same for all.",
        COLUMNS,
        lines,
        COLUMNS[1:],
    ).markdown()
)

# %%
control = [tests[pair][2] for pair in PAIRS[1:]]
p = tests[PAIRS[0]][2]
arms.say(
    f"Between the arms p = {p:.2g}; between two seeds of one arm {' and '.join(f'{value:.2g}' for value in control)}. "
    + (
        "Two seeds of the same arm differ by this test as well, so that it says of two arms only that two runs are not "
        "the same function."
        if min(control) < 0.05
        else "Here the seeds of one arm do not differ by it; the test still knows nothing of seeds that were not run."
    )
)

# %% [markdown]
# ## All that was trained
#
# Every finished run in the notebooks' folder that guesses words hidden in the same way, so that their losses are
# comparable: the more notebooks have run, the more lines. One seed each, but for those above.

# %%
reference = runs["bert_a", 0].config
folders = sorted(path.parent for path in arms.OUT.glob("*/config.json"))
every = [run for run in read_runs(folders) if run.summary and run.config.mlm == reference.mlm]
every = [run for run in every if run.config.objective == "mlm" and run.rows.get("validation")]
lines = [
    (run.name, run.variant, f"{run.summary['parameters']:,}", f"{run.step:,}", str(run.config.train.seed),
     f"{run.validation_loss:.3f}", f"{run.unigram_entropy - run.validation_loss:.3f}")
    for run in sorted(every, key=lambda run: run.validation_loss)
]  # fmt: skip
COLUMNS = ("run", "variant", "parameters", "steps", "seed", "validation loss", "below unigram entropy")
Markdown(Table("By loss, which is no ranking of variants.", COLUMNS, lines, COLUMNS[2:]).markdown())

# %% [markdown]
# ## One page to keep
#
# `report` puts runs side by side in one HTML file that fetches nothing: tables, curves, where their configs differ, the
# commands that make them again. On the command line it also loads the encoders and shows their positions and states.

# %%
page = write_page(list(runs.values()), arms.OUT / "report", encoders=False)
arms.say(
    f"Written to `{page.relative_to(arms.OUT.parent)}` ({page.stat().st_size / 1e6:.1f} MB); with the encoders: "
    f"`python -m posenc_jax report {' '.join(run.name for run in runs.values())}`, in the folder of the runs."
)
