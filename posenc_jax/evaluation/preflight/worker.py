"""The process that compiles: a question a line in, an answer a line out, both JSON.

It is apart from the command because libtpu reads its environment once, talks, and on an inner error ends its process.
"""

import json
import os
import sys
from typing import Any

from posenc_jax.checks import config_from_dict
from posenc_jax.errors import UserError
from posenc_jax.parallel.topologies import Topology


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Facts, or {"refused": sentence, "exit_code"} where the user must change something."""
    try:
        from posenc_jax.evaluation.preflight.compiling import compile_step

        config = config_from_dict(question.pop("config"))
        chip, grid, slices = question.pop("topology")
        return compile_step(config, topology=Topology(chip, tuple(grid), slices), **question)
    except UserError as error:
        return {"refused": str(error), "exit_code": error.exit_code}


if __name__ == "__main__":
    main()
