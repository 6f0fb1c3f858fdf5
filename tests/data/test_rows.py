"""Records and the table of contents."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.rows import (
    RowsInfo,
    Shard,
    SplitInfo,
    decode_row,
    describe,
    encode_row,
    read_rows_info,
    write_rows_info,
)
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.errors import UserError


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 5), st.data())
def test_decode_gives_back_what_was_encoded(lengths, padding, data):
    tokens = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=sum(lengths), max_size=sum(lengths)))
    row = decode_row(encode_row(tokens, lengths), sum(lengths) + padding)
    assert all(array.dtype == np.int32 and array.shape == (sum(lengths) + padding,) for array in row.values())
    assert row["tokens"].tolist() == tokens + [0] * padding
    assert row["segments"].tolist() == [n for n, k in enumerate(lengths, 1) for _ in range(k)] + [0] * padding
    assert row["positions"].tolist() == [at for k in lengths for at in range(k)] + [0] * padding


def test_lengths_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="do not add up"):
        encode_row([1, 2, 3], [2])


@pytest.mark.parametrize("record", [b"", b"abc", b"\x05\0\0\0", b"\x01\0\0\0\x09\0\0\0\x07\0\0\0"])
def test_a_damaged_record_is_refused(record):
    with pytest.raises(UserError, match="not a packed row"):
        decode_row(record, 8)


def test_a_row_longer_than_asked_for_is_refused():
    with pytest.raises(UserError, match="5 tokens does not fit length 4"):
        decode_row(encode_row([9] * 5, [5]), 4)


@pytest.fixture
def folder(tmp_path):
    model = train_tokenizer(["a few words to train on, and a few more"] * 20, tmp_path / "tokenizer.model", 20)
    for name in ("train-00000.arrayrecord", "validation-00000.arrayrecord"):
        (tmp_path / name).write_bytes(b"rows")
    info = RowsInfo(
        path=tmp_path,
        length=16,
        packing="documents",
        vocab_size=20,
        tokenizer_sha256=model.sha256,
        train=SplitInfo(5, 70, (Shard("train-00000.arrayrecord", 5, 4),)),
        validation=SplitInfo(1, 16, (Shard("validation-00000.arrayrecord", 1, 4),), 2.5),
        statistics={
            "documents": 3, "held_out_documents": 1, "words": 50, "tokens": 86, "fill": 0.9, "unknown_rate": 0.0,
            "skipped": {"documents of one colour": 2}, "words_of_packages": {},
        },
        source="text:here.txt",
    )  # fmt: skip
    write_rows_info(info)
    return info


def test_rows_json_is_read_as_it_was_written(folder):
    assert read_rows_info(folder.path) == folder
    assert folder.shard_paths("train") == [folder.path / "train-00000.arrayrecord"]
    written = json.loads((folder.path / "rows.json").read_text())
    assert written["format"] == 1 and written["validation"]["unigram_entropy"] == 2.5
    assert "unigram_entropy" not in written["train"] and "path" not in written


def test_the_description_names_what_was_skipped_and_why(folder):
    assert ("skipped", "2 documents of one colour") in describe(folder)


def test_a_folder_that_is_missing_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*nowhere.*prepare --out"):
        read_rows_info(tmp_path / "nowhere")


def test_a_folder_without_rows_json_is_unfinished(folder):
    (folder.path / "rows.json").unlink()
    with pytest.raises(UserError, match="did not finish"):
        read_rows_info(folder.path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "train": 3}'])
def test_a_damaged_rows_json_is_refused(folder, content):
    (folder.path / "rows.json").write_text(content)
    with pytest.raises(UserError, match=r"rows\.json is damaged"):
        read_rows_info(folder.path)


def test_rows_of_another_format_are_refused(folder):
    (folder.path / "rows.json").write_text('{"format": 2}')
    with pytest.raises(UserError, match="another version"):
        read_rows_info(folder.path)


@pytest.mark.parametrize("name", ["train-00000.arrayrecord", "tokenizer.model"])
def test_a_missing_file_is_named(folder, name):
    (folder.path / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        read_rows_info(folder.path)


def test_a_shard_of_another_size_is_refused(folder):
    (folder.path / "train-00000.arrayrecord").write_bytes(b"ro")
    with pytest.raises(UserError, match=r"train-00000.arrayrecord is damaged: it has 2 bytes in place of 4"):
        read_rows_info(folder.path)


def test_a_swapped_tokenizer_is_refused(folder):
    train_tokenizer(["quite another text for another tokenizer"] * 20, folder.tokenizer_path, 20)
    with pytest.raises(UserError, match="not the tokenizer these rows were made with"):
        read_rows_info(folder.path)
