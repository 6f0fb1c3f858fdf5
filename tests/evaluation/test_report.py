"""Reports over workdirs: finished, unfinished and none; what a number is stands beside it."""

import dataclasses
import json

import pytest

from posenc_jax.config import Config, ModelConfig, PositionConfig, TrainConfig, config_to_dict
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.scores import write_record
from posenc_jax.evaluation.report import COLUMNS, duration, print_report, training_table, write_report
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.evaluation.tables import write_sections
from tests.evaluation.glue.score_records import record
from tests.evaluation.page.test_tasks import STS, WIC, keep

CONFIG = Config(
    model=ModelConfig(vocab_size=50, positions=PositionConfig(scheme="tupe+t5", untie_cls=True)),
    train=TrainConfig(steps=20, batch_size=8),
)


SQUAD = {
    "task": "squad1", "exact": 81.25, "f1": 88.5, "chance_exact": 0.0, "chance_f1": 4.5, "rows": 10, "train_rows": 20,
    "start": "step 20 (ab)", "protocol": "bert", "head": "linear", "epochs": 2, "batch_size": 8, "learning_rate": 3e-5,
    "length": 384, "seed": 3, "seconds": 9.0,
}  # fmt: skip


def make_run(folder, *, seed=0, loss=5.0, finished=True, entropy=6.5, score=None, config=CONFIG):
    """A workdir as `pretrain` and `glue` leave it, without weights."""
    folder.mkdir(parents=True)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
    (folder / "config.json").write_text(json.dumps(config_to_dict(config)))
    (folder / "rows.json").write_text(json.dumps({"validation": {"unigram_entropy": entropy}}))
    events = [
        {"step": 5, "kind": "train", "loss": 6.6, "tokens_per_second": 900.0},
        {"step": 10, "kind": "train", "loss": 6.0, "tokens_per_second": 1100.0},
        {"step": 10, "kind": "validation", "loss": loss + 0.7},
    ]
    if finished:
        events += [
            {"step": 20, "kind": "validation", "loss": loss},
            {"step": 20, "kind": "summary", "parameters": 1234567, "seconds": 151.0, "validation_loss": loss},
        ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if score is not None:
        write_record(folder, record("order", score, column="order", start="step 20 (ab)", notes=["a note"]))
    return folder


def cells(run, row=0):
    return dict(zip(COLUMNS, training_table(read_runs([run])).rows[row], strict=True))


def test_a_finished_run_says_how_far_it_came_beside_the_unigram_entropy(tmp_path):
    assert cells(make_run(tmp_path / "run")) == {
        "run": "run", "variant": "tupe+t5, untie_cls", "parameters": "1,234,567", "steps": "20", "seed": "0",
        "validation loss": "5.000", "unigram entropy": "6.500", "below": "1.500", "tokens/s": "1,000",
        "time": "2 min 31 s",
    }  # fmt: skip


def test_an_unfinished_run_is_shown_as_such_with_what_it_has(tmp_path):
    found = cells(make_run(tmp_path / "run", finished=False))
    assert found["steps"] == "10 of 20, not finished" and found["validation loss"] == "5.700" and found["time"] == "-"
    (tmp_path / "run" / "metrics.jsonl").unlink()
    assert cells(tmp_path / "run")["steps"] == "0 of 20, not finished"


def test_seeds_of_one_config_are_put_together_by_the_median(tmp_path):
    other = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, layers=2))
    losses = {0: 5.0, 2: 5.6, 7: 5.1}
    runs = [make_run(tmp_path / f"r{seed}", seed=seed, loss=loss) for seed, loss in losses.items()]
    runs += [make_run(tmp_path / "other", seed=3, config=other), make_run(tmp_path / "open", seed=4, finished=False)]
    table = training_table(read_runs(runs))
    assert len(table.rows) == 6
    last = dict(zip(COLUMNS, table.rows[-1], strict=True))
    assert (last["run"], last["seed"], last["validation loss"]) == ("3 seeds", "0 2 7", "5.100 (5.000 to 5.600)")
    assert last["below"] == "1.400 (0.900 to 1.500)" and "median" in table.caption


def test_runs_on_different_rows_are_not_held_against_each_other(tmp_path):
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", entropy=6.0, seed=1)])
    assert "different rows" in training_table(runs).caption and len(training_table(runs).rows) == 2
    assert "different rows" not in training_table(runs[:1]).caption


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")]
    assert [run.name for run in read_runs([*runs, runs[0]])] == ["a/run", "b/run"]
    assert [run.name for run in read_runs(runs[:1])] == ["run"]


