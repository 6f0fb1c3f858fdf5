"""A Hugging Face model -> a workdir, as if its weights were the first checkpoint of a run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from posenc_jax.config import Config, ModelConfig, config_to_dict
from posenc_jax.data.rows import write_whole
from posenc_jax.data.wordpiece import JSON_FILE
from posenc_jax.errors import UserError
from posenc_jax.interop.architecture import classes, find_family, to_model
from posenc_jax.interop.files import CONFIG, read_json, read_tensors, whole_folder
from posenc_jax.interop.names import WORDS, Family
from posenc_jax.interop.origin import Origin, write_origin
from posenc_jax.interop.tokenizer_files import find_tokenizer
from posenc_jax.interop.weights import to_params
from posenc_jax.training.checkpoint import save_params
from posenc_jax.training.workdir import CONFIG_FILE


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model as it lies in a Hugging Face folder, in our terms."""

    family: Family
    model: ModelConfig
    params: dict[str, Any]
    """float32: "encoder", and of "head", "rtd_head", "pooler", "next_sentence" what there is."""
    pieces: int = 0
    """Pieces of its tokenizer, where that was read, too."""


def read_model(folder: str | Path) -> Imported:
    """Config and weights of a folder that `save_pretrained` wrote, or an older one like it; no tokenizer.

    Raises `UserError`: a missing or damaged file, an architecture that cannot be held here, keys that are missing or
    left over, shapes that are not those of the config.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; download the model and name its folder")
    settings = read_json(folder / CONFIG)
    family = find_family(settings, str(folder / CONFIG))
    model = to_model(settings, family, str(folder / CONFIG))
    tensors, origin = read_tensors(folder)
    params = to_params(tensors, family, model, classes(settings), origin)
    lacking = [key for key, source in family.tied.items() if source == WORDS and key not in tensors]
    if settings.get("tie_word_embeddings") is False and "head" in params and lacking:
        raise UserError(f"{origin} lacks {lacking[0]}, which with tie_word_embeddings=false is a matrix of its own")
    return Imported(family, model, params)


def import_hf(folder: str | Path, workdir: str | Path, tokenizer: str | Path | None = None) -> Imported:
    """Reads a BERT, RoBERTa, ELECTRA or ConvBERT and writes a workdir that fine-tuning and export take.

    `tokenizer` names its folder or file where that is another. The workdir gets config.json, tokenizer.json,
    imported.json and checkpoint 0, or is not made at all. Raises `UserError` as `read_model` does and for a tokenizer
    of another model, `UsageError` for a workdir that is not empty.
    """
    with whole_folder(Path(workdir), "--workdir") as part:
        imported = read_model(folder)
        model, pieces = imported.model, find_tokenizer(tokenizer or folder)
        if pieces.vocab_size > model.vocab_size:
            raise UserError(
                f"the tokenizer of {tokenizer or folder} has {pieces.vocab_size} pieces and the model "
                f"{model.vocab_size} words; they do not belong together"
            )
        if imported.family.name == "roberta" and pieces.pad != model.positions.offset - 1:
            raise UserError(
                f"the tokenizer of {tokenizer or folder} has id {pieces.pad} for padding, and config.json says "
                f"pad_token_id={model.positions.offset - 1}; they do not belong together"
            )
        write_whole(part / CONFIG_FILE, json.dumps(config_to_dict(Config(model=model)), indent=2) + "\n")
        write_whole(part / JSON_FILE, pieces.content)
        save_params(part, imported.params)
        source = str(Path(folder).absolute())
        write_origin(part, Origin(imported.family.name, source, pieces.sha256, model.positions.max_length))
    return dataclasses.replace(imported, pieces=pieces.vocab_size)
