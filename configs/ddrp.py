"""DDRP-style, after "Better Pre-Training by Reducing Representation Confusion" (Zhang et al.; Findings of EACL 2023):
a relative position is a distance and a direction, each a vector, and their product.

    python -m posenc_jax pretrain --config configs/ddrp.py:ddrp,base --data ROWS --workdir RUN

No code of that paper and none of its tables could be had: what is known is the product of two tables that replaces
Shaw's one. The rest is our choice (see posenc_jax/positions/ddrp.py), and so is the recipe, that of the symmetric
attention paper without its token types. Report results as "DDRP-style", not as the paper's.

Variants  ddrp           distance * direction
          ddrp_values    with vectors of their own on the values, too
          ddrp_shared    one pair of tables for all layers
          ddrp_absolute  with learned absolute positions at the input
          distance, direction, sum   control arms: one factor alone, and the two added instead of multiplied
          shaw           Shaw et al. 2018, the object that is decomposed: a vector for each relative position
          shaw_values    with vectors on the values, as Shaw et al. have it
          deberta        He et al. 2021: words and relative positions meet both ways, scale 1 / sqrt(3 d)
          t5, bert_a, none   as in configs/bert.py
Sizes     tiny (minutes on a laptop), small, base, large; others: length=N (clips at 128 or N - 1), seed=N

Expect    no published number to compare with; compare arms with at least three seeds each.
"""

from ml_collections import ConfigDict

from configs import bert

VARIANTS = {
    "ddrp": dict(positions=dict(scheme="ddrp", clip=128)),
    "ddrp_values": dict(positions=dict(scheme="ddrp", clip=128, on_values=True)),
    "ddrp_shared": dict(positions=dict(scheme="ddrp", clip=128, shared_over_layers=True)),
    "ddrp_absolute": dict(positions=dict(scheme="learned+ddrp", clip=128)),
    "distance": dict(positions=dict(scheme="ddrp", clip=128, ddrp_form="distance")),
    "direction": dict(positions=dict(scheme="ddrp", ddrp_form="direction")),
    "sum": dict(positions=dict(scheme="ddrp", clip=128, ddrp_form="sum")),
    "shaw": dict(positions=dict(scheme="shaw", clip=128)),
    "shaw_values": dict(positions=dict(scheme="shaw", clip=128, on_values=True)),
    "deberta": dict(positions=dict(scheme="deberta", clip=128)),
    "t5": bert.VARIANTS["t5"],
    "bert_a": bert.VARIANTS["bert_a"],
    "none": bert.VARIANTS["none"],
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    optimizer = dict(warmup="5 %", eps=1e-12, decay_norms_and_biases=False)
    train = dict(steps=200_000, batch_size=256)
    return bert.recipe(arg, VARIANTS, bert.SIZES, model=dict(norm_eps=1e-12), optimizer=optimizer, train=train)
