"""What each kind of source gives, counts and refuses."""

import gzip
import json
import subprocess
import sys
from collections import Counter

import pytest
import zstandard

from posenc_jax.data.sources import MAX_TEXT_DOCUMENT, TOO_SHORT, documents, source_identity
from posenc_jax.errors import UsageError, UserError

A, B, C = (f"This is document {name} of this test." for name in "ABC")


def read(source):
    return list(documents(source, Counter()))


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_a_blank_line_ends_a_text_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(f"\n\n{A}\r\n{B}\r\n\r\n \r\n{C}".encode())
    assert read(f"text:{tmp_path / 'a.txt'}") == [f"{A}\n{B}", C]


def test_a_folder_is_searched_in_the_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.txt").write_text(C)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(B.encode()))
    (tmp_path / "a.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(A.encode()))
    (tmp_path / "picture.png").write_bytes(b"\0\0")
    assert read(f"text:{tmp_path}") == [A, B, C]


def test_patterns_are_expanded_and_sorted(tmp_path):
    for name, text in (("2", B), ("1", A), ("x", C)):
        (tmp_path / f"part{name}.jsonl").write_text(lines({"text": text}))
    assert read(f"jsonl:{tmp_path}/part[0-9].jsonl") == [A, B]


def test_jsonl_takes_another_key_and_passes_blank_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({"text": A, "content": B}) + "\n" + lines({"content": C}))
    assert read(f"jsonl:{tmp_path / 'a.jsonl'}#content") == [B, C]


def test_half_a_surrogate_pair_becomes_text_that_can_be_written(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "This is é a document with half \\ud83d a pair."}\n')
    (text,) = read(f"jsonl:{tmp_path / 'a.jsonl'}")
    assert text.encode("utf-8").decode() == "This is é a document with half ? a pair."


def test_several_sources_follow_each_other(tmp_path):
    (tmp_path / "b.txt").write_text(B)
    (tmp_path / "a.jsonl").write_text(lines({"text": A}))
    assert read([f"text:{tmp_path / 'b.txt'}", f"jsonl:{tmp_path / 'a.jsonl'}"]) == [B, A]


def test_documents_come_one_at_a_time(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({"text": A}) + "not JSON\n")
    stream = documents(f"jsonl:{tmp_path / 'a.jsonl'}", Counter())
    assert next(stream) == A
    with pytest.raises(UserError, match="line 2 is not JSON"):
        next(stream)


def test_a_text_without_blank_lines_is_cut_before_it_fills_the_memory(tmp_path):
    line = "word " * 20_000 + "\n"
    (tmp_path / "a.txt").write_text(line * 250)
    sizes = [len(document) for document in read(f"text:{tmp_path / 'a.txt'}")]
    assert len(sizes) == 3 and max(sizes) < MAX_TEXT_DOCUMENT + 3 * len(line)
    assert sum(sizes) == 250 * len(line) - 3


def test_short_documents_are_counted_not_given(tmp_path):
    (tmp_path / "a.txt").write_text(f"One\n\nOnly four words here\n\n{A}\n\n???")
    skipped = Counter()
    assert list(documents(f"text:{tmp_path / 'a.txt'}", skipped)) == [A]
    assert skipped == {TOO_SHORT: 3}


def test_documents_of_one_word_leave_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
    with pytest.raises(UserError, match="leaves no document to read: 3 documents of fewer than 5 words"):
        read(f"text:{tmp_path / 'a.txt'}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("wikipedia", "a source starts with docstrings:, text:, jsonl:, tfds:"),
        ("text:", "names nothing after the colon"),
        ("text", "a source starts with"),
        ("parquet:a.parquet", "a source starts with"),
    ],
)
def test_a_source_that_cannot_be_meant_is_wrong_use(source, message):
    with pytest.raises(UsageError, match=message):
        read(source)


def test_a_bare_path_is_told_what_to_write(tmp_path):
    with pytest.raises(UsageError, match=f"for a file or folder write text:{tmp_path}"):
        read(str(tmp_path))


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no file or folder .*none\.txt"):
        read(f"text:{tmp_path}/none.txt")
    with pytest.raises(UserError, match=r"no file matches .*\*\.jsonl"):
        read(f"jsonl:{tmp_path}/*.jsonl")
    with pytest.raises(UserError, match=r"has no \.txt or \.text file"):
        read(f"text:{tmp_path}")


def test_empty_files_are_refused_where_there_is_nothing_else(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UserError, match=r"a\.txt is empty"):
        read(f"text:{tmp_path / 'a.txt'}")
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(UserError, match="all 2 files"):
        read(f"text:{tmp_path}")
    (tmp_path / "c.txt").write_text(C)
    assert read(f"text:{tmp_path}") == [C]
    (tmp_path / "blank.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match="leaves no document"):
        read(f"jsonl:{tmp_path / 'blank.jsonl'}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "half a li', "line 2 is not JSON"),
        ("[1]", "line 2 is not a JSON object but list"),
        ('{"content": "x", "id": 3}', "line 2 has no key 'text' but 'content', 'id'; name one: jsonl:.*#KEY"),
        ('{"text": 3}', "line 2, key 'text' holds int, not text"),
        ('{"text": null}', "line 2, key 'text' holds NoneType, not text"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)
def test_bad_json_lines_are_refused_by_file_and_line(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({"text": A}) + line + "\n")
    with pytest.raises(UserError, match=rf"a\.jsonl, {message}"):
        read(f"jsonl:{tmp_path / 'a.jsonl'}")


def test_the_identity_of_files_changes_with_them(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text(A)
    before = source_identity(f"text:{file}")
    assert source_identity(f"text:{file}") == before
    file.write_text(A + "!")
    assert source_identity(f"text:{file}") != before


TFDS = """
import sys
import numpy as np
import tensorflow_datasets as tfds

class Tiny(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    MODULE_PATH = "."
    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "number": tfds.features.Scalar(np.int64)})
        return tfds.core.DatasetInfo(builder=self, features=features)
    def _split_generators(self, manager):
        return {"train": self._generate_examples(20), "test": self._generate_examples(3)}
    def _generate_examples(self, count):
        for n in range(count):
            yield n, {"text": f"This is the naïve document number {n}.", "number": n}

Tiny(data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
from collections import Counter
from posenc_jax.data.sources import documents, source_identity
from posenc_jax.errors import UserError
assert len(list(documents("tfds:tiny", Counter()))) == 20
assert len(list(documents("tfds:tiny:1.0.0:train[:50%]#text", Counter()))) == 10
assert sorted(documents("tfds:tiny:test", Counter())) == [f"This is the naïve document number {n}." for n in range(3)]
assert "tiny/1.0.0" in source_identity("tfds:tiny")["tfds:tiny"]
for source in ("tfds:nothing", "tfds:tiny:dev", "tfds:tiny#title", "tfds:tiny#number"):
    try:
        list(documents(source, Counter()))
    except UserError as error:
        print(error)
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
"""


def test_a_tensorflow_dataset_is_read_without_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", TFDS, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    messages = done.stdout.splitlines()[-4:]  # after what TFDS says about preparing
    assert f"there is no dataset 'nothing' in {tmp_path}" in messages[0]
    assert "tfds:tiny:dev cannot be read" in messages[1]
    assert "no feature 'title' but 'text', 'number'" in messages[2]
    assert "feature 'number' holds int, not text" in messages[3]
