"""Settings: frozen, typed, checked. The only shape a setting has below the commands.

`config_files.load_config` makes one of a config file, `checks.check` says what it may not be. Imports neither JAX nor
Flax.
"""

import dataclasses
import json
from typing import Any, Literal

from posenc_jax.durations import Duration
from posenc_jax.typed import flatten


@dataclasses.dataclass(frozen=True)
class PositionConfig:
    scheme: str = "learned"
    """Parts joined by "+", each a name in `posenc_jax.positions.PARTS`: "learned" is BERT-A, "learned+t5" BERT-R,
    "tupe" TUPE-A, "tupe+t5" TUPE-R, "none" a bag of words. A knob below that no part of the scheme reads is refused
    where it is not at its default."""
    max_length: int = 512
    """Positions that a table of absolute positions holds."""
    offset: int = 0
    """learned: rows of the table before that of the first position (RoBERTa keeps two)."""
    sinusoid_amplitude: float | None = None
    """sinusoidal: height of the waves; None is `init_std`, as wide as the words start."""
    rope_base: float = 10_000.0
    """rope: the longest wave is 2 pi times this many positions."""
    buckets: int = 32
    """t5: buckets, both directions together."""
    max_distance: int = 128
    """t5: distance at which the logarithm reaches the last bucket."""
    clip: int = 128
    """shaw, ddrp, deberta: farther words share the vectors of this distance."""
    on_values: bool = False
    """shaw, ddrp: relative vectors of their own for the values, too."""
    shared_over_layers: bool | None = None
    """t5, shaw, ddrp: one table for all layers or one a layer; None as published (t5 shared, shaw and ddrp not)."""
    untie_cls: bool = False
    """tupe, t5: [CLS] meets the other words through learned scalars of its own, not through its place (TUPE 3.2)."""
    relative_reset: Literal["own_entry", "theta_alone"] = "own_entry"
    """t5: what an untied [CLS] sees of the bias: entries of its own (the published code) or nothing (the paper)."""
    ddrp_form: Literal["product", "distance", "direction", "sum"] = "product"
    """ddrp: how distance and direction make a vector; the last three are control arms."""
    content_to_position: bool = True
    """deberta: the term q_i . K(r_ij)."""
    position_to_content: Literal["as_coded", "as_written", "none"] = "as_coded"
    """deberta: the term k_j . Q(r), its r that of i - j (the public code) or of j - i (the paper)."""
    projections: Literal["own", "words"] = "own"
    """deberta: relative vectors go through projections of their own, or through the words' queries and keys."""


@dataclasses.dataclass(frozen=True)
class CompatibilityConfig:
    name: Literal["dot_product", "symmetric", "pairwise"] = "dot_product"
    """How a query meets a key: q_i . k_j, q_i . q_j, or q_i M_h q_j (Courtois et al. 2024)."""
    matched_init: bool = False
    """dot_product: queries start sqrt(d) times wider, so that the first logits are as peaked as pairwise's."""
    form: Literal["full", "symmetrised", "diagonal"] = "full"
    """pairwise: M as it is (published), (M + M^T) / 2, or a diagonal."""
    start: Literal["normal", "inverse_width", "identity"] = "normal"
    """pairwise: M from N(0, 1) (published), N(0, 1 / d), or I + N(0, init_std^2)."""


