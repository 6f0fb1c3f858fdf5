"""A workdir -> a folder from which transformers loads the same model."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from posenc_jax.config import Config, ModelConfig
from posenc_jax.data.wordpiece import load_tokenizer
from posenc_jax.errors import UserError
from posenc_jax.interop.architecture import check_exportable, choose_family, to_settings
from posenc_jax.interop.files import CONFIG, WEIGHTS, whole_folder, write_tensors
from posenc_jax.interop.names import FAMILIES, Family, class_name
from posenc_jax.interop.origin import read_origin
from posenc_jax.interop.plain import to_plain
from posenc_jax.interop.shapes import abstract_params
from posenc_jax.interop.tokenizer_files import tokenizer_files
from posenc_jax.interop.weights import to_tensors
from posenc_jax.objectives.rtd import Rtd, generator_config
from posenc_jax.training.checkpoint import read_params
from posenc_jax.training.workdir import read_config


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written."""

    class_name: str
    """The Hugging Face class of all that is in the file."""
    step: int
    notes: list[str]
    """What computes otherwise there than here, a sentence each."""


def export_hf(workdir: str | Path, out: str | Path, generator: bool = False) -> Exported:
    """Writes config.json, model.safetensors and the tokenizer of the newest checkpoint that can be read.

    Of a run with replaced-token detection that is the discriminator, or with `generator` the generator, given its own
    copy of what it shares. Attention with learned positions becomes BERT (RoBERTa where places are counted from the
    padding's id), with `embedding_width` or a replaced-token head ELECTRA, a mixed model ConvBERT; an imported one what
    it was. Symmetric and pairwise models are folded into plain ones (`plain.py`). Raises `UserError` with the field
    where no class of theirs computes the same, `UsageError` for an `out` that is not empty. All is written, or nothing.
    """
    workdir = Path(workdir)
    if not workdir.is_dir():
        raise UserError(f"there is no folder {workdir}; name a workdir of `pretrain` or `import`")
    config = read_config(workdir)
    tokenizer, origin = load_tokenizer(workdir), read_origin(workdir)
    vocab_size = config.model.vocab_size or tokenizer.vocab_size
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=vocab_size))
    check_exportable(config.model)
    params, step = read_params(workdir)
    model, params = _network(config, params, generator, workdir)
    check_exportable(model)
    _check_params(params, model, workdir)
    family = FAMILIES[origin.model_type] if origin else choose_family(model, set(params), tokenizer.pad)
    with whole_folder(Path(out), "--out") as part:
        name = write_model(part, family, model, params, tokenizer.pad)
        types = model.token_types >= 2
        for file, content in tokenizer_files(tokenizer, model.positions.max_length, types).items():
            (part / file).write_text(content, "utf-8")
    return Exported(name, step, _notes(model))


def write_model(folder: Path, family: Family, model: ModelConfig, params: dict[str, Any], pad: int) -> str:
    """config.json and model.safetensors of a model `check_exportable` let pass; returns its Hugging Face class."""
    plain, params = to_plain(model, params, keep_offset=family.name == "roberta")
    name = class_name(family, set(params))
    settings = to_settings(plain, family, name, pad)
    (folder / CONFIG).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    write_tensors(folder / WEIGHTS, to_tensors(params, family))
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors makes files that only their owner reads
    return name


def _network(config: Config, params: dict[str, Any], generator: bool, workdir: Path) -> tuple[ModelConfig, dict]:
    """The one network to write, of the one or two that the run has."""
    if not generator:
        return config.model, {name: tree for name, tree in params.items() if name != "generator"}
    if "generator" not in params:
        raise UserError(f"the run in {workdir} trained no generator; leave --generator out")
    small = generator_config(config.model, config.rtd)
    return small, Rtd(config.model, config.mlm, config.rtd).generator_params(params)


def _check_params(params: dict[str, Any], model: ModelConfig, workdir: Path) -> None:
    known = ("encoder", "head", "rtd_head", "pooler", "next_sentence")
    if "encoder" not in params or not set(params) <= set(known):
        raise UserError(
            f"the checkpoint in {workdir} holds {', '.join(sorted(params))}; exported are an encoder and its heads: "
            f"{', '.join(known)}"
        )
    wanted = {path: leaf.shape for path, leaf in flatten_dict(abstract_params(model, params), sep="/").items()}
    found = {path: np.shape(leaf) for path, leaf in flatten_dict(params, sep="/").items()}
    for path in sorted(wanted.keys() | found.keys()):
        if wanted.get(path) != found.get(path):
            raise UserError(
                f"the checkpoint in {workdir} is not of the model in its config.json: {path} is "
                f"{found.get(path, 'missing')} and should be {wanted.get(path, 'absent')}; put the run's own back"
            )


def _notes(model: ModelConfig) -> list[str]:
    if model.mixer == "mixed" and model.convolution.mask:
        return [
            "model.convolution.mask=True: Hugging Face lets padding leak into words nearby, so rows with padding give "
            "other numbers there, most of all at their last words"
        ]
    return []
