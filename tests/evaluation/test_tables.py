"""Tables say which metric, split, seeds and aggregation a number is."""

from posenc_jax.evaluation.tables import print_table, score_table, summarise, write_sections


def record(task="CoLA", seed=0, score=0.5, start="step 10 (ab)", notes=()):
    return {
        "task": task, "metric": "matthews", "seed": seed, "score": score, "majority": 0.0, "rows": 1043, "seconds": 2.0,
        "start": start, "epochs": 3, "batch_size": 32, "learning_rate": 3e-4, "data": "x", "notes": list(notes),
    }  # fmt: skip


def test_a_line_is_the_median_over_the_seeds_that_differ_in_nothing_else():
    records = [
        record(seed=2, score=0.1),
        record(seed=0, score=0.9),
        record(seed=1, score=0.2),
        record(start="from scratch"),
    ]
    first, second = summarise(records)
    assert first.scores == (0.9, 0.2, 0.1) and first.cells()[2:4] == ("20.00", "90.00 20.00 10.00")
    assert second.start == "from scratch" and second.cells()[3] == "1 seed"


def test_the_table_names_metric_split_and_aggregation(capsys):
    records = [record(seed=0), record(seed=1, notes=["matthews is set to 0: every prediction is 1"])]
    print_table(records)
    printed = capsys.readouterr().out
    assert "every prediction is 1" in printed
    for text in (printed, score_table({"": records}).markdown()):
        words = " ".join(text.split())
        for part in ("matthews", "dev set", "median", "Majority", "3 epochs x 32, lr 0.0003", "1043"):
            assert part in words


def test_the_lines_of_a_task_stand_together_and_name_their_run():
    table = score_table({"a": [record("CoLA"), record("RTE")], "b": [record("CoLA"), record("RTE")]})
    assert [row[:2] for row in table.rows] == [("a", "CoLA"), ("b", "CoLA"), ("a", "RTE"), ("b", "RTE")]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_report_keeps_what_else_it_says(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("# Mine\n\nBefore.\n\n## Scores\n\nold table\n\n## After\n\nBehind.\n")
    write_sections(path, {"Scores": "new table"})
    write_sections(path, {"Scores": "new table"})
    assert path.read_text() == "# Mine\n\nBefore.\n\n## Scores\n\nnew table\n\n## After\n\nBehind.\n"
