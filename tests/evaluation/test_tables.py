"""Tables for files: what else a report says stays."""

from posenc_jax.evaluation.tables import Table, write_sections


def test_a_cell_with_a_bar_stays_one_cell():
    text = Table("Caption.", ("a", "n"), [("x|y", "1")], numbers=("n",)).markdown()
    assert text == "Caption.\n\n| a | n |\n| --- | ---: |\n| x\\|y | 1 |"


def test_the_report_keeps_what_else_it_says(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("# Mine\n\nBefore.\n\n## Scores\n\nold table\n\n## After\n\nBehind.\n")
    write_sections(path, {"Scores": "new table"})
    write_sections(path, {"Scores": "new table"})
    assert path.read_text() == "# Mine\n\nBefore.\n\n## Scores\n\nnew table\n\n## After\n\nBehind.\n"
