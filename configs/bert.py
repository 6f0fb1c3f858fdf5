"""BERT as its successors re-trained it, masked words only, under every plain way of telling positions.

    python -m posenc_jax pretrain --config configs/bert.py:bert_a,base --data ROWS --workdir RUN

Variants  bert_a      x = LN(word + position)                             Devlin et al. 2019
          bert_r      the same, and a T5 relative bias in every layer      the baseline of TUPE, Ke et al. 2021
          sinusoidal  waves of the position added to the words             Vaswani et al. 2017
          rope        queries and keys turned by their position            Su et al. 2021
          alibi       a linear penalty on distance, for both directions    Press et al. 2022
          t5          the T5 relative bias alone                           Raffel et al. 2020
          none        a bag of words, the control
Sizes     tiny (minutes on a laptop), small (ELECTRA's: 12 x 256), base (12 x 768), large (24 x 1024)
Others    length=N (positions the table holds), seed=N, as in configs/bert.py:bert_a,tiny,length=64

Cost      base: 1M steps of 256 x 512 tokens, 6 to 7 days on 8 V100 by the TUPE author's account.
Expect    base, after 1M steps: GLUE dev average 82.96 (bert_a), 83.66 (bert_r) in TUPE's Table 1; not re-run here.
          tiny: see the table in README.md.
"""

from ml_collections import ConfigDict

from posenc_jax.config_files import parse_arg

VARIANTS = {
    "bert_a": dict(positions=dict(scheme="learned")),
    "bert_r": dict(positions=dict(scheme="learned+t5")),
    "sinusoidal": dict(positions=dict(scheme="sinusoidal")),
    "rope": dict(positions=dict(scheme="rope")),
    "alibi": dict(positions=dict(scheme="alibi")),
    "t5": dict(positions=dict(scheme="t5")),
    "none": dict(positions=dict(scheme="none")),
}

BASE = dict(model=dict(layers=12, width=768, heads=12, feed_forward_width=3072))
LARGE = dict(model=dict(layers=24, width=1024, heads=16, feed_forward_width=4096))
SMALL = dict(  # our choice, after ELECTRA-small: a higher rate for fewer and shorter rows
    model=dict(layers=12, width=256, heads=4, feed_forward_width=1024, init_std=0.035),  # 0.02 * sqrt(768 / 256)
    optimizer=dict(learning_rate=5e-4),
    train=dict(steps=250_000, batch_size=128),
)
# Our choice: shows in minutes on two cores what a variant is worth. 32 rows * 64 slots = 2,048 tokens a step. Without
# dropout, LayerNorm first, and weights that start 0.1 wide: at 0.02 the first attention logits would be six times
# flatter than at width 768, and the position terms leave that plateau late or never.
TINY = dict(
    model=dict(
        layers=2,
        width=128,
        heads=4,
        feed_forward_width=512,
        norm="pre",
        init_std=0.1,
        dropout=0.0,
        attention_dropout=0.0,
        dtype="float32",
        scan=False,
    ),
    optimizer=dict(learning_rate=3e-3, schedule="cosine", warmup="100 steps", b2=0.98),
    train=dict(steps=1200, batch_size=32, log_every=50, eval_every=200, checkpoint_every=200),
)
SIZES = {"base": BASE, "large": LARGE, "small": SMALL, "tiny": TINY}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    return recipe(arg, VARIANTS, SIZES)


def recipe(arg: str, variants: dict[str, dict], sizes: dict[str, dict], **paper: dict) -> ConfigDict:
    """TUPE's Table 2, which is BERT's recipe without the second task; then what the paper, the size and the variant
    say otherwise, in this order."""
    variant, size, quick = parse_arg(arg, variants, sizes, ("length", "seed"))
    config = ConfigDict()
    config.model = dict(
        norm="post",
        init_std=0.02,
        dropout=0.1,
        attention_dropout=0.1,
        dtype="bfloat16",
    )
    config.mlm = dict(rate=0.15)
    config.optimizer = dict(
        learning_rate=1e-4,
        schedule="linear",
        warmup="1 %",  # 10,000 of 1,000,000
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        weight_decay=0.01,
        decay_norms_and_biases=True,
        clip_norm=1.0,
    )
    config.train = dict(steps=1_000_000, batch_size=256, checkpoint_every=5000)
    for settings in (paper, sizes[size], dict(model=variants[variant])):
        config.update(settings)
    length = quick.get("length", 512)
    config.model.positions.max_length = length
    if "clip" in config.model.positions:  # no farther than the farthest two words
        config.model.positions.clip = min(config.model.positions.clip, max(1, length - 1))
    config.train.seed = quick.get("seed", 0)
    return config
