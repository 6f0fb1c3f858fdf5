"""Tokenizers of Hugging Face models (WordPiece, byte-level BPE) behind the same calls as our own.

The file is a `tokenizer.json` of the `tokenizers` library. Its special tokens have the names of BERT or of RoBERTa
and any ids. A literal "[MASK]" or "<s>" in a text stays the characters it is, as with our own tokenizer.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from posenc_jax.data.rows import TOKENIZER_FILE
from posenc_jax.data.tokenizer import Specials, Tokenizer
from posenc_jax.errors import UserError

JSON_FILE = "tokenizer.json"

NAMES = (("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<pad>", "<unk>", "<s>", "</s>", "<mask>"))
"""Special tokens in the order of `Specials`: BERT's, RoBERTa's."""


class JsonTokenizer:
    """A tokenizer.json. Picklable, so that worker processes can be handed one."""

    def __init__(self, content: bytes, origin: str | Path = "the tokenizer") -> None:
        """Raises `UserError` for bytes that are no tokenizer.json, or one without all five special tokens."""
        try:
            import tokenizers
        except ImportError:
            raise UserError("tokenizers is not installed; pip install 'posenc_jax[hf]'") from None
        try:
            self._model = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        except Exception as error:  # the library raises bare exceptions
            raise UserError(f"{origin} is not a tokenizer.json, or it is damaged ({error})") from error
        self._model.no_truncation()
        self._model.no_padding()
        self._model.encode_special_tokens = True
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.vocab_size: int = max(self._model.get_vocab().values()) + 1
        self.specials = self.pad, self.unk, self.cls, self.sep, self.mask = self._specials(origin)

    def _specials(self, origin: str | Path) -> Specials:
        found = [[self._model.token_to_id(token) for token in names] for names in NAMES]
        for ids in found:
            if None not in ids:
                return Specials(*ids)
        lacking = [name for name, number in zip(NAMES[0], found[0], strict=True) if number is None]
        raise UserError(f"{origin} has no token {lacking[0]}, nor all of {', '.join(NAMES[1])}")

    @classmethod
    def load(cls, path: str | Path) -> "JsonTokenizer":
        """Reads a tokenizer.json. Raises `UserError` if it is missing or not one."""
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise UserError(f"there is no tokenizer {path}") from error
        return cls(content, path)

    def __reduce__(self) -> tuple:
        return JsonTokenizer, (self.content,)

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without [CLS] and [SEP]; never a special id but [UNK]."""
        return self._model.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """`encode` of each text, in one call."""
        return [one.ids for one in self._model.encode_batch(texts, add_special_tokens=False)]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """`encode`, and for each id the characters [start, end) of `text` it stands for."""
        encoded = self._model.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ids are left out but [UNK]."""
        left_out = {*self.specials} - {self.unk}
        kept = [int(number) for number in ids if int(number) not in left_out]
        return self._model.decode(kept, skip_special_tokens=False)

    def id_to_piece(self, number: int) -> str:
        """The piece of an id; in WordPiece "##" at its start marks that it goes on with a word."""
        return self._model.id_to_token(int(number))


AnyTokenizer = Tokenizer | JsonTokenizer


def load_tokenizer(folder: str | Path) -> AnyTokenizer:
    """The tokenizer of a workdir: its tokenizer.model, else its tokenizer.json. Raises `UserError`."""
    path = Path(folder) / JSON_FILE
    return JsonTokenizer.load(path) if path.is_file() else Tokenizer.load(Path(folder) / TOKENIZER_FILE)
