"""ConvBERT, "Improving BERT with Span-based Dynamic Convolution" (Jiang et al.; NeurIPS 2020): half of the attention
heads give way to convolutions whose window each word makes from the span around it.

    python -m posenc_jax pretrain --config configs/convbert.py:convbert,small --data ROWS --workdir RUN

Trained by replaced-token detection with ELECTRA's recipe; the generator is of the same kind. No value comes from
padding (model.convolution.mask); the published code lets padding leak, and is matched with mask=False.

Variants  convbert        span-based dynamic convolution beside attention, as in the official code
          dynamic         the window from the word alone
          light           one window a head, the same for all words
          separable       a depthwise separable convolution in their place
          no_convolution  the bottleneck alone: half the heads
          attention       all heads attend, no convolution (ELECTRA's encoder)
          convbert_mlm    convbert on masked words alone
Sizes     tiny (minutes on a laptop), small (12 x 256), medium_small (12 x 384, grouped feed-forward), base (12 x 768),
          large (24 x 1024, ours: not in the paper); others: length=N, seed=N

Expect    GLUE test of eight, after 1M steps: 78.9 (small), 79.7 (medium_small), 84.9
          (base) by the paper; not re-run here.
"""

from ml_collections import ConfigDict

from configs import bert, electra

VARIANTS = {
    "convbert": dict(mixer="mixed"),
    "dynamic": dict(mixer="mixed", convolution=dict(kind="dynamic")),
    "light": dict(mixer="mixed", convolution=dict(kind="light")),
    "separable": dict(mixer="mixed", convolution=dict(kind="separable")),
    "no_convolution": dict(mixer="mixed", convolution=dict(kind="none")),
    "attention": dict(mixer="attention"),
    "convbert_mlm": dict(mixer="mixed"),
}


def _size(model: dict, learning_rate: float, batch_size: int, generator_size: float = 0.25) -> dict:
    """1M steps at length 128, for all sizes (convbert_and_electra.md 4)."""
    optimizer = dict(learning_rate=learning_rate, warmup="10000 steps")
    train = dict(steps=1_000_000, batch_size=batch_size)
    return dict(model=model, optimizer=optimizer, train=train, rtd=dict(generator_size=generator_size))


SIZES = {
    "small": _size(electra.SIZES["small"]["model"], 3e-4, 128),
    "medium_small": _size(
        dict(layers=12, width=384, heads=8, feed_forward_width=1536, embedding_width=128, feed_forward_groups=2),
        5e-4,
        128,
    ),
    "base": _size(bert.BASE["model"], 2e-4, 256, 1 / 3),
    "large": _size(bert.LARGE["model"], 2e-4, 256),
    "tiny": electra.SIZES["tiny"],
}


def get_config(arg: str = "") -> ConfigDict:
    """The settings of "VARIANT,SIZE,name=value"."""
    model = dict(**electra.MODEL, positions=dict(scheme="learned"))
    return electra.recipe(arg, VARIANTS, SIZES, model)
