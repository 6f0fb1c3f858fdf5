"""Parts of the page, each made on its own: one that cannot be had leaves a sentence in its place, and no gap."""

import sys
from collections.abc import Callable

from posenc_jax.errors import UserError
from posenc_jax.evaluation.page.html import Html, absent


def attempt(what: str, make: Callable[..., Html], *arguments: object) -> Html:
    """What `make` returns, or why it cannot be had; `what` names it. A defect of ours is told on standard error, too:
    one part less is better than no page."""
    try:
        return make(*arguments)
    except UserError as error:
        return absent(f"{what} cannot be shown: {error}.")
    except Exception as error:
        reason = f"{what} could not be made ({type(error).__name__}: {error})"
        print(f"warning: {reason}; the rest of the page is whole", file=sys.stderr)
        return absent(f"{reason}.")
