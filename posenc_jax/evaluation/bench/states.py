"""How fast the moments of an encoder's hidden states come out of a corpus, and whether memory grows with it."""

import itertools
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.errors import UserError
from posenc_jax.evaluation.tables import Table

PARTS = (10, 3, 1)
"""The corpus is read in thirds and tenths, too: the time then grows, the memory should not."""


def bench_states(workdir: Path, sources: Sequence[str], sentences: int) -> tuple[Table, dict[str, Any]]:
    """Seconds, tokens a second and the process's peak memory after the first tenth, third and all of `sentences`.

    Raises `UserError` where the sources hold fewer.
    """
    from posenc_jax.analysis.states import moments_of
    from posenc_jax.interop.pretrained import load_encoder

    texts = list(itertools.islice(_sentences(sources), sentences))
    if len(texts) < sentences:
        raise UserError(
            f"{', '.join(sources)} has {len(texts):,} sentences, and {sentences:,} were asked for; add text"
        )
    encoder = load_encoder(workdir)
    lines: list[dict[str, Any]] = []
    for part in PARTS:
        wanted = max(1, sentences // part)
        began = time.perf_counter()
        moments = moments_of(encoder, texts[:wanted], special=False)
        seconds = time.perf_counter() - began
        lines.append({"sentences": wanted, "tokens": moments.count, "seconds": seconds, "peak_bytes": _peak_bytes()})
        print(f"{wanted:,} sentences  {seconds:.1f} s", flush=True)
    model = encoder.pretrained.model
    caption = (
        f"Mean, variance and extremum shares of all hidden states, {model.layers} layers x {model.width}, "
        f"{encoder.name}: sentences cut into pieces, encoded and reduced in one pass, compilation with the first. "
        "Peak memory: of the whole process so far."
    )
    columns = ("sentences", "tokens", "seconds", "tokens/s", "peak memory, MB")
    rows = [
        (
            f"{one['sentences']:,}",
            f"{one['tokens']:,}",
            f"{one['seconds']:.1f}",
            f"{one['tokens'] / one['seconds']:,.0f}",
            f"{one['peak_bytes'] / 1e6:,.0f}",
        )
        for one in lines
    ]
    return Table(caption, columns, rows, columns), {"workdir": str(workdir), "runs": lines}


def _sentences(sources: Sequence[str]) -> Iterator[str]:
    from posenc_jax.data.sentences import split_sentences
    from posenc_jax.data.sources import documents

    for document in documents(sources, Counter()):
        yield from split_sentences(document)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
