"""Questions learned and answered: from files to a record, each run once."""

import json
import shutil

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.data.squad import Answer, Question
from posenc_jax.data.wordpiece import JsonTokenizer
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.squad import run as squad
from posenc_jax.evaluation.squad.answers import Answered, Found
from posenc_jax.evaluation.squad.batches import search_batches, training_batches
from posenc_jax.evaluation.squad.protocols import squad_protocol
from posenc_jax.evaluation.squad.records import read_records
from posenc_jax.evaluation.squad.run import SquadData, answer, fine_tune, load_data, make_job, run_squad, score
from posenc_jax.interop.pretrained import Pretrained
from posenc_jax.parallel.mesh import AXES
from posenc_jax.training.workdir import take_lock
from tests.tiny_workdirs import WORDS, write_workdir

NUMBERS = "one two three four five six seven eight nine ten".split()


def successors(count, seed, impossible=0.0, after=1):
    """A context of six words in any order; the question names one, the answer is the word after it, or itself. A share
    `impossible` of the questions name a word that is not there."""
    rng = np.random.default_rng(seed)
    questions = []
    for number in range(count):
        order = [str(word) for word in rng.permutation(NUMBERS)]
        words, place = order[:6], int(rng.integers(5))
        if rng.random() < impossible:
            questions.append(Question(str(number), order[6], " ".join(words), (), impossible=True))
            continue
        answer = Answer(words[place + after], " ".join(words).index(words[place + after]))
        questions.append(Question(str(number), words[place], " ".join(words), (answer,)))
    return questions


