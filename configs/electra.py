"""ELECTRA (Clark, Luong, Le, Manning; ICLR 2020): replaced-token detection.

    python -m posenc_jax pretrain --config configs/electra.py:electra,small --data ROWS --workdir RUN

A generator, a quarter or a third as wide, fills in masked words (85 % become [MASK], 15 % stay), and the encoder finds
which words are not the original ones. Both share the tables of the embeddings.

Variants  electra       learned positions
          electra_tupe  TUPE-R in its place, in both networks (Ke et al. 2021, appendix C; what they share of it is open
                        there: here the words alone, each network has position tables of its own)
          electra_mlm   masked words alone, by the full-size encoder: the official code's `electra_objective=False`
Sizes     tiny (minutes on a laptop), small (12 x 256), base (12 x 768), large (24 x 1024); others: length=N, seed=N

Expect    base: GLUE dev average 85.38 (electra), 86.07 (electra_tupe) in TUPE's
          Table 4, base; not re-run here.
"""

from ml_collections import ConfigDict

from configs import bert
from posenc_jax.config_files import parse_arg

VARIANTS = {
    "electra": dict(positions=dict(scheme="learned")),
    "electra_tupe": dict(positions=dict(scheme="tupe+t5", untie_cls=True)),
    "electra_mlm": dict(positions=dict(scheme="learned")),
}

SIZES = {
    "small": dict(
        model=dict(layers=12, width=256, heads=4, feed_forward_width=1024, embedding_width=128),
        optimizer=dict(learning_rate=5e-4, warmup="10000 steps"),
        train=dict(steps=1_000_000, batch_size=128),
    ),
    "base": dict(
        **bert.BASE,
        optimizer=dict(learning_rate=2e-4, warmup="10000 steps"),
        train=dict(steps=766_000, batch_size=256),
        rtd=dict(generator_size=1 / 3),
    ),
    "large": dict(
        **bert.LARGE,
        mlm=dict(rate=0.25),
        optimizer=dict(learning_rate=2e-4, warmup="10000 steps"),
        train=dict(steps=400_000, batch_size=2048),
    ),
    # Our choice: a generator so weak that a tiny encoder can catch it. One a quarter as wide guesses as well as the
    # encoder itself does after as many steps, and what is as likely as the original cannot be told from it.
    "tiny": dict(**bert.TINY, rtd=dict(generator_size=0.125, generator_layers=0.5)),
}

MODEL = dict(norm_eps=1e-12, token_types=2, init="truncated_normal")
RTD = dict(generator_size=0.25, generator_weight=1.0, discriminator_weight=50.0)
MLM = dict(random_share=0.0, kept_share=0.15)
OPTIMIZER = dict(schedule="linear_product", bias_correction=False, decay_norms_and_biases=False)


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    return recipe(arg, VARIANTS, SIZES, MODEL)


def recipe(arg: str, variants: dict[str, dict], sizes: dict[str, dict], model: dict) -> ConfigDict:
    """ELECTRA's settings around an encoder; a variant that ends in "_mlm" trains on masked words alone."""
    config = bert.recipe(arg, variants, sizes, objective="rtd", model=model, mlm=MLM, rtd=RTD, optimizer=OPTIMIZER)
    variant, *_ = parse_arg(arg, variants, sizes, ("length", "seed"))
    if variant.endswith("_mlm"):
        config.objective = "mlm"
        del config.rtd
    return config
