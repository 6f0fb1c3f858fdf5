"""The tokenizer of a Hugging Face folder, whatever files it lies in, as one tokenizer.json; and the way back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc_jax.data.tokenizer import Specials, Tokenizer
from posenc_jax.data.wordpiece import JSON_FILE, NAMES, AnyTokenizer, JsonTokenizer
from posenc_jax.errors import UserError
from posenc_jax.interop.files import require

SETTINGS_FILE = "tokenizer_config.json"


def find_tokenizer(place: str | Path) -> JsonTokenizer:
    """The tokenizer of a folder, or of one file by its name.

    Read are, the first that is there: tokenizer.json; vocab.txt (WordPiece); vocab.json and merges.txt (byte-level
    BPE). A tokenizer_config.json beside it decides about lower case, accents and Chinese characters, as it does in
    transformers. Raises `UserError` where there is none, or it is damaged.
    """
    place = Path(place)
    folder = place if place.is_dir() else place.parent
    names = (JSON_FILE, "vocab.txt", "vocab.json") if place.is_dir() else (place.name,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise UserError(
            f"{place} has no tokenizer: no tokenizer.json, no vocab.txt, no vocab.json with its merges.txt; name a "
            "folder or file that is one with --tokenizer"
        )
    require("tokenizers")
    settings = _settings(folder / SETTINGS_FILE)
    try:
        if path.suffix == ".txt":
            content = _word_piece(path)
        elif path.name == "vocab.json":
            content = _byte_level(path)
        else:
            content = json.loads(path.read_text("utf-8"))
        _settle(content, settings)
    except UserError:
        raise
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise UserError(f"{path} is damaged or no tokenizer ({error}); download it again") from error
    return JsonTokenizer(json.dumps(content, ensure_ascii=False).encode("utf-8"), path)


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text("utf-8"))
        return settings if isinstance(settings, dict) else {}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); download it again") from error


def _word_piece(path: Path) -> dict[str, Any]:
    """BERT's tokenizer from a list of pieces, one a line; lower-casing unless the settings say otherwise."""
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    pieces = path.read_text("utf-8").split("\n")
    vocab = {piece.rstrip("\r"): number for number, piece in enumerate(pieces) if piece.rstrip("\r")}
    if len(vocab) < sum(bool(piece.rstrip("\r")) for piece in pieces):
        raise UserError(f"{path} holds a piece twice, so that its lines are not its ids; download it again")
    model = Model(models.WordPiece(vocab, unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.decoder = decoders.WordPiece(prefix="##")
    return json.loads(model.to_str())


def _byte_level(path: Path) -> dict[str, Any]:
    """RoBERTa's tokenizer from vocab.json and the merges.txt beside it."""
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, models, pre_tokenizers

    merges = path.with_name("merges.txt")
    if not merges.is_file():
        raise UserError(f"{path.parent} has a vocab.json, but no merges.txt; download it too")
    model = Model(models.BPE.from_file(str(path), str(merges)))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    return json.loads(model.to_str())


def _settle(content: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """No truncation and padding, the special tokens marked as such, and what the settings overrule."""
    from tokenizers import Tokenizer as Model

    content["truncation"] = content["padding"] = None
    normalizer = content.get("normalizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        for ours, theirs in (
            ("lowercase", "do_lower_case"),
            ("strip_accents", "strip_accents"),
            ("handle_chinese_chars", "tokenize_chinese_chars"),
        ):
            if theirs in settings:
                normalizer[ours] = settings[theirs]
    model = Model.from_str(json.dumps(content))
    marked = {token["content"]: token for token in content["added_tokens"]}
    for name in (name for names in NAMES for name in names if model.token_to_id(name) is not None):
        plain = {"single_word": False, "lstrip": name == "<mask>", "rstrip": False, "normalized": False}
        marked.setdefault(name, {"id": model.token_to_id(name), "content": name, **plain})["special"] = True
    content["added_tokens"] = sorted(marked.values(), key=lambda token: token["id"])


# ---- the way back ---------------------------------------------------------------------------------------------------


def tokenizer_files(tokenizer: AnyTokenizer, length: int, types: bool) -> dict[str, str]:
    """Contents of tokenizer.json and tokenizer_config.json, from which `AutoTokenizer` makes the tokenizer.

    `length` is the model's; `types` says whether it tells the texts of a pair apart. Rows come out as fine-tuning
    here makes them, unless the tokenizer came with a form of its own.
    """
    if isinstance(tokenizer, JsonTokenizer):
        content = json.loads(tokenizer.content)
    else:
        content = from_sentencepiece(tokenizer)
    names = {role: tokenizer.id_to_piece(number) for role, number in tokenizer.specials._asdict().items()}
    content["post_processor"] = content.get("post_processor") or _form(tokenizer.specials, names, types)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if types else []), "attention_mask"],
        **{f"{role}_token": name for role, name in names.items()},
    }
    return {
        JSON_FILE: json.dumps(content, ensure_ascii=False),
        SETTINGS_FILE: json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
    }


def _form(specials: Specials, names: Mapping[str, str], types: bool) -> dict[str, Any]:
    """[CLS] a [SEP] b [SEP] with types 0 and 1, or [CLS] a [SEP] [SEP] b [SEP]: `evaluation.batches`."""
    first, second = names["cls"], names["sep"]

    def special(name: str, type_id: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def text(name: str, type_id: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": type_id}}

    one = [special(first), text("A"), special(second)]
    other = [text("B", 1), special(second, 1)] if types else [special(second), text("B"), special(second)]
    ids = {first: specials.cls, second: specials.sep}
    tokens = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ids.items()}
    return {"type": "TemplateProcessing", "single": one, "pair": one + other, "special_tokens": tokens}


def from_sentencepiece(tokenizer: Tokenizer) -> dict[str, Any]:
    """A sentencepiece model of ours as the content of a tokenizer.json, with the same ids.

    Two rare differences remain: the tokenizers library normalises a letter with several marks above it mark by mark,
    and it may choose the other of two segmentations that a unigram model finds equally likely. As everywhere in
    transformers, a literal "[MASK]" in a text is the token, unless `split_special_tokens=True`.
    """
    require("google.protobuf")
    require("tokenizers")
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Model

    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.proto)
    if proto.trainer_spec.model_type == sentencepiece_model_pb2.TrainerSpec.UNIGRAM:
        model = models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], unk_id=tokenizer.unk)
    else:
        vocab = {piece.piece: number for number, piece in enumerate(proto.pieces)}
        model = models.BPE(vocab, _merges(proto.pieces), unk_token=tokenizer.id_to_piece(tokenizer.unk), fuse_unk=True)
    whole = Model(model)
    spaces = normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()
    whole.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), *spaces]
    )
    whole.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    whole.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    content = json.loads(whole.to_str())
    _settle(content, {})
    return content


def _merges(pieces: Any) -> list[tuple[str, str]]:
    """The pairs of pieces that make a piece, in the order of its score: what sentencepiece merges first."""
    ordinary = {
        piece.piece: (-piece.score, number) for number, piece in enumerate(pieces) if piece.type == piece.NORMAL
    }
    pairs = [
        (order, ordinary[piece[:cut]], piece[:cut], piece[cut:])
        for piece, order in ordinary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ordinary and piece[cut:] in ordinary
    ]
    return [(left, right) for *_, left, right in sorted(pairs)]
