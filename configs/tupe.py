"""TUPE, "Rethinking Positional Encoding in Language Pre-training" (Ke, He, Liu; ICLR 2021): words and positions
correlate apart, each through its own projections, and [CLS] is freed from its place.

    python -m posenc_jax pretrain --config configs/tupe.py:tupe_r,base --data ROWS --workdir RUN

Variants  tupe_r          eq. 11: the positional correlation plus T5's bias, both reset at [CLS] as in the code
          tupe_a          eq. 10: the positional correlation alone
          tupe_a_tie_cls  tupe_a without the reset of [CLS]
          bert_ad         BERT-A^d of section 4.3: positions projected apart, all four correlations kept
          bert_a, bert_r  the paper's baselines, as in configs/bert.py
Sizes     tiny (minutes on a laptop), small, base, large; others: length=N, seed=N

[CLS] and [SEP] are never predicted here; the published code has them: --config.mlm.mask_special=true
The paper's other form of the reset: --config.model.positions.relative_reset=theta_alone
Cost      base: 1M steps of 256 x 512 tokens, 6 to 7 days on 8 V100 by the author's account.
Expect    base, after 1M steps: GLUE dev average 85.04 (tupe_r), 84.47 (tupe_a), 83.81 (tupe_a_tie_cls), 83.64 (bert_ad)
          against 82.96 (bert_a) and 83.66 (bert_r) in the paper's Table 1; not re-run here. tiny: see README.md.
"""

from ml_collections import ConfigDict

from configs import bert

VARIANTS = {
    "tupe_r": dict(positions=dict(scheme="tupe+t5", untie_cls=True)),
    "tupe_a": dict(positions=dict(scheme="tupe", untie_cls=True)),
    "tupe_a_tie_cls": dict(positions=dict(scheme="tupe", untie_cls=False)),
    "bert_ad": dict(positions=dict(scheme="bert_ad")),
    "bert_a": bert.VARIANTS["bert_a"],
    "bert_r": bert.VARIANTS["bert_r"],
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    return bert.recipe(arg, VARIANTS, bert.SIZES)
