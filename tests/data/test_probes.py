"""Probe tasks: what may not tell the answer does not tell it."""

import collections
import itertools
import random

import numpy as np
import pytest

from posenc_jax.data.probes import SHORTEST, next_pairs, order_rows, write_probes
from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS
from posenc_jax.errors import UserError

WORDS = "river stone quiet garden window yellow under seldom paper music winter apple slowly bread green house".split()


def sentence(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randrange(SHORTEST, 14))]
    return " ".join(words).capitalize() + rng.choice(".!?")


def text(documents: int, seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [[sentence(rng) for _ in range(rng.randrange(2, 20))] for _ in range(documents)]


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    out = tmp_path_factory.mktemp("probes")
    documents = text(400)
    written = write_probes(documents, out, rows=1200, dev_rows=240, seed=1)
    splits = {(task, split): load_split(out, TASKS[task], split) for task in written for split in ("train", "dev")}
    return documents, written, splits


def test_files_are_balanced_and_as_long_as_asked_for(probes):
    _, written, splits = probes
    assert written == {task: {"train": 1200, "dev": 240} for task in ("order", "next")}
    for (task, split), examples in splits.items():
        assert len(examples) == written[task][split]
        assert examples.labels.mean() == 0.5


def test_order_keeps_the_bag_of_words_and_changes_the_order(probes):
    _, _, splits = probes
    for split in ("train", "dev"):
        examples = splits["order", split]
        versions = collections.defaultdict(list)
        for sentence, label in zip(examples.texts_a, examples.labels, strict=True):
            versions[tuple(sorted(sentence.split()))].append((label, sentence))
        for same_words in versions.values():
            assert {label for label, _ in same_words} == {0, 1} and len(same_words) % 2 == 0
        assert len(set(examples.texts_a)) == len(examples)


def test_a_bag_of_words_is_right_exactly_half_the_time(probes):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    train, dev = probes[2]["order", "train"], probes[2]["order", "dev"]
    words = CountVectorizer().fit(train.texts_a)
    model = LogisticRegression(C=100).fit(words.transform(train.texts_a), train.labels)
    assert model.score(words.transform(dev.texts_a), dev.labels) == 0.5


@pytest.mark.parametrize("seed", range(50))
def test_capitals_and_stops_stay_where_they_were(seed):
    original = sentence(random.Random(seed))
    for row in order_rows(original, seed):
        assert row[0].split()[0] == original.split()[0] and row[0].split()[-1] == original.split()[-1]
        moved = [a for a, b in zip(row[0].split(), original.split(), strict=True) if a != b]
        assert len(moved) == (0 if row[1] == "original" else 2)
        assert all(word.isalpha() and word.islower() for word in moved)


@pytest.mark.parametrize(
    "text", ["", "Two words.", "The the the the the the.", "A, b, c, d, e, f, g.", "The 1 a 2 b 3 c 4.", "w " * 99]
)
def test_a_sentence_with_nothing_to_exchange_gives_no_rows(text):
    assert order_rows(text, 0) == []


def test_next_is_true_of_the_text_and_elsewhere_is_not(probes):
    documents, _, splits = probes
    follows = {(a, b) for document in documents for a, b in itertools.pairwise(document)}
    for split in ("train", "dev"):
        examples = splits["next", split]
        for a, b, label in zip(examples.texts_a, examples.texts_b, examples.labels, strict=True):
            assert ((a, b) in follows) == bool(label)


@pytest.mark.parametrize("half", ["texts_a", "texts_b"])
def test_one_half_of_a_pair_tells_nothing(probes, half):
    examples = probes[2]["next", "train"]
    labels = collections.defaultdict(list)
    for sentence, label in zip(getattr(examples, half), examples.labels, strict=True):
        labels[sentence].append(label)
    assert all(np.mean(seen) == 0.5 for seen in labels.values())


def test_train_and_dev_share_no_document_and_no_sentence(tmp_path):
    shared = "This very sentence stands in every document."
    documents = [[shared, *document] for document in text(100)]
    write_probes(documents, tmp_path, rows=4000, dev_rows=400)
    home = {sentence: number for number, document in enumerate(documents) for sentence in document}
    for task in ("order", "next"):
        seen = {}
        for split in ("train", "dev"):
            examples = load_split(tmp_path, TASKS[task], split)
            kept = [sentence for sentence in examples.texts_a if sentence in home]
            seen[split] = {home[sentence] for sentence in kept if sentence != shared}, set(kept)
        assert not seen["train"][0] & seen["dev"][0] and not seen["train"][1] & seen["dev"][1]


def test_dev_asks_first_about_documents_that_pretraining_holds_out(tmp_path):
    from posenc_jax.data.plan import VALIDATION, _roles

    documents = text(400)
    roles = _roles(np.arange(400).astype("<u8"), 0.02)
    held_out = {sentence for number in np.flatnonzero(roles == VALIDATION) for sentence in documents[number]}
    write_probes(documents, tmp_path, rows=400, dev_rows=40)
    texts = load_split(tmp_path, TASKS["order"], "dev").texts_a
    assert sum(sentence in held_out for sentence in texts) == 20  # the others are their exchanged versions


def test_a_sentence_that_occurs_often_is_asked_about_once(tmp_path):
    documents = [["Every module begins with this sentence here.", *document] for document in text(60)]
    write_probes(documents, tmp_path, rows=4000, dev_rows=400)
    for split in ("train", "dev"):
        texts = load_split(tmp_path, TASKS["order"], split).texts_a
        assert len(set(texts)) == len(texts)


def test_the_seed_decides_and_nothing_else(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_probes(text(40), tmp_path / name, rows=100, dev_rows=20, seed=seed)
    read = {name: (tmp_path / name / "order" / "train.tsv").read_bytes() for name in "abc"}
    assert read["a"] == read["b"] != read["c"]


def test_tabs_and_line_ends_inside_a_sentence_do_not_break_the_file(tmp_path):
    documents = [[sentence.replace(" ", "\t\n ", 1) for sentence in document] for document in text(40)]
    write_probes(documents, tmp_path, rows=100, dev_rows=20)
    assert len(load_split(tmp_path, TASKS["next"], "train")) == 100


def test_text_without_sentences_is_refused(tmp_path):
    with pytest.raises(UserError, match="too few sentences for the train rows of the order probe"):
        write_probes([["one"], ["two"]], tmp_path)


def test_pairs_use_a_sentence_once():
    document = [f"Sentence number {word} of this text." for word in WORDS]
    used = [sentence for pair in next_pairs(document, 3) for sentence in pair]
    assert len(used) == len(set(used)) and len(used) >= 14
