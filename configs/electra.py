"""ELECTRA's encoder and recipe (Clark, Luong, Le, Manning; ICLR 2020), trained on masked words.

    python -m posenc_jax pretrain --config configs/electra.py:electra,small --data ROWS --workdir RUN

What is trained here is the full-size encoder on masked words, the official code's `electra_objective=False`, with its
masks (85 % become [MASK], 15 % stay); replaced-token detection is the paper's own objective.

Variants  electra       learned positions
          electra_tupe  TUPE-R in its place (Ke et al. 2021, appendix C; what the networks share is open there)
Sizes     tiny (minutes on a laptop), small (12 x 256), base (12 x 768), large (24 x 1024); others: length=N, seed=N

Expect    base, with replaced-token detection: GLUE dev average 85.38 (electra), 86.07 (electra_tupe) in TUPE's
          Table 4, base; not re-run here.
"""

from ml_collections import ConfigDict

from configs import bert

VARIANTS = {
    "electra": dict(positions=dict(scheme="learned")),
    "electra_tupe": dict(positions=dict(scheme="tupe+t5", untie_cls=True)),
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
    ),
    "large": dict(
        **bert.LARGE,
        mlm=dict(rate=0.25),
        optimizer=dict(learning_rate=2e-4, warmup="10000 steps"),
        train=dict(steps=400_000, batch_size=2048),
    ),
    "tiny": bert.TINY,
}

MODEL = dict(norm_eps=1e-12, token_types=2, init="truncated_normal")
MLM = dict(random_share=0.0, kept_share=0.15)
OPTIMIZER = dict(schedule="linear_product", bias_correction=False, decay_norms_and_biases=False)


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    return bert.recipe(arg, VARIANTS, SIZES, model=MODEL, mlm=MLM, optimizer=OPTIMIZER)
