"""Memory of every shipped config on several topologies."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.errors import UserError
from posenc_jax.evaluation.preflight.answer import GIB, Say
from posenc_jax.evaluation.preflight.process import compiler
from posenc_jax.evaluation.preflight.questions import make_question
from posenc_jax.evaluation.tables import Table
from posenc_jax.parallel.topologies import Topology

TOPOLOGIES = ("v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1")
"""Eight devices each."""


def matrix(
    topologies: Sequence[Topology], size: str, overrides: Mapping[str, Any], vocab_size: int, say: Say
) -> tuple[list[dict[str, Any]], Table]:
    """A cell for each variant and topology, and the table of them. A cell that fails holds why; the others go on."""
    variants = shipped_variants()
    cells, rows = [], []
    with compiler() as ask:
        for number, variant in enumerate(variants):
            row = [f"{variant.removeprefix('configs/')},{size}"]
            for topology in topologies:
                cell = {"config": f"{variant},{size}", "topology": str(topology)}
                try:
                    config = load_config(cell["config"], overrides)
                    question = make_question(config, topology, vocab_size=None, default=vocab_size)
                    facts = ask(dataclasses.replace(question, memory_only=True))
                    cell |= {name: facts[name] for name in ("fits", "needed", "available")}
                except UserError as error:
                    cell["error"] = str(error)
                cells.append(cell)
                row.append(_text(cell))
                say(f"{number + 1} of {len(variants)}: {row[0]} on {topology}: {cell.get('error') or row[-1]}")
            rows.append(row)
    names = [str(topology) for topology in topologies]
    caption = (
        f"GiB that a device needs for a training step, as the compiler has it before it makes code (within about 2 %); "
        f"{vocab_size:,} words unless the config says otherwise, each config's own batch and length."
    )
    return cells, Table(caption, ("config", *names), rows, names)


def _text(cell: Mapping[str, Any]) -> str:
    if "error" in cell:
        return "error"
    size = f"{cell['needed'] / GIB:.1f}"
    return size if cell["fits"] else f"no: needs {size}"
