"""A pre-trained encoder out of a workdir, and the tokenizer it was trained with."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from posenc_jax.config import MeshConfig, ModelConfig
from posenc_jax.data.rows import INFO_FILE
from posenc_jax.data.wordpiece import AnyTokenizer, load_tokenizer
from posenc_jax.errors import UserError
from posenc_jax.interop.origin import read_origin
from posenc_jax.layers import Norm
from posenc_jax.model.encoder import all_states
from posenc_jax.objectives.supervised import Supervised
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import restore_params
from posenc_jax.training.state import abstract_state
from posenc_jax.training.workdir import CHECKPOINTS, IMPORTED_FILE, read_config


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """What fine-tuning needs of a run, or of an imported model, but for the weights."""

    workdir: Path
    model: ModelConfig
    """With the vocabulary size of the run."""
    tokenizer: AnyTokenizer
    length: int
    """Slots of the rows it was trained on: places beyond were never trained. Of an imported model, all its places."""


def load_pretrained(workdir: str | Path) -> Pretrained:
    """Reads config, tokenizer and row length of a workdir; no weights.

    Raises `UserError` for a folder that is no workdir, and when the tokenizer is not the one of the training rows.
    """
    workdir = Path(workdir)
    if not workdir.is_dir():
        raise UserError(f"there is no folder {workdir}; `python -m posenc_jax pretrain --workdir {workdir}` makes it")
    model = read_config(workdir).model
    tokenizer = load_tokenizer(workdir)
    source, sha256, length = _trained_on(workdir)
    if tokenizer.sha256 != sha256:
        raise UserError(
            f"tokenizer swapped: that of {workdir} is not the one this model was trained with (sha256 "
            f"{tokenizer.sha256[:12]}, {source} says {sha256[:12]}); put that back"
        )
    model = dataclasses.replace(model, vocab_size=model.vocab_size or tokenizer.vocab_size)
    return Pretrained(workdir, model, tokenizer, length)


def _trained_on(workdir: Path) -> tuple[str, str, int]:
    """Digest of the tokenizer and slots of a row, and the name of the file that says so."""
    if origin := read_origin(workdir):
        return IMPORTED_FILE, origin.tokenizer_sha256, origin.length
    try:
        rows = json.loads((workdir / INFO_FILE).read_text("utf-8"))
        return INFO_FILE, rows["tokenizer_sha256"], int(rows["length"])
    except FileNotFoundError:
        raise UserError(f"{workdir} has no {INFO_FILE}; copy it from the rows this run was trained on") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{workdir / INFO_FILE} is damaged ({error}); copy it from the rows of this run") from error


def restore_encoder(workdir: Path, target: Any, step: int | None = None) -> tuple[Any, str]:
    """Weights of the newest checkpoint, or of that of `step`, into `target`'s shapes and shardings, and what they are
    called.

    The name holds the step and the weights' own digest, so that scores of one encoder are not taken for another's.
    """
    params, step = restore_params(workdir, {"encoder": target}, step=step)
    encoder = params["encoder"]
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(encoder):
        digest.update(np.asarray(leaf).tobytes())
    return encoder, f"step {step} ({digest.hexdigest()[:8]})"


@dataclasses.dataclass(frozen=True)
class FrozenEncoder:
    """An encoder with its weights on the devices."""

    pretrained: Pretrained
    params: Any
    mesh: Mesh
    name: str
    """Step and digest of the weights."""


def load_encoder(path: str | Path) -> FrozenEncoder:
    """The encoder of a workdir's newest checkpoint, or of one, WORKDIR/checkpoints/STEP.

    Raises `UserError` as `load_pretrained` does, and where there is no such checkpoint.
    """
    workdir, step = split_checkpoint(path)
    pretrained = load_pretrained(workdir)
    mesh = make_mesh(MeshConfig())
    target = abstract_state(Supervised(pretrained.model, 1), optax.identity(), mesh).params["encoder"]
    params, name = restore_encoder(pretrained.workdir, target, step)
    return FrozenEncoder(pretrained, params, mesh, name)


def split_checkpoint(path: str | Path) -> tuple[Path, int | None]:
    """WORKDIR/checkpoints/STEP -> workdir and step; any other path is a workdir, and the step None, the newest."""
    path = Path(path)
    if path.parent.name == CHECKPOINTS and path.name.isdigit():
        return path.parent.parent, int(path.name)
    return path, None


def layer_names(model: ModelConfig) -> tuple[str, ...]:
    """ "0" is the input of the first layer, "1" what the first puts out, and so on. With LayerNorm before the blocks
    ("pre") "last" is the sum after the last layer once normed, the encoder's own output; else that is layer n."""
    return (*map(str, range(model.layers + 1)), *(("last",) if model.norm == "pre" else ()))


def layer_states(model: ModelConfig, params: Any, tokens_BxL: jax.Array, segments_BxL: jax.Array) -> jax.Array:
    """[E, B, L, D]: the states of the layers in `layer_names`."""
    states_ExBxLxD = all_states(model, params, tokens_BxL, segments_BxL)
    if model.norm != "pre":
        return states_ExBxLxD
    final_norm = Norm(model, states_ExBxLxD.dtype)
    last_BxLxD = final_norm.apply({"params": params["final_norm"]}, states_ExBxLxD[-1])
    return jnp.concatenate([states_ExBxLxD, last_BxLxD[None]])
