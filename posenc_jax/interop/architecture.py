"""Architecture as a Hugging Face config.json says it, and as our `ModelConfig` does."""

from collections.abc import Mapping
from typing import Any

from posenc_jax.checks import config_from_dict
from posenc_jax.config import Config, ConvolutionConfig, ModelConfig, PositionConfig, config_to_dict
from posenc_jax.errors import UsageError, UserError
from posenc_jax.interop.names import FAMILIES, Family
from posenc_jax.interop.plain import is_plain

DEFAULTS = {
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "initializer_range": 0.02, "head_ratio": 2, "conv_kernel_size": 9, "num_groups": 1,
}  # fmt: skip
"""What Hugging Face takes where its config says nothing."""

ONLY = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}
"""Values that can be held here, where only some can."""


def find_family(settings: Mapping[str, Any], origin: str) -> Family:
    """The family of a config.json, by its `model_type`, or where that is missing by its class. Raises `UserError`."""
    known = {name: family for family in FAMILIES.values() for name in (family.name, *family.spellings)}
    named = settings.get("model_type")
    if named is None:
        for family in FAMILIES.values():
            if any(name.startswith(family.stem) for name in classes(settings)):
                return family
    if not isinstance(named, str) or named not in known:
        raise UserError(f"{origin}: model_type {named!r} is none of {', '.join(known)}")
    return known[named]


def classes(settings: Mapping[str, Any]) -> list[str]:
    """What a config.json says the weights were saved as: ["BertForMaskedLM"]."""
    found = settings.get("architectures")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def to_model(settings: Mapping[str, Any], family: Family, origin: str) -> ModelConfig:
    """Our config of the model. Raises `UserError` with the field that cannot be held here."""
    for name, allowed in ONLY.items():
        if name in settings and settings[name] not in allowed:
            raise UserError(f"{origin}: {name}={settings[name]!r} cannot be held here, only {allowed[0]!r} can")

    def get(name: str) -> Any:
        if name not in settings and name not in DEFAULTS:
            raise UserError(f"{origin} does not say {name}")
        return settings.get(name, DEFAULTS.get(name))

    width, heads, embedding = get("hidden_size"), get("num_attention_heads"), settings.get("embedding_size")
    changes: dict[str, Any] = {}
    if family.name in ("electra", "convbert") and embedding not in (None, width):
        changes["embedding_width"] = embedding
    places, offset = get("max_position_embeddings"), 0
    if family.name == "roberta":  # its places are counted from the padding's id
        pad = settings.get("pad_token_id", 1)
        if not isinstance(pad, int) or not isinstance(places, int) or pad < 0:
            raise UserError(f"{origin}: pad_token_id={pad!r} of {places!r} positions; whole numbers are needed")
        places, offset = places - pad - 1, pad + 1
    if family.name == "convbert":
        _check_heads(heads, get("head_ratio"), origin)
        changes["mixer"] = "mixed"
        changes["convolution"] = ConvolutionConfig(width=get("conv_kernel_size"), head_ratio=2, mask=False)
        changes["feed_forward_groups"] = get("num_groups")
    try:
        model = ModelConfig(
            layers=get("num_hidden_layers"),
            width=width,
            heads=heads,
            feed_forward_width=get("intermediate_size"),
            vocab_size=get("vocab_size"),
            token_types=get("type_vocab_size"),
            positions=PositionConfig(max_length=places, offset=offset),
            norm_eps=get("layer_norm_eps"),
            init_std=get("initializer_range"),
            init="normal" if family.name == "roberta" else "truncated_normal",
            dropout=get("hidden_dropout_prob"),
            attention_dropout=get("attention_probs_dropout_prob"),
            **changes,
        )
        return config_from_dict(config_to_dict(Config(model=model))).model
    except UsageError as error:
        raise UserError(f"{origin} cannot be meant: {error}") from error


def _check_heads(heads: Any, ratio: Any, origin: str) -> None:
    """The sizes of heads agree with the published code's for this ratio and even heads alone (spec 1.5)."""
    if ratio != 2:
        raise UserError(
            f"{origin}: head_ratio={ratio!r} cannot be held here, only 2 can: Hugging Face gives heads another width"
        )
    if not isinstance(heads, int) or heads % 2:
        raise UserError(
            f"{origin}: num_attention_heads={heads!r} cannot be held here with head_ratio=2, only an even number can: "
            "Hugging Face gives heads another width"
        )


def check_exportable(model: ModelConfig) -> None:
    """Raises `UserError` with the field for which no Hugging Face class has a place."""
    mixed, convolution = model.mixer == "mixed", model.convolution
    refusals = {
        f"positions.scheme={model.positions.scheme!r}": model.positions.scheme != "learned",
        f"norm={model.norm!r}": model.norm != "post",
        f"feed_forward_groups={model.feed_forward_groups}": model.feed_forward_groups > 1 and not mixed,
        f"convolution.kind={convolution.kind!r}": mixed and convolution.kind != "span_dynamic",
        f"convolution.head_ratio={convolution.head_ratio}": mixed and convolution.head_ratio != 2,
        f"heads={model.heads}, not even in a mixed layer,": mixed and bool(model.heads % 2),
    }
    for field, refused in refusals.items():
        if refused:
            raise UserError(f"model.{field} has no counterpart in Hugging Face's BERT, RoBERTa, ELECTRA or ConvBERT")


def choose_family(model: ModelConfig, groups: set[str], pad: int | None) -> Family:
    """The family whose class computes what the model does; `pad` is the tokenizer's id of padding."""
    if model.mixer == "mixed":
        return FAMILIES["convbert"]
    if "rtd_head" in groups or model.embedding_width not in (None, model.width):
        return FAMILIES["electra"]
    if model.positions.offset and model.positions.offset - 1 == pad and model.token_types <= 1:
        return FAMILIES["roberta"]
    return FAMILIES["bert"]


def to_settings(model: ModelConfig, family: Family, class_name: str, pad: int) -> dict[str, Any]:
    """config.json for a model that is plain already, so that `AutoModel` builds it."""
    assert is_plain(model), model
    settings: dict[str, Any] = {
        "architectures": [class_name],
        "model_type": family.name,
        "vocab_size": model.vocab_size,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.feed_forward_width,
        "hidden_act": "gelu",
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "max_position_embeddings": model.positions.max_length + model.positions.offset,
        "type_vocab_size": model.token_types,
        "initializer_range": model.init_std,
        "layer_norm_eps": model.norm_eps,
        "pad_token_id": pad,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    if family.name in ("electra", "convbert"):
        settings["embedding_size"] = model.embedding_width or model.width
    if family.name == "convbert":
        convolution = {"head_ratio": 2, "conv_kernel_size": model.convolution.width}
        settings |= {**convolution, "num_groups": model.feed_forward_groups}
    return settings