@dataclasses.dataclass(frozen=True)
class ConvolutionConfig:
    """The convolution heads of a mixed layer (ConvBERT, Jiang et al. 2020)."""

    kind: Literal["span_dynamic", "dynamic", "light", "separable", "none"] = "span_dynamic"
    """Where a head's window comes from: the words around and the query, the query alone, a free parameter; or a
    depthwise separable convolution in its place; or attention heads alone, as few as in the mixed layer."""
    width: int = 9
    """Slots of the window, odd: the word itself and as many on each side."""
    head_ratio: int = 2
    """`heads` are divided by this: so many attention heads remain, and as many convolution heads beside them."""
    mask: bool = True
    """No value crosses the end of a document or comes from padding. False is the published form, in which padding
    leaks into words nearby; packed rows would leak into each other, too."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    layers: int = 12
    width: int = 768
    heads: int = 12
    feed_forward_width: int = 3072
    feed_forward_groups: int = 1
    """Blocks of channels that the feed-forward works on apart (ConvBERT's grouped linear map)."""
    vocab_size: int | None = None
    """Rows of the embedding table; None takes the tokenizer's."""
    embedding_width: int | None = None
    """Width of the embedding tables; a projection makes it `width`. None is `width`, without a projection."""
    token_types: int = 0
    """Rows of a table that tells the texts of a pair apart (BERT: 2); 0 is no table."""
    positions: PositionConfig = PositionConfig()
    compatibility: CompatibilityConfig = CompatibilityConfig()
    mixer: Literal["attention", "mixed"] = "attention"
    """What mixes the words of a layer: attention heads, or half of them beside convolution heads (ConvBERT)."""
    convolution: ConvolutionConfig = ConvolutionConfig()
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after the residual sum (the papers) or before each block, with one more at the end."""
    norm_eps: float = 1e-5
    init_std: float = 0.02
    """Standard deviation of every weight at the start. Small widths want more: 0.02 * sqrt(768 / width) keeps the
    first attention logits as peaked as they are at width 768 (our choice)."""
    init: Literal["normal", "truncated_normal"] = "normal"
    """Weights from N(0, init_std^2) (TUPE, Hugging Face), or that cut at two deviations (BERT, ELECTRA, ConvBERT)."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """What matrices are multiplied in. Parameters, norms, logits, softmax and losses stay float32 (float64 needs
    JAX_ENABLE_X64=1 and is for checks)."""
    scan: bool = True
    """One compiled layer for all (compile time does not grow with depth); on TPU meshes of several axes always."""
    remat: bool = False
    """Recompute each layer in the backward pass instead of keeping its activations."""
    kernels: Literal["auto", "xla", "pallas"] = "auto"
    """What mixes words: kernels where the device has one that takes the shape, or XLA alone. They change no result
    beyond rounding. pallas: on a CPU, too, interpreted, which is slow and for checks."""

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def attention_heads(self) -> int:
        """Heads that attend: all, or in a mixed layer their share by the head ratio, at least one."""
        return self.heads if self.mixer == "attention" else max(1, self.heads // self.convolution.head_ratio)


@dataclasses.dataclass(frozen=True)
class MlmConfig:
    rate: float = 0.15
    """Share of the candidates that is predicted."""
    random_share: float = 0.1
    """Of those, the share that becomes a random word (BERT 0.1, ELECTRA 0) ..."""
    kept_share: float = 0.1
    """... and the share that stays as it is (BERT 0.1, ELECTRA 0.15); the others become [MASK]."""
    mask_special: bool = False
    """Also predict [CLS] and [SEP], as the TUPE code does. Padding is never predicted."""
    unit: Literal["token", "word", "span"] = "token"
    """What is drawn: a piece of a word, all pieces of a word, or words in a row."""
    span_words: float = 3.8
    """span: mean number of words; how many is geometric."""
    with_replacement: bool = False
    """Draw as ELECTRA's code does: a place may be drawn several times, and then counts as often."""


@dataclasses.dataclass(frozen=True)
class RtdConfig:
    """Replaced-token detection: a generator fills in the masked words, and the model finds which are not the
    original ones (ELECTRA, Clark et al. 2020)."""

    generator: Literal["own", "discriminator", "uniform"] = "own"
    """A network of its own, the discriminator itself but for the heads, or none: every word is equally likely."""
    generator_size: float = 0.25
    """own: width, heads and feed-forward of the generator, as a share of the discriminator's ..."""
    generator_layers: float = 1.0
    """... and its layers."""
    generator_scheme: str | None = None
    """own: position scheme of the generator, with all its knobs at their defaults; None is the discriminator's own."""
    share_embeddings: bool = True
    """own: both read the same tables of words, types and learned positions, and the LayerNorm after them."""
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0


@dataclasses.dataclass(frozen=True)
class DifferentiationConfig:
    """Penalties on what is alike, added to the loss (MTH-style, after Zhang et al. 2023; all but the idea is our
    choice). With replaced-token detection they are the discriminator's."""

    token_weight: float = 0.0
    """Factor of the mean cosine between the last vectors of different words of a text (TCD)."""
    token_form: Literal["plain", "squared", "centred"] = "plain"
    """The cosine as it is, its square, or that of vectors without the text's mean."""
    head_weight: float = 0.0
    """Factor of the mean cosine between the attention weights of different heads (HCD)."""
    head_form: Literal["plain", "squared", "centred"] = "plain"


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    learning_rate: float = 1e-4
    schedule: Literal["linear", "cosine", "constant", "linear_product"] = "linear"
    """How the rate falls after the warm-up. linear_product falls from the first step on, and the warm-up multiplies it
    (ELECTRA, ConvBERT)."""
    warmup: Duration = "1 %"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    bias_correction: bool = True
    """Adam's division by 1 - b^t; ELECTRA and ConvBERT leave it out."""
    weight_decay: float = 0.01
    decay_norms_and_biases: bool = True
    """TUPE decays every parameter; False leaves out biases and LayerNorm gains (BERT, ELECTRA)."""
    clip_norm: float | None = 1.0


@dataclasses.dataclass(frozen=True)
class DataConfig:
    path: str | None = None
    """Folder written by `prepare`."""
    length: int | None = None
    """Slots of a row; None takes the length the rows were packed to, and nothing else can be asked of them."""
    prefetch: int = 8
    """Batches read ahead."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    steps: Duration = 1_000_000
    batch_size: int = 256
    """Rows a step, over all devices and processes."""
    accumulate: int = 1
    """Slices a batch is worked through in; the gradient is that of the whole batch."""
    seed: int = 0
    log_every: Duration = 100
    eval_every: Duration = "10 %"
    eval_rows: int = 512
    """Held-out rows in the validation loss, always the same with the same masks."""
    checkpoint_every: Duration = 1000
    keep_checkpoints: int = 3
    """The newest so many checkpoints stay ..."""
    keep_every: Duration = 0
    """... and for good those whose step is a multiple of this (0: none) ..."""
    keep_best: int = 0
    """... and so many of the lowest validation loss."""
    skipped_updates: int = 5
    """Updates in a row that are left out because their loss or gradient is not finite, before the run stops."""
    watchdog_minutes: float = 30.0
    """A run in which no step ends for so long prints where it hangs and ends, to be started again; 0 lets it wait."""


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    data: int = -1
    """Devices that share the rows of a batch; -1 takes all that the other axes leave."""
    fsdp: int = 1
    tensor: int = 1


@dataclasses.dataclass(frozen=True)
class Config:
    objective: Literal["mlm", "rtd"] = "mlm"
    """Masked words, or replaced-token detection on top of them."""
    model: ModelConfig = ModelConfig()
    """The encoder; with replaced-token detection the discriminator."""
    mlm: MlmConfig = MlmConfig()
    rtd: RtdConfig = RtdConfig()
    differentiation: DifferentiationConfig = DifferentiationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig()


_NEUTRAL = dict(
    model="kernels",
    data="path prefetch",
    train="log_every checkpoint_every keep_checkpoints keep_every keep_best skipped_updates watchdog_minutes",
    mesh="data fsdp tensor",
)
NEUTRAL_KEYS = frozenset(f"{group}.{name}" for group, names in _NEUTRAL.items() for name in names.split())
"""Keys that may differ between a run and its continuation: they change no result beyond rounding."""


def config_to_dict(config: Any) -> dict[str, Any]:
    """Nested dicts of plain values; `config_from_dict` of it is equal to `config`."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def config_diff(old: Config, new: Config) -> list[str]:
    """One line a field that differs and changes results: "model.width: 128 -> 256"."""
    flat_old, flat_new = flatten(config_to_dict(old)), flatten(config_to_dict(new))
    return [
        f"{key}: {flat_old[key]!r} -> {flat_new[key]!r}"
        for key in flat_old
        if flat_old[key] != flat_new[key] and key not in NEUTRAL_KEYS
    ]


def describe(config: Config) -> str:
    """What a run trains: the scheme, then all that is not as in plain BERT: "tupe+t5, untie_cls, pairwise"."""
    extra = config.differentiation
    words = [describe_model(config.model)]
    if config.mlm.unit != "token":
        words.append(f"masks {config.mlm.unit}s whole")
    if config.objective == "rtd":
        words += ["replaced tokens", *_turned(config.rtd)]
    for name, weight, form in (
        ("TCD", extra.token_weight, extra.token_form),
        ("HCD", extra.head_weight, extra.head_form),
    ):
        if weight:
            words.append(f"{weight:g} {name}" + ("" if form == "plain" else f" {form}"))
    return ", ".join(words)


def describe_model(model: ModelConfig) -> str:
    """The encoder of `describe`."""
    words = [model.positions.scheme, *_turned(model.positions, "scheme", "max_length")]
    if model.compatibility != CompatibilityConfig():
        words.append(model.compatibility.name)
    words += _turned(model.compatibility, "name")
    if model.mixer == "mixed":
        words += [model.convolution.kind if model.convolution.kind != "none" else "no convolution"]
        words += _turned(model.convolution, "kind")
    if model.feed_forward_groups > 1:
        words.append(f"{model.feed_forward_groups} groups")
    return ", ".join(words)


def _turned(group: Any, *but: str) -> list[str]:
    """The fields that are not at their defaults."""
    fields = [field for field in dataclasses.fields(group) if field.name not in but]
    turned = {field.name: getattr(group, field.name) for field in fields if getattr(group, field.name) != field.default}
    return [name if value is True else f"{name}={value}" for name, value in turned.items()]