@pytest.fixture(scope="module")
def small():
    """An encoder's settings and a tokenizer whose tokens are words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NUMBERS]
    model = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    settings = ModelConfig(
        layers=2, width=32, heads=2, feed_forward_width=64, vocab_size=len(pieces), token_types=2, dropout=0.0,
        norm="pre", init_std=0.1, positions=PositionConfig(scheme="tupe", max_length=16),
    )  # fmt: skip
    return Pretrained(None, settings, JsonTokenizer(model.to_str().encode()), 16)


ONE_DEVICE = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)


def learn(small, data, head, epochs):
    protocol = squad_protocol("quick", small.model, 16, learning_rate=3e-3, epochs=epochs, batch_size=64, head=head)
    job = make_job(small, data, protocol, ONE_DEVICE)
    return score(data, answer(job, fine_tune(job, None, 0)), protocol)


def test_the_plain_head_learns_to_find_the_word_asked_for(small):
    """The word after it takes this head twice as long."""
    data = SquadData(successors(1600, 0, after=0), successors(200, 1, after=0), "1.1", "", ())
    found = learn(small, data, "plain", 6)
    assert found["exact"] > 80 and found["chance_exact"] < 25


def test_the_joint_head_learns_the_word_after_the_one_asked_for_and_when_there_is_none(small):
    data = SquadData(successors(1600, 0, 0.3), successors(200, 1, 0.3), "2.0", "", ())
    found = learn(small, data, "joint", 10)
    assert found["best_exact"] > 80 > 50 > found["chance_exact"]
    assert found["NoAns_total"] + found["HasAns_total"] == 200
    assert found["best_exact"] >= found["exact"] and found["best_f1"] >= found["f1"]
    assert found["threshold"] == -2.75


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_workdir(tmp_path_factory.mktemp("squad") / "run")


@pytest.fixture
def workdir(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def write_file(path, count, seed, impossible=0):
    rng = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = [str(word) for word in rng.choice(WORDS[2:-1], 40)]
        place = int(rng.integers(39))
        entry = {
            "id": f"{path.stem}-{number}",
            "question": f"what comes after {words[place]} ?",
            "answers": [{"text": words[place + 1], "answer_start": len(" ".join(words[: place + 1])) + 1}],
        }
        if impossible:
            entry["is_impossible"] = number < impossible
            entry["answers"] = [] if entry["is_impossible"] else entry["answers"]
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    path.write_text(json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return write_file(folder / "train.json", 12, 0), write_file(folder / "dev.json", 9, 1)


@pytest.fixture(scope="module")
def files_2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files2")
    return write_file(folder / "train.json", 12, 0, 4), write_file(folder / "dev.json", 9, 1, 3)


SETTINGS = {"epochs": 1, "batch_size": 16}


def test_a_run_writes_scores_answers_and_a_report(workdir, files):
    record = run_squad(workdir, *files, **SETTINGS)
    folder = workdir / "squad"
    assert read_records(folder) == [json.loads(json.dumps(record))]
    assert (record["task"], record["rows"], record["train_rows"], record["head"]) == ("SQuAD 1.1", 9, 12, "joint")
    assert record["dev_windows"] > 9 and record["train_windows"] > 12 and record["length"] == 48
    predictions = json.loads((folder / "predictions.json").read_text())
    nbest = json.loads((folder / "nbest.json").read_text())
    dev = load_data(*files, None, None, None).dev
    assert set(predictions) == set(nbest) == {question.id for question in dev}
    for question in dev:
        assert predictions[question.id] and predictions[question.id] in question.context
        assert nbest[question.id][0]["text"] == predictions[question.id]
        assert sum(entry["probability"] for entry in nbest[question.id]) == pytest.approx(1)
    assert not (folder / "null_odds.json").exists()
    report = (workdir / "report.md").read_text()
    assert "## SQuAD" in report and f"| {record['exact']:.2f} |" in report and "Chance" in report


@pytest.fixture
def stub(monkeypatch):
    """Stands in for training and search, and lists the runs that asked for it; "old" is always the answer."""
    ran = []

    def answer(job, params):
        return [Answered([Found("old", -0.5, -0.5)], float(place)) for place in range(len(job.passages))]

    monkeypatch.setattr(squad, "fine_tune", lambda job, encoder, seed: ran.append((seed, encoder is not None)))
    monkeypatch.setattr(squad, "answer", answer)
    return ran


def test_version_2_has_thresholds_and_odds_that_reproduce_its_scores(workdir, files_2, stub):
    record = run_squad(workdir, *files_2, head="plain", **SETTINGS)
    odds = json.loads((workdir / "squad" / "null_odds.json").read_text())
    predictions = json.loads((workdir / "squad" / "predictions.json").read_text())
    assert record["task"] == "SQuAD 2.0" and record["threshold"] == 0
    assert predictions == {number: "" if value > 0 else "old" for number, value in odds.items()}
    dev = load_data(*files_2, None, None, None).dev
    right = [predictions[q.id] in {a.text for a in q.answers} or (q.impossible and not predictions[q.id]) for q in dev]
    assert record["exact"] == pytest.approx(100 * np.mean(right))
    assert record["chance_exact"] == pytest.approx(100 / 3)
    assert record["best_exact"] >= record["exact"]
    assert "best EM (threshold)" in (workdir / "report.md").read_text()


def test_the_same_command_again_trains_nothing(workdir, files, stub, capsys):
    first = run_squad(workdir, *files, **SETTINGS)
    assert run_squad(workdir, *files, **SETTINGS) == json.loads(json.dumps(first))
    assert stub == [(0, True)]
    assert "this run is done" in capsys.readouterr().out


def test_whatever_changes_a_score_makes_another_run(workdir, files, files_2, stub):
    def runs(*args, **changes):
        before = len(stub)
        run_squad(workdir, *args, **{**SETTINGS, **changes})
        return len(stub) - before

    assert runs(*files) == 1
    for change in (
        {"seed": 1}, {"head": "plain"}, {"epochs": 2}, {"learning_rate": 1e-3}, {"length": 40}, {"stride": 8},
        {"train_rows": 5}, {"dev_rows": 5}, {"from_scratch": True}, {"protocol": "electra"}, {"batch_size": 32},
        {"version": "2.0"},
    ):  # fmt: skip
        assert (change, runs(*files, **change)) == (change, 1)
        assert runs(*files, **change) == 0
    assert runs(*files_2) == 1
    assert runs(*files) == 0
    assert len(read_records(workdir / "squad")) == len(stub) == 14
    assert [encoder for _, encoder in stub].count(False) == 1


def test_rows_are_spaced_over_the_whole_file(files):
    data = load_data(*files, None, 4, 3)
    assert [question.id for question in data.train] == ["train-0", "train-3", "train-6", "train-9"]
    assert [question.id for question in data.dev] == ["dev-0", "dev-3", "dev-6"]


def test_an_interrupted_run_says_what_is_lost_and_leaves_no_record(workdir, files, monkeypatch, capsys):
    def interrupted(state, step, batches, *, on_step, **hooks):
        on_step(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(squad, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_squad(workdir, *files, **SETTINGS)
    assert "stopped at step 1 of" in capsys.readouterr().out
    assert read_records(workdir / "squad") == []


def test_a_run_that_diverges_is_one_sentence_and_leaves_no_record(workdir, files, monkeypatch):
    def diverged(*args, **hooks):
        raise UserError("the loss is not finite at step 3; start in a new workdir")

    monkeypatch.setattr(squad, "fit", diverged)
    with pytest.raises(UserError, match=r"the loss is not finite at step 3; lower --learning-rate \(0.7\)$"):
        run_squad(workdir, *files, learning_rate=0.7, **SETTINGS)
    assert read_records(workdir / "squad") == []


def test_what_is_odd_about_the_files_is_noted(workdir, files, files_2, tmp_path, stub):
    content = json.loads(files[0].read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    moved = tmp_path / "moved.json"
    moved.write_text(json.dumps(content))
    assert any("moved.json: 1 questions" in note for note in run_squad(workdir, moved, files[1], **SETTINGS)["notes"])
    assert any("9 of 9 dev" in note for note in run_squad(workdir, files[1], files[1], **SETTINGS)["notes"])
    assert any("nothing teaches" in note for note in run_squad(workdir, files[0], files_2[1], **SETTINGS)["notes"])


def test_wrong_use_is_refused_before_any_training(workdir, files, files_2, stub, tmp_path):
    for error, message, args, changes in (
        (UsageError, "no protocol 'fast'", files, {"protocol": "fast"}),
        (UsageError, "--length 64 is more than the 48 slots", files, {"length": 64}),
        (UsageError, "16 is the least", files, {"length": 15}),
        (UsageError, "score it as 2.0", files_2, {"version": "1.1"}),
        (UsageError, "not divisible by 8 devices", files, {"batch_size": 12}),
        (UserError, "there is no file", (files[0], tmp_path / "none.json"), {}),
    ):
        with pytest.raises(error, match=message):
            run_squad(workdir, *args, **{**SETTINGS, **changes})
    with pytest.raises(UserError, match="there is no folder"):
        run_squad(tmp_path / "nowhere", *files, **SETTINGS)
    assert stub == []


def test_a_training_file_without_any_placed_answer_is_refused(workdir, files, tmp_path, stub):
    content = json.loads(files[0].read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"][0]["answers"][0]["answer_start"] = 0
        paragraph["context"] = "x " + paragraph["context"]
    path = tmp_path / "lost.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="no training question has an answer at its place"):
        run_squad(workdir, path, files[1], **SETTINGS)


def test_damaged_scores_are_refused_and_kept_and_two_scorers_are_one_too_many(workdir, files, stub):
    run_squad(workdir, *files, **SETTINGS)
    path = workdir / "squad" / "scores.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match="damaged"):
        run_squad(workdir, *files, **SETTINGS)
    assert len(path.read_text()) == 50
    with take_lock(workdir / "squad", ""), pytest.raises(UserError, match="another process is scoring"):
        run_squad(workdir, *files, **SETTINGS)


@pytest.mark.parametrize("types", [False, True])
def test_every_window_comes_once_an_epoch_and_few_shapes_serve_all(small, types):
    data = SquadData(successors(70, 0), successors(45, 1), "1.1", "", ())
    job = make_job(small, data, squad_protocol("quick", small.model, 16, batch_size=16), ONE_DEVICE)
    batches = list(training_batches(job.train, 16, 2, 0, types))
    assert sum(batch["weight"].sum() for batch in batches) == 2 * 70
    assert len({batch["tokens"].shape for batch in batches}) == len(job.train) == 1
    places = np.concatenate([index_B for index_B, _ in search_batches(job.dev, 16, types)])
    assert sorted(places) == list(range(len(job.windows)))
    for batch in batches[:1]:
        assert ("types" in batch) == types
        assert (batch["allowed"] <= batch["segments"]).all() and batch["allowed"][:, 0].all()
        assert (batch["allowed"].sum(1) == 1 + 6 + 1).all()  # [CLS], six words, [SEP]
        rows = np.arange(16)
        assert batch["allowed"][rows, batch["start"]].all() and batch["allowed"][rows, batch["end"]].all()


@pytest.mark.parametrize(
    ("name", "width", "layers", "expected"),
    [
        ("electra", 256, 12, (1e-4, 2, 32, 512, 0.8, "sum")),
        ("electra", 1024, 24, (5e-5, 2, 32, 512, 0.9, "sum")),
        ("convbert", 256, 12, (3e-4, 2, 32, 512, 0.8, "sum")),
        ("convbert", 384, 12, (3e-4, 2, 32, 512, 0.8, "sum")),
        ("convbert", 768, 12, (1e-4, 2, 32, 512, 0.8, "sum")),
        ("paddle", 768, 12, (1e-4, 2, 16, 512, 0.8, "sum")),
        ("quick", 384, 6, (1e-4, 2, 16, 384, 1.0, "mean")),
    ],
)
def test_protocols_are_the_published_ones(name, width, layers, expected):
    model = ModelConfig(layers=layers, width=width, heads=4, vocab_size=30)
    protocol = squad_protocol(name, model, 512)
    fields = ("learning_rate", "epochs", "batch_size", "length", "layer_decay", "loss")
    assert tuple(getattr(protocol, field) for field in fields) == pytest.approx(expected)
    assert (protocol.warmup, protocol.stride, protocol.head) == (0.1, 128, "joint")
    assert squad_protocol(name, model, 100).length == 100


def test_layers_nearer_to_the_words_move_less_under_a_published_protocol(small):
    protocol = squad_protocol("electra", small.model, 16)
    optimizer = protocol.make_optimizer(small.model, 10)
    words, layer, head = (np.ones(shape, np.float32) for shape in ((15, 32), (2, 4), 3))
    params = {"encoder": {"words": words, "layers": {"attention": layer}}, "head": {"kernel": head}}
    state = optimizer.init(params)
    for _ in range(2):  # the first update has rate 0
        updates, state = optimizer.update(jax.tree.map(lambda leaf: 0.1 * leaf, params), state, params)
    first, last = updates["encoder"]["layers"]["attention"][:, 0]
    assert last / updates["head"]["kernel"][0] == pytest.approx(0.8**2, rel=1e-5)
    assert first / last == pytest.approx(0.8, rel=1e-5)
    assert updates["encoder"]["words"][0, 0] / first == pytest.approx(0.8, rel=1e-5)
