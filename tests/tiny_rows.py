"""Folders of rows made on the spot, in which the next word follows from the place: quickly learned."""

from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from posenc_jax.data.rows import RowsInfo, Shard, SplitInfo, encode_row, read_rows_info, write_rows_info
from posenc_jax.data.tokenizer import CLS, SEP, Tokenizer, train_tokenizer

LENGTH = 16
WORDS = [f"{a}{b}" for a in "bdfghjklmnprst" for b in ("ab", "ec", "id", "of")]


def write_rows(folder: Path, train: int = 64, validation: int = 16, packing: str = "full_sentences") -> RowsInfo:
    """Row r counts from word r % 20: [CLS] w w+1 ... [SEP], or the same as documents of three tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(200)]
    train_tokenizer(iter(texts), folder / "tokenizer.model", 64, "bpe")
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    splits = {}
    for split, count in (("train", train), ("validation", validation)):
        file = f"{split}-00000.arrayrecord"
        writer = ArrayRecordWriter(str(folder / file), "group_size:1")
        for row in range(count):
            tokens = [CLS, *((5 + (row + i) % 20) for i in range(LENGTH - 2)), SEP]
            lengths = [LENGTH]
            if packing == "documents":
                tokens, lengths = tokens[: LENGTH // 3 * 3], [3] * (LENGTH // 3)
            writer.write(encode_row(tokens, lengths))
        writer.close()
        splits[split] = SplitInfo(
            count, count * LENGTH, (Shard(file, count, (folder / file).stat().st_size),), float(np.log(20))
        )
    info = RowsInfo(
        path=folder, length=LENGTH, packing=packing, vocab_size=tokenizer.vocab_size, statistics={}, source="test",
        tokenizer_sha256=tokenizer.sha256, **splits,
    )  # fmt: skip
    write_rows_info(info)
    return read_rows_info(folder)
