"""Which sentences an encoder reads for the page."""

import dataclasses
import json

import numpy as np
import pytest

from posenc_jax.config import Config, DataConfig
from posenc_jax.data.tokenizer import CLS, PAD, SEP, UNK
from posenc_jax.errors import UserError
from posenc_jax.evaluation.page import texts
from posenc_jax.evaluation.page.texts import _between_specials, source_of, texts_for
from posenc_jax.evaluation.runs import Run
from tests.tiny_rows import LENGTH, write_rows

RUN = Run("run", None, Config(), [], {}, [])


def test_a_file_is_read_by_sentences_not_too_short_and_not_all_of_one_document(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text(
        "A sentence of six words here. Too short. " + "One more of those sentences. " * 50 + "\n\nThe end of it all.\n"
    )
    found = texts_for(RUN, str(path))
    assert found.origin == f"text:{path}" and found.sentences[0] == "A sentence of six words here."
    assert len(found.sentences) == texts.FROM_ONE_DOCUMENT + 1 and found.sentences[-1] == "The end of it all."
    assert texts_for(RUN, f"text:{path}", count=3).sentences == found.sentences[:3]


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ("my.txt", "text:my.txt"),
        ("my.jsonl.gz", "jsonl:my.jsonl.gz"),
        ("jsonl:x#content", "jsonl:x#content"),
        ("docstrings:", "docstrings:"),
        ("a:b.txt", "text:a:b.txt"),
    ],
)
def test_a_bare_path_is_what_its_name_says(words, source):
    assert source_of(words) == source


def test_jsonl_is_read(tmp_path):
    path = tmp_path / "my.jsonl"
    path.write_text(json.dumps({"text": "Here is one sentence. And here is another."}) + "\n")
    assert texts_for(RUN, str(path)).sentences == ["Here is one sentence.", "And here is another."]


def test_by_default_it_is_the_runs_own_held_out_rows(tmp_path):
    info = write_rows(tmp_path / "rows", validation=4)
    run = dataclasses.replace(RUN, config=Config(data=DataConfig(path=str(info.path))))
    found = texts_for(run)
    assert found.origin == f"held-out rows of {info.path}" and 0 < len(found.sentences) <= 4
    assert len(texts_for(run, count=2).sentences) == 2
    assert info.length == LENGTH


def test_damaged_rows_are_told(tmp_path):
    info = write_rows(tmp_path / "rows", validation=4)
    (info.path / "rows.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        texts_for(dataclasses.replace(RUN, config=Config(data=DataConfig(path=str(info.path)))))


def test_where_the_rows_are_gone_it_is_what_every_machine_has(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "documents", lambda source, skipped: iter([f"Text of the source {source} itself."]))
    run = dataclasses.replace(RUN, config=Config(data=DataConfig(path=str(tmp_path / "gone"))))
    found = texts_for(run)
    assert found.sentences == ["Text of the source docstrings: itself."] and "docstrings:" in found.origin


def test_rows_fall_apart_at_their_special_tokens():
    assert list(_between_specials(np.array([CLS, 9, UNK, SEP, 8, SEP, SEP, CLS, 7, PAD, PAD]))) == [[9, UNK], [8], [7]]


def test_what_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UserError, match=r"there is no file or folder .*gone.txt"):
        texts_for(RUN, str(tmp_path / "gone.txt"))
