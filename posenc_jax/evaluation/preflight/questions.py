"""From a config and what the user says beside it to a question for the compiler."""

import dataclasses

from posenc_jax.config import Config
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.preflight.process import Question
from posenc_jax.parallel.topologies import Topology
from posenc_jax.storage import fetched


def make_question(
    config: Config, topology: Topology, *, vocab_size: int | None, default: int, data: str | None = None
) -> Question:
    """The words are `vocab_size`, else the config's, else those of the rows in `data`, else `default`. The length is
    that of the rows, else data.length, else as many as the position tables hold. Raises `UsageError` on a clash."""
    data = data or config.data.path
    vocab_size = vocab_size or config.model.vocab_size
    length, restarts = config.data.length or config.model.positions.max_length, False
    if data:
        from posenc_jax.data.rows import read_rows_info

        info = read_rows_info(fetched(data))
        if config.data.length not in (None, info.length):
            raise UsageError(
                f"data.length={config.data.length}, but {info.path} holds rows of {info.length} slots; prepare others"
            )
        if vocab_size and vocab_size < info.vocab_size:
            raise UsageError(f"a vocabulary of {vocab_size} is below the tokenizer's {info.vocab_size}")
        vocab_size, length, restarts = vocab_size or info.vocab_size, info.length, info.packing == "documents"
    model = dataclasses.replace(config.model, vocab_size=vocab_size or default)
    return Question(dataclasses.replace(config, model=model), length, topology, restarts)
