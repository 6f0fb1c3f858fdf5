"""BERT as its successors re-trained it: masked words only, learned positions (bert_a) or with T5's bias (bert_r).

    python -m posenc_jax pretrain --config configs/bert.py:bert_a,base --data ROWS --workdir RUN

Variants  bert_a  x = LN(word + position)                            Devlin et al. 2019
          bert_r  the same, and a T5 relative bias in every layer     the baseline of TUPE, Ke et al. 2021
Sizes     tiny (minutes on a laptop), small (ELECTRA's: 12 x 256), base (12 x 768), large (24 x 1024)
Others    length=N (positions the table holds), seed=N, as in configs/bert.py:bert_a,tiny,length=64

Cost      base: 1M steps of 256 x 512 tokens, 6 to 7 days on 8 V100 by the TUPE author's account.
Expect    base, after 1M steps: GLUE dev average 82.96 (bert_a), 83.66 (bert_r) in TUPE's Table 1; not re-run here.
          tiny: see the table in README.md.
"""

from ml_collections import ConfigDict

from posenc_jax.config import parse_arg

VARIANTS = {
    "bert_a": dict(scheme="learned"),
    "bert_r": dict(scheme="learned+t5"),
}

SIZES = {
    "base": dict(layers=12, width=768, heads=12, feed_forward_width=3072),
    "large": dict(layers=24, width=1024, heads=16, feed_forward_width=4096),
    "small": dict(layers=12, width=256, heads=4, feed_forward_width=1024),
    "tiny": dict(layers=2, width=128, heads=4, feed_forward_width=512),
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    return recipe(arg, VARIANTS)


def recipe(arg: str, variants: dict[str, dict]) -> ConfigDict:
    """TUPE's Table 2, which is BERT's recipe without the second task; only the position scheme differs by variant."""
    variant, size, quick = parse_arg(arg, variants, SIZES, ("length", "seed"))
    config = ConfigDict()
    config.model = dict(
        **SIZES[size],
        positions=dict(**variants[variant], max_length=quick.get("length", 512)),
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
    config.train = dict(steps=1_000_000, batch_size=256, seed=quick.get("seed", 0), checkpoint_every=5000)
    if size == "small":
        _small(config)
    if size == "tiny":
        _tiny(config)
    return config


def _small(config: ConfigDict) -> None:
    """Our choice, after ELECTRA-small: a higher rate for fewer and shorter rows; weights as peaked as at width 768."""
    config.model.init_std = 0.035  # 0.02 * sqrt(768 / 256)
    config.optimizer.learning_rate = 5e-4
    config.train.update(steps=250_000, batch_size=128)


def _tiny(config: ConfigDict) -> None:
    """Our choice: shows in minutes on two cores what a position scheme is worth. 32 rows * 64 slots = 2,048 tokens a
    step. Without dropout, LayerNorm first, and weights that start 0.1 wide: at 0.02 the first attention logits would
    be six times flatter than at width 768, and the position terms leave that plateau late or never."""
    config.model.update(norm="pre", init_std=0.1, dropout=0.0, attention_dropout=0.0, dtype="float32", scan=False)
    config.optimizer.update(learning_rate=3e-3, schedule="cosine", warmup="100 steps", b2=0.98)
    config.train.update(steps=1200, batch_size=32, log_every=50, eval_every=200, checkpoint_every=200)