def test_the_report_holds_both_tables_and_the_picture(tmp_path, capsys):
    runs = read_runs([make_run(tmp_path / "a", score=0.61), make_run(tmp_path / "b", loss=6.2)])
    path = write_report(runs, tmp_path / "out")
    text = path.read_text()
    assert text.index("## Pre-training") < text.index("| a | tupe+t5, untie_cls |") < text.index("## Fine-tuning")
    assert "| a | order | accuracy | 61.00 |" in text and "- a, order seed 0: a note" in text and "dev set" in text
    assert "![loss curves](curves.png)" in text
    assert "![scores](scores.png)" in text
    assert all((tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG") for name in ("curves.png", "scores.png"))
    print_report(runs)
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "6.200" in printed and "61.00" in printed and "Unigram entropy" in printed and "tupe+t5, untie_cls" in printed
    )


def test_scores_of_other_tasks_stand_in_both_and_what_their_commands_wrote_stays(tmp_path, capsys):
    runs = read_runs([make_run(tmp_path / name) for name in ("a", "b")])
    assert "Other tasks" not in write_report(runs, tmp_path / "out").read_text()
    keep(runs[0], "sts", [STS])
    keep(runs[1], "wic", [WIC])
    keep(runs[1], "squad", [SQUAD])
    write_sections(runs[0].workdir / "report.md", {"Sentence similarity": "every layer"})
    text = write_report(runs, runs[0].workdir).read_text()
    print_report(runs)
    printed = capsys.readouterr().out
    assert "every layer" in text
    for said in ("81.25", f"{STS['sets'][0]['mean']['spearman'][1]:.2f}", "always the same sense"):
        assert said in text.partition("## Other tasks")[2] and said in printed


def test_the_same_report_again_changes_nothing_and_keeps_what_else_the_file_says(tmp_path):
    run = make_run(tmp_path / "run", score=0.6)
    path = write_report(read_runs([run]), run)
    write_sections(path, {"Mine": "A remark."})
    before = path.read_text()
    assert write_report(read_runs([run]), run).read_text() == before and "A remark." in before


def test_the_curves_hold_both_losses_and_the_entropy(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: (drawn.append(figure), file.write_bytes(b"")))
    write_report(read_runs([make_run(tmp_path / "run")]), tmp_path)
    lines = drawn[0].axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[6.6, 6.0], [5.7, 5.0], [6.5, 6.5]]
    assert lines[2].get_linestyle() == "--"


def test_a_run_without_a_metric_has_no_curve(tmp_path):
    run = make_run(tmp_path / "run", finished=False)
    (run / "metrics.jsonl").unlink()
    assert "curves" not in write_report(read_runs([run]), run).read_text() and not (run / "curves.png").exists()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (151, "2 min 31 s"), (18120, "5 h 02 min")]
)
def test_durations_are_for_a_person_to_read(seconds, text):
    assert duration(seconds) == text


def test_what_is_no_workdir_is_refused(tmp_path):
    run = make_run(tmp_path / "run")
    for path, said in (
        (run / "config.json", r"config.json is a file; name workdirs"),
        (run / "checkpoints" / "30", r"30 is a checkpoint; name its workdir, .*/run: the newest"),
        ("", r"there is no folder ''"),
    ):
        (run / "checkpoints" / "30").mkdir(parents=True, exist_ok=True)
        with pytest.raises(UserError, match=said):
            read_runs([run, path])
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="is not a workdir"):
        read_runs([tmp_path])
    (run / "rows.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        read_runs([tmp_path / "run"])


def test_an_imported_model_is_called_that_and_no_run(tmp_path):
    trained, imported = make_run(tmp_path / "a"), make_run(tmp_path / "b", finished=False)
    (imported / "rows.json").unlink()
    (imported / "metrics.jsonl").unlink()
    origin = {"model_type": "bert", "source": "hub", "tokenizer_sha256": "0", "length": 64}
    (imported / "imported.json").write_text(json.dumps(origin))
    table = training_table(read_runs([trained, imported]))
    assert table.rows[1][COLUMNS.index("steps")] == "imported bert"
    assert "validated on different rows" not in table.caption
