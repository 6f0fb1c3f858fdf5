"""MTH-style, after "Better Pre-Training by Reducing Representation Confusion" (Zhang et al.; Findings of EACL 2023):
masked words, and penalties on words and on attention heads that are alike.

    python -m posenc_jax pretrain --config configs/mth.py:mth,base --data ROWS --workdir RUN

Known is the idea: lower the cosines between last vectors of different words (TCD) and between the attention weights of
different heads (HCD). Pairs, norms, layers and factors are our choice (posenc_jax/model/similarity.py): 0.1 each is the
middle of a sweep over 0.01, 0.1, 1. Report results as "MTH-style". The encoder is DDRP-style, configs/ddrp.py:ddrp.

Variants  mth            both penalties
          tcd, hcd       one of them
          mth_squared    of squared cosines
          mth_centred    of cosines after the mean was taken away
          mlm            neither
Sizes     tiny (minutes on a laptop), small, base, large; others: length=N (clips at 128 or N - 1), seed=N

Expect    no published number to compare with; compare arms with at least three seeds each. A lower cosine of words
          alone proves nothing (a shifted bias lowers it), one of heads comes with sharper attention: look at the
          centred and squared forms and the entropy, which are logged beside them.
"""

from ml_collections import ConfigDict

from configs import ddrp
from posenc_jax.config_files import parse_arg

_BOTH = dict(token_weight=0.1, head_weight=0.1)
VARIANTS = {
    "mth": _BOTH,
    "tcd": dict(token_weight=0.1),
    "hcd": dict(head_weight=0.1),
    "mth_squared": dict(**_BOTH, token_form="squared", head_form="squared"),
    "mth_centred": dict(**_BOTH, token_form="centred", head_form="centred"),
    "mlm": {},
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    variant, *_ = parse_arg(arg, VARIANTS, ddrp.bert.SIZES, ("length", "seed"))
    others = [word for word in arg.split(",") if word.strip() not in VARIANTS]
    config = ddrp.get_config(",".join(["ddrp", *others]))
    config.differentiation = VARIANTS[variant]
    return config
