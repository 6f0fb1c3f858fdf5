"""matplotlib's figures as pictures inside the page, in the page's own colours of text, light and dark."""

import base64
import io
import re
from collections.abc import Iterable
from typing import Any

from posenc_jax.evaluation.page.html import Html, element, prose

LIGHT, DARK = "#1d2126", "#e4e6e8"
"""Of text, as in `style.py`."""
LEAST = 0.8
"""Of its size a picture has at least: 9 points stay above 7."""
NARROW = 360
"""Pixels that every reader has."""
_STYLE = f"<style>svg{{color:{LIGHT}}}@media (prefers-color-scheme:dark){{svg{{color:{DARK}}}}}</style>"


def picture(figure: Any, alt: str, caption: str) -> Html:
    """A figure with a caption below; `alt` says what is to be seen for whoever does not see it.

    It is drawn at its own size or somewhat smaller; where the page is narrower still, the picture scrolls.
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(svg(figure).encode()).decode()
    least = round(LEAST * width)
    image = element("img", src=source, alt=alt, width=width, height=height, style=f"min-width:{least}px")
    box = element("div", image, class_="scroll", **({"tabindex": "0"} if least > NARROW else {}))
    return element("figure", box, element("figcaption", prose(caption)))


def figures(pictures: Iterable[Html]) -> Html:
    """Beside each other where the page is wide enough."""
    return element("div", *pictures, class_="figures")


def svg(figure: Any) -> str:
    """The same for the same figure: no date, no random name. Black follows the reader's scheme, and what is behind
    the axes is left to the page. Changes the figure's background."""
    import matplotlib

    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "posenc_jax", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"(fill|stroke): ?#000000", r"\1: currentColor", drawn)
    head, _, rest = drawn.partition(">")
    return f'{head} fill="currentColor">{_STYLE}{rest}'
