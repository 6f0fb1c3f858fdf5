"""Symmetric and pairwise attention, "Symmetric Dot-Product Attention for Efficient Training of BERT Language Models"
(Courtois, Ostendorff, Hennig, Rehm; Findings of ACL 2024): keys are made of the queries.

    python -m posenc_jax pretrain --config configs/symmetric.py:pairwise,base --data ROWS --workdir RUN

Variants  pairwise      q_i M_h q_j, M a matrix a head that starts N(0, 1), unconstrained; the paper's headline
          symmetric     q_i . q_j
          bert          q_i . k_j, the paper's baseline
          bert_matched  the same, but queries start sqrt(d) wider: pairwise's first logits without its structure
          pairwise_identity, pairwise_inverse_width   M starts at I + N(0, init_std^2), or N(0, 1 / d)
          pairwise_symmetrised, pairwise_diagonal     (M + M^T) / 2, and a diagonal M
Sizes     tiny (minutes on a laptop), small (4 x 512), base (12 x 768), large (24 x 1024, not in the paper)
Others    length=N, seed=N. All variants export as plain BERT: `python -m posenc_jax export hf`, for norm="post" (tiny
          has LayerNorm first: --config.model.norm=post)

Cost      base: 200,000 steps of 256 x 512 tokens, within a day on 2 H100 by the authors' limit.
Expect    base: validation loss 1.681 (pairwise), 1.788 (symmetric), 1.683 (bert) nats on OSCAR; GLUE dev of nine 79.36,
          74.82, 78.74, one pre-training each (the authors' raw files). Of the final gain 0.62 is within the spread of
          their fine-tunings; pairwise leaves the plateau earlier. Not re-run here.
"""

from ml_collections import ConfigDict

from configs import bert

VARIANTS = {
    "pairwise": dict(compatibility=dict(name="pairwise")),
    "symmetric": dict(compatibility=dict(name="symmetric")),
    "bert": dict(compatibility=dict(name="dot_product")),
    "bert_matched": dict(compatibility=dict(name="dot_product", matched_init=True)),
    "pairwise_identity": dict(compatibility=dict(name="pairwise", start="identity")),
    "pairwise_inverse_width": dict(compatibility=dict(name="pairwise", start="inverse_width")),
    "pairwise_symmetrised": dict(compatibility=dict(name="pairwise", form="symmetrised")),
    "pairwise_diagonal": dict(compatibility=dict(name="pairwise", form="diagonal")),
}

SIZES = {
    "base": bert.BASE,
    "large": bert.LARGE,
    "small": dict(model=dict(layers=4, width=512, heads=8, feed_forward_width=2048)),
    # 0.02 * sqrt(768 / 128): first logits as wide as in the paper, which pairwise is about; with 0.1, four times wider.
    "tiny": {**bert.TINY, "model": {**bert.TINY["model"], "init_std": 0.05}},
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    model = dict(positions=dict(scheme="learned"), norm_eps=1e-12, token_types=2)
    optimizer = dict(warmup="5 %", eps=1e-12, decay_norms_and_biases=False)
    return bert.recipe(arg, VARIANTS, SIZES, model=model, optimizer=optimizer, train=dict(steps=200_000))
