"""Models of transformers with random weights, to compare ours with: real heads, widths and groups, two layers."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import jax  # noqa: E402
from flax import linen as nn  # noqa: E402

from posenc_jax.config import ModelConfig  # noqa: E402
from posenc_jax.model.encoder import Encoder  # noqa: E402
from posenc_jax.model.heads import MlmHead, RtdHead  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCAB = 97

_SIZES = {
    "tiny": dict(hidden_size=24, num_attention_heads=4, intermediate_size=40),
    "small": dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    "medium_small": dict(hidden_size=384, num_attention_heads=8, intermediate_size=1536),
    "base": dict(hidden_size=768, num_attention_heads=12, intermediate_size=3072),
}
_GENERATORS = {  # a quarter of the discriminator's width, heads and feed-forward
    "small": dict(hidden_size=64, num_attention_heads=1, intermediate_size=256),
    "base": dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
}


def _size(name: str, **changes) -> dict:
    common = dict(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=64)
    return {**common, **_SIZES[name], **changes}


def _convbert(name: str, **changes):
    return transformers.ConvBertConfig(**_size(name, pad_token_id=0, **changes))


_CONFIGS = {
    "bert_tiny": lambda: transformers.BertConfig(**_size("tiny")),
    "bert_base": lambda: transformers.BertConfig(**_size("base")),
    "roberta_tiny": lambda: transformers.RobertaConfig(
        **_size("tiny", max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5)
    ),
    "roberta_base": lambda: transformers.RobertaConfig(
        **_size("base", max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5)
    ),
    "electra_tiny": lambda: transformers.ElectraConfig(**_size("tiny", embedding_size=16)),
    "electra_small": lambda: transformers.ElectraConfig(**_size("small", embedding_size=128)),
    "electra_base": lambda: transformers.ElectraConfig(**_size("base", embedding_size=768)),
    "electra_small_generator": lambda: transformers.ElectraConfig(
        **_size("small", **_GENERATORS["small"], embedding_size=128)
    ),
    "electra_base_generator": lambda: transformers.ElectraConfig(
        **_size("base", **_GENERATORS["base"], embedding_size=768)
    ),
    "convbert_tiny": lambda: _convbert("tiny", embedding_size=16, num_groups=2, conv_kernel_size=5),
    "convbert_small": lambda: _convbert("small", embedding_size=128),
    "convbert_medium_small": lambda: _convbert("medium_small", embedding_size=128, num_groups=2),
    "convbert_base": lambda: _convbert("base", embedding_size=768),
}


def make(name: str, class_name: str, **changes):
    """The class of transformers with the config of that name, no weight at zero or one, in evaluation mode."""
    torch.manual_seed(0)
    config = _CONFIGS[name]()
    for field, value in changes.items():
        setattr(config, field, value)
    model = getattr(transformers, class_name)(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            gain = 1.0 if "norm.weight" in key.lower() else 0.0
            parameter.copy_(gain + torch.randn(parameter.shape) * (0.2 if parameter.dim() == 1 else 0.05))
    return model.eval()


def draw_params(shapes):
    """Parameters of these shapes with no zero and no one among them."""
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        return rng.normal(jax.tree_util.keystr(path).endswith("['scale']"), 0.3, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def rows(pad: int, types: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Three rows of 23 words, two of them padded at the end."""
    rng = np.random.default_rng(seed)
    mask = np.arange(23)[None] < np.array([[23], [16], [3]])
    return {
        "input_ids": np.where(mask, rng.integers(5, VOCAB, mask.shape), pad),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": rng.integers(0, types, mask.shape),
    }


def their_answers(model, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Hidden states, and logits by our names of the heads."""
    with torch.no_grad():
        out = model(**{name: torch.from_numpy(rows) for name, rows in batch.items()}, output_hidden_states=True)
    answers = {"hidden": out.hidden_states[-1]}
    for ours, theirs in (("head", "prediction_logits"), ("head", "logits")):
        if theirs in out:
            answers[
                "rtd_head" if "Electra" in type(model).__name__ and "PreTraining" in type(model).__name__ else ours
            ] = out[theirs]
    return {name: value.numpy() for name, value in answers.items()}


class _All(nn.Module):
    """The encoder and whichever heads there are parameters for."""

    config: ModelConfig
    heads: tuple[str, ...]

    @nn.compact
    def __call__(self, tokens, segments, types):
        encoder = Encoder(self.config, name="encoder")
        hidden = encoder(tokens, segments, types_BxL=types)
        answers = {"hidden": hidden}
        if "head" in self.heads:
            answers["head"] = MlmHead(self.config, name="head")(hidden, encoder.words)
        if "rtd_head" in self.heads:
            answers["rtd_head"] = RtdHead(self.config, name="rtd_head")(hidden)
        return answers


def our_answers(model: ModelConfig, params, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same by our modules, compiled once a model and shape."""
    heads = tuple(sorted({"head", "rtd_head"} & set(params)))
    used = {name: params[name] for name in ("encoder", *heads)}
    names = ("input_ids", "attention_mask", *(("token_type_ids",) if model.token_types else ()))
    return jax.device_get(_run(_All(model, heads), used, *(batch[name].astype(np.int32) for name in names)))


@functools.partial(jax.jit, static_argnums=0)
def _run(module: nn.Module, params, tokens, segments, types=None):
    return module.apply({"params": params}, tokens, segments, types)


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], batch: dict[str, np.ndarray]) -> None:
    """Within 1e-4 at every word that is not padding, and not because both are small."""
    assert ours.keys() == theirs.keys()
    real = batch["attention_mask"] > 0
    for name, value in ours.items():
        np.testing.assert_allclose(value[real], theirs[name][real], rtol=0, atol=1e-4, err_msg=name)
        assert theirs[name][real].std() > 0.1


def edit_config(folder: Path, **changes) -> None:
    """Changes config.json of a folder; a value of ... takes the key out."""
    path = folder / "config.json"
    settings = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in settings.items() if value is not ...}))
