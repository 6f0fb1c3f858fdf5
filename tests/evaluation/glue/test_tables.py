"""Tables of scores say which metric, split, seeds, rate and aggregation a number is, and what to hold it against."""

from posenc_jax.data.tasks import GLUE_TASKS
from posenc_jax.evaluation.glue.picture import draw_scores
from posenc_jax.evaluation.glue.tables import mean_table, print_scores, rate_table, score_notes, score_table
from tests.evaluation.glue.score_records import record


def cells(records):
    table = score_table({"": records})
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_a_line_holds_the_protocols_number_beside_all_others():
    (line,) = cells([record("CoLA", score, seed=seed) for seed, score in ((2, 0.1), (0, 0.9), (1, 0.2))])
    assert (line["task"], line["metric"], line["score"]) == ("CoLA", "matthews", "20.00")
    assert (line["median"], line["mean"], line["std"], line["best"]) == ("20.00", "40.00", "43.59", "90.00")
    assert line["each run"] == "90.00 20.00 10.00" and line["majority"] == "50.00" and line["rate"] == "5e-05"
    assert line["protocol"] == "default, 3 seeds" and line["dev rows"] == "1,043"


def test_one_run_needs_no_spread():
    (line,) = cells([record("CoLA", 0.5, protocol="quick")])
    assert "median" not in line and line["each run"] == "1 seed" and line["protocol"] == "quick"


def test_training_rows_that_were_not_used_are_told():
    (line,) = cells([record("SST-2", 0.5, protocol="quick", rows=67_349)])
    assert line["protocol"] == "quick, 10,000 of 67,349 rows"


def test_a_mean_of_metrics_is_called_that():
    (line,) = cells([record("MRPC", 0.8, protocol="symmetric")])
    assert line["metric"] == "(accuracy + f1) / 2"


def test_table_and_notes_reach_terminal_and_file(capsys):
    records = [record("CoLA", 0.6), record("CoLA", 0.5, seed=1, notes=["matthews is set to 0: every prediction is 1"])]
    print_scores(records)
    printed = capsys.readouterr().out
    assert "every prediction is 1" in printed and "no average 'TUPE' (default): missing MNLI-m" in printed
    for text in (printed, score_table({"": records}).markdown()):
        words = " ".join(text.split())
        for part in ("matthews", "dev set", "median over the seeds", "Majority", "default", "1,043"):
            assert part in words


def test_the_lines_of_a_task_stand_together_and_name_their_run():
    records = {"a": [record("CoLA", 0.1), record("RTE", 0.2)], "b": [record("CoLA", 0.3), record("RTE", 0.4)]}
    table = score_table(records)
    assert [row[:2] for row in table.rows] == [["a", "CoLA"], ["b", "CoLA"], ["a", "RTE"], ["b", "RTE"]]
    assert all(note.startswith(("a, ", "b, ")) for note in score_notes(records))


def test_a_grid_is_shown_whole_beside_what_is_reported():
    records = [record("RTE", rate * 1e4, rate=rate, protocol="tupe") for rate in (2e-5, 5e-5)]
    table = rate_table({"": records})
    assert [row[2:4] for row in table.rows] == [("2e-05", "20.00"), ("5e-05 (reported)", "50.00")]
    assert rate_table({"": records[:1]}) is None


def test_averages_are_named_with_and_without_wnli():
    scores = {task: [0.5] for task in GLUE_TASKS} | {"MNLI": [0.5, 0.5], "WNLI": [0.9]}
    records = [record(task, *of_columns) for task, of_columns in scores.items()]
    table = mean_table({"": records})
    named = {row[0]: row[1] for row in table.rows}
    assert named["TUPE (the protocol's)"] == "50.00" and named["TUPE + WNLI"] == "54.00"
    assert mean_table({"": records[:4]}) is None


def test_the_picture_holds_every_run_and_the_majority(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: (drawn.append(figure), file.write_bytes(b"")))
    assert draw_scores({"": [record("RTE", 0.4), record("RTE", 0.6, seed=1)]}, tmp_path / "scores.png")
    axes = drawn[0].axes[0]
    heights = [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata())]
    assert heights == [[40.0, 60.0], [50.0], [50.0, 50.0]] and "score" in axes.get_ylabel()
    assert not draw_scores({"": []}, tmp_path / "none.png")
