"""From text to a folder of rows: the same bytes whatever happens on the way."""

import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from posenc_jax.data import prepare as module
from posenc_jax.data.packing import PACKINGS
from posenc_jax.data.prepare import prepare
from posenc_jax.data.rows import decode_row, read_rows_info
from posenc_jax.data.shards import ShardMaker
from posenc_jax.data.tokenizer import CLS, SEP, UNK, Tokenizer
from posenc_jax.errors import UsageError, UserError
from tests.real_data import DATA

SETTINGS = {"length": 32, "vocab_size": 300, "shard_characters": 20_000}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """300 documents of made-up sentences, about 170,000 characters."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghiklmnoprstuvw", k=draw.randint(2, 7))) for _ in range(300)]
    sentence = lambda: " ".join(draw.choices(words, k=draw.randint(5, 20))).capitalize() + "."  # noqa: E731
    documents = [" ".join(sentence() for _ in range(draw.randint(1, 15))) for _ in range(300)]
    file = tmp_path_factory.mktemp("text") / "text.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*documents, documents[0], "One word"]))
    return f"jsonl:{file}"


@pytest.fixture(scope="module")
def rows(source, tmp_path_factory):
    return prepare(source, tmp_path_factory.mktemp("rows") / "one", workers=1, **SETTINGS)


def hashes(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()}


def records(info, split):
    return [record for file in info.shard_paths(split) for record in ArrayRecordReader(str(file)).read_all()]


def test_the_folder_is_what_rows_json_says(rows):
    assert read_rows_info(rows.path) == rows
    assert rows.vocab_size == Tokenizer.load(rows.tokenizer_path).vocab_size == 300
    for split in ("train", "validation"):
        info = getattr(rows, split)
        decoded = [decode_row(record, 32) for record in records(rows, split)]
        assert len(decoded) == info.rows == sum(shard.rows for shard in info.shards)
        assert sum(int((row["segments"] > 0).sum()) for row in decoded) == info.tokens
        assert [shard.file for shard in info.shards] == [
            f"{split}-{n:05d}.arrayrecord" for n in range(len(info.shards))
        ]
    assert len(rows.train.shards) > 4
    named = {"tokenizer.model", "rows.json", *(shard.file for shard in rows.train.shards + rows.validation.shards)}
    assert {file.name for file in rows.path.iterdir()} == named


def test_statistics_count_what_the_rows_hold(rows, source):
    of = rows.statistics
    assert (of["documents"], of["held_out_documents"]) == (300, 6)
    assert of["skipped"] == {"documents of fewer than 5 words": 1, "exact duplicates of an earlier document": 1}
    assert of["tokens"] == rows.train.tokens + rows.validation.tokens
    assert of["rows"] == rows.train.rows + rows.validation.rows
    assert of["fill"] == pytest.approx(of["tokens"] / (32 * of["rows"]))
    tokens = np.concatenate([decode_row(record, 32)["tokens"] for record in records(rows, "validation")])
    _, counts = np.unique(tokens[tokens > 4], return_counts=True)
    shares = counts / counts.sum()
    assert rows.validation.unigram_entropy == pytest.approx(-(shares * np.log(shares)).sum())
    every = np.concatenate(
        [decode_row(record, 32)["tokens"] for s in ("train", "validation") for record in records(rows, s)]
    )
    assert of["unknown_rate"] == pytest.approx((every == UNK).sum() / ((every > 4) | (every == UNK)).sum())


def test_rows_hold_the_text_and_no_training_text_is_held_out(rows, source):
    tokenizer = Tokenizer.load(rows.tokenizer_path)

    def text(split):
        rows_of = [decode_row(record, 32) for record in records(rows, split)]
        tokens = np.concatenate([row["tokens"][row["segments"] > 0] for row in rows_of])
        return tokenizer.decode([token for token in tokens if token not in (CLS, SEP)])

    train, validation = text("train"), text("validation")
    documents = [json.loads(line)["text"].lower() for line in open(source.removeprefix("jsonl:"))][:300]
    held_out = documents[25::50]
    assert "".join(validation.split()) == "".join("".join(held_out).split())
    kept = [document for document in documents if document not in held_out]
    assert "".join(train.split()) == "".join("".join(kept).split())


def test_the_bytes_do_not_depend_on_the_number_of_workers(rows, source, tmp_path):
    prepare(source, tmp_path / "three", workers=3, **SETTINGS)
    assert hashes(tmp_path / "three") == hashes(rows.path)


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_packing_makes_rows(packing, source, rows, tmp_path):
    info = prepare(source, tmp_path / "out", packing=packing, tokenizer=rows.tokenizer_path, workers=1, length=32)
    row = decode_row(records(info, "train")[0], 32)
    assert info.packing == packing and row["tokens"][0] == CLS and 0.3 < info.statistics["fill"] <= 1


def test_a_given_tokenizer_is_kept(source, rows, tmp_path):
    info = prepare(source, tmp_path / "out", tokenizer=rows.tokenizer_path, vocab_size=7777, workers=1, length=32)
    assert (info.tokenizer_sha256, info.vocab_size) == (rows.tokenizer_sha256, 300)


def test_a_finished_folder_is_left_as_it_is(rows, source, monkeypatch):
    monkeypatch.setattr(module, "scan", None)  # would fail if anything were read again
    before = hashes(rows.path)
    assert prepare(source, rows.path, workers=2, **SETTINGS) == rows
    assert hashes(rows.path) == before


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"length": 64}, r"length 32 -> 64"),
        ({"vocab_size": 200}, r"vocab_size 300 -> 200"),
        ({"packing": "documents"}, r"packing 'full_sentences' -> 'documents'"),
        ({"lowercase": False}, r"lowercase True -> False"),
        ({"tokenizer_kind": "bpe"}, r"tokenizer 'unigram' -> 'bpe'"),
    ],
)
def test_a_folder_of_other_settings_is_refused_with_the_difference(changed, difference, rows, source):
    with pytest.raises(UsageError, match=difference):
        prepare(source, rows.path, **(SETTINGS | changed))


def test_changed_text_is_refused(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Some text of the document number {n}." for n in range(99)))
    settings = {"vocab_size": 40, "length": 16, "workers": 1}
    prepare(f"text:{text}", tmp_path / "out", **settings)
    text.write_text(text.read_text() + "\n\nOne more document is at the end.")
    with pytest.raises(UsageError, match="has changed since"):
        prepare(f"text:{text}", tmp_path / "out", **settings)


def test_an_interrupted_run_goes_on_shard_by_shard(rows, source, tmp_path, monkeypatch):
    made = []
    make = ShardMaker.__call__

    def stop_after_three(self, job):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(job.file.name)
        return make(self, job)

    monkeypatch.setattr(ShardMaker, "__call__", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    with pytest.raises(UserError, match="did not finish"):
        read_rows_info(tmp_path / "out")
    with pytest.raises(UsageError, match="length 32 -> 64"):
        prepare(source, tmp_path / "out", workers=1, **(SETTINGS | {"length": 64}))
    first = list(made)
    monkeypatch.setattr(ShardMaker, "__call__", lambda self, job: (made.append(job.file.name), make(self, job))[1])
    monkeypatch.setattr(module, "scan", None)  # the first pass was finished and is not done again
    prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    assert len(made) == len(set(made)) and made[:3] == first  # none was made twice
    assert hashes(tmp_path / "out") == hashes(rows.path)


def test_a_truncated_shard_is_made_again(rows, source, tmp_path, monkeypatch):
    def stop(info):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "write_rows_info", stop)
        prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    shard = tmp_path / "out" / "train-00001.arrayrecord"
    os.truncate(shard, shard.stat().st_size // 2)
    prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    assert hashes(tmp_path / "out") == hashes(rows.path)


@pytest.mark.parametrize("seconds", [0.7, 1.1, 1.5])
def test_kill_at_any_moment_loses_nothing(seconds, rows, source, tmp_path):
    call = f"prepare({source!r}, {str(tmp_path / 'out')!r}, workers=2, **{SETTINGS!r})"
    code = f"from posenc_jax.data.prepare import prepare\nif __name__ == '__main__': {call}"
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, str(tmp_path / "script.py")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen(command, env=environment)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    subprocess.run(command, env=environment, check=True)
    assert hashes(tmp_path / "out") == hashes(rows.path)


def test_a_full_disk_is_told_in_a_sentence_and_nothing_half_written_counts(rows, source, tmp_path, monkeypatch):
    def full(file, content):
        if file.name == "train-00002.json":
            raise OSError(28, "No space left on device")
        file.write_text(content)

    monkeypatch.setattr("posenc_jax.data.shards.write_whole", full)
    with pytest.raises(UserError, match=r"cannot write .*train-00002\.arrayrecord: No space left on device"):
        prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    monkeypatch.undo()
    prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    assert hashes(tmp_path / "out") == hashes(rows.path)


def test_the_writer_on_a_full_disk_is_told_in_a_sentence(source, tmp_path):
    """/dev/full takes nothing: what ArrayRecord says on a full disk becomes a `UserError`."""
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    (tmp_path / "out" / "unfinished" / "train-00000.arrayrecord.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot write .*train-00000\.arrayrecord: .*No space left"):
        prepare(source, tmp_path / "out", workers=1, **SETTINGS)
    assert not list((tmp_path / "out").glob("*.arrayrecord"))


def test_a_folder_that_takes_nothing_is_named(source, tmp_path):
    with pytest.raises(UserError, match="cannot write /proc/rows"):
        prepare(source, "/proc/rows", workers=1, **SETTINGS)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file"):
        prepare(source, tmp_path / "file", **SETTINGS)
    with pytest.raises(UserError, match="is not empty and was not begun by"):
        prepare(source, tmp_path, **SETTINGS)


def test_two_runs_into_one_folder_are_refused(source, tmp_path):
    (tmp_path / "unfinished").mkdir()
    with open(tmp_path / "unfinished" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another `prepare` is writing"):
            prepare(source, tmp_path, workers=1, **SETTINGS)


def test_an_error_of_a_worker_reaches_the_caller(source, tmp_path):
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    (tmp_path / "out" / "unfinished" / "train-00000.arrayrecord.part").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*train-00000"):
        prepare(source, tmp_path / "out", workers=2, **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 7}, "length=7 is too short"),
        ({"packing": "greedy"}, "packing='greedy' is not one of full_sentences"),
        ({"tokenizer_kind": "word"}, "tokenizer_kind='word'"),
        ({"holdout": 0}, "holdout=0 must be above 0"),
        ({"holdout": 0.9}, "holdout=0.9 must be"),
        ({"workers": 0}, "at least 1"),
        ({"vocab_size": 100_000}, "larger than the text allows"),
    ],
)
def test_settings_that_cannot_be_meant_are_wrong_use(settings, message, source, tmp_path):
    with pytest.raises(UsageError, match=message):
        prepare(source, tmp_path / "out", **({"workers": 1} | settings))


def test_a_failed_vocabulary_does_not_block_the_folder(source, tmp_path):
    """Nothing is made yet: another vocabulary into the same folder is no contradiction."""
    with pytest.raises(UsageError, match="larger than the text allows"):
        prepare(source, tmp_path / "out", vocab_size=100_000, workers=1)
    assert prepare(source, tmp_path / "out", vocab_size=300, workers=1, length=32).vocab_size == 300


def test_literal_specials_in_the_text_stay_text(tmp_path):
    text = "\n\n".join(f"Who writes [MASK] or [CLS] in document {n} means just that." for n in range(60))
    (tmp_path / "text.txt").write_text(text + "\n\nSome [brackets] of their own are here.")
    info = prepare(f"text:{tmp_path / 'text.txt'}", tmp_path / "out", vocab_size=46, length=64, workers=1)
    for record in records(info, "train"):
        tokens = decode_row(record, 64)["tokens"]
        assert 4 not in tokens and (tokens == CLS).sum() == 1


REAL = DATA / "corpus"


@pytest.mark.skipif(not REAL.is_dir(), reason="no corpus")
def test_real_text_fills_its_rows(tmp_path):
    info = prepare(f"jsonl:{REAL}/heldout.jsonl", tmp_path / "out", vocab_size=4096, workers=1)
    assert info.statistics["documents"] == 59 and info.statistics["fill"] > 0.75
    assert info.statistics["unknown_rate"] < 0.005 and 4 < info.validation.unigram_entropy < 8


def test_finished_docstrings_stay_good_when_a_package_is_installed_later(rows, tmp_path, monkeypatch):
    out = shutil.copytree(rows.path, tmp_path / "rows")
    described = json.loads((out / "rows.json").read_text())
    described["source"] = described["settings"]["source"] = "docstrings:"
    (out / "rows.json").write_text(json.dumps(described))
    monkeypatch.setattr(module, "source_identity", lambda source: {"docstrings:numpy": "another version"})
    assert prepare("docstrings:", out, **SETTINGS).train == rows.train
    with pytest.raises(UsageError, match="length 32 -> 64"):
        prepare("docstrings:", out, **{**SETTINGS, "length": 64})
