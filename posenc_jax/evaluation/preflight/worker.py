"""The process that compiles: a question a line in, an answer a line out, both JSON.

It is apart from the command because libtpu reads its environment once, talks, and on an inner error ends its process.
"""

import json
import os
import queue
import sys
import threading
from typing import Any

from posenc_jax.checks import config_from_dict
from posenc_jax.errors import UserError
from posenc_jax.parallel.topologies import Topology


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        print(json.dumps(answer(json.loads(questions.get()))), file=answers, flush=True)


def _listen(questions: queue.SimpleQueue[str]) -> None:
    """Reads while the compiler works, so that the process ends at once with the one that asks, even one killed."""
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)


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
