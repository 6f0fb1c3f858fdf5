"""What comes from data never becomes markup, and tables say what their cells are."""

import html.parser

import pytest

from posenc_jax.evaluation.page.html import Html, element, listing, prose, slug, table
from posenc_jax.evaluation.tables import Table

NASTY = "<script>alert('1')</script> & \"two\""


class Reader(html.parser.HTMLParser):
    """The tags with their attributes, and the text."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.said = [], ""
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.said += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize(
    "markup",
    [
        element("p", NASTY),
        element("a", "x", title=NASTY),
        element("p", Html("<b>bold</b>"), NASTY),
        listing([NASTY]),
        prose(NASTY),
        prose(f"`{NASTY}`"),
        table(NASTY, Table(NASTY, ("a", NASTY), [(NASTY, NASTY)], numbers=(NASTY,))),
    ],
)
def test_what_comes_from_data_is_text(markup):
    read = Reader(markup)
    assert not read.all("script")
    assert NASTY in read.said or NASTY in [value for _, attributes in read.tags for value in attributes.values()]


def test_markup_stays_markup():
    assert element("p", element("b", "1 < 2")) == "<p><b>1 &lt; 2</b></p>"


def test_attributes_are_spelled_as_html_has_them():
    assert element("td", "5", class_="n", aria_label="five", title=None) == '<td class="n" aria-label="five">5</td>'


def test_words_between_backticks_are_code():
    assert prose("run `glue` & `squad`") == "run <code>glue</code> &amp; <code>squad</code>"
    assert prose("a ` alone") == "a ` alone"


def test_a_table_has_a_caption_and_scopes_and_numbers_flush_right():
    read = Reader(table("Title", Table("What it is.", ("run", "loss"), [("a", "1.5"), ("b", "2")], numbers=("loss",))))
    assert len(read.all("caption")) == 1 and read.said.startswith("Title") and "What it is." in read.said
    assert [attributes["scope"] for attributes in read.all("th")] == ["col", "col", "row", "row"]
    assert [attributes.get("class") for attributes in read.all("td")] == ["n", "n"]


def test_ids_are_plain_words():
    assert slug("How <b>it</b> was: made!") == "how-b-it-b-was-made" and slug("?") == "part"
