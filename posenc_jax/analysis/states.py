"""Hidden states of every token in every layer of any encoder: kept, or reduced to their moments in one pass.

Shape letters: B rows of a batch, L slots, D width, E layers counted with the embedding output, N tokens.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

import numpy as np


@dataclasses.dataclass(frozen=True)
class TokenStates:
    """The states of N tokens, in the order of the texts; padding is never among them."""

    states_ExNxD: np.ndarray
    """Float32; 0 is the embedding output."""
    sentence_N: np.ndarray
    """Int32: number of the text, counted from 0 over all that were read."""
    position_N: np.ndarray
    """Int32: slot in the row; 0 is [CLS]."""
    token_N: np.ndarray
    """Int32: id."""
    word_N: np.ndarray
    """Int32: number of the word within its text, which all its subwords share; -1 for [CLS] and [SEP]."""
    special_N: np.ndarray
    """Bool: [CLS] or [SEP]."""
    punctuation_N: np.ndarray
    """Bool: of a word without a letter or digit."""
    words: Mapping[int, tuple[str, ...]]
    """words[sentence][word] is the text of a word; empty where the texts are not known."""
    layers: tuple[str, ...]
    """Names of the E layers, as `interop.pretrained.layer_names` has them."""

    def __post_init__(self) -> None:
        layers, tokens, _ = self.states_ExNxD.shape
        marks = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name[-2:] == "_N"}
        wrong = {name: marks_N.shape for name, marks_N in marks.items() if marks_N.shape != (tokens,)}
        if wrong or len(self.layers) != layers:
            raise ValueError(f"states {self.states_ExNxD.shape} with marks {wrong}, {len(self.layers)} names of layers")

    def __len__(self) -> int:
        return len(self.token_N)

    def take(self, index_N: np.ndarray) -> Self:
        """The tokens at these places, or where a mask is true."""
        marks = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name[-2:] == "_N"}
        taken = {name: marks_N[index_N] for name, marks_N in marks.items()}
        return dataclasses.replace(self, states_ExNxD=self.states_ExNxD[:, index_N], **taken)

    def word_text(self, token: int) -> str:
        """The text of the word that the token at this place is of; "" for a special one."""
        word = int(self.word_N[token])
        return self.words[int(self.sentence_N[token])][word] if word >= 0 else ""
