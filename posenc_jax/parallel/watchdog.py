"""Ends a run that has stopped moving, so that its launcher can start it again."""

import faulthandler
import os
import threading
import time
from typing import Self

from posenc_jax.errors import PREEMPTED


class Watchdog:
    """Ends this process with 75 when no `beat` comes for `minutes`; 0 is off. The first span begins at `with`.

    The stacks of all threads go to standard error before. A device that waits for a host that is gone never returns
    to Python, so nothing gentler would be heard; what was saved is whole.
    """

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._last = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.beat()
        if self.minutes:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def beat(self) -> None:
        """Says that the run moves."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while (left := self._last + 60 * self.minutes - time.monotonic()) > 0:
            if self._over.wait(left):
                return
        faulthandler.dump_traceback(file=2, all_threads=True)
        sentence = (
            f"error: nothing has moved for {self.minutes:g} minutes (train.watchdog_minutes); the stacks are above. "
            "Ending; run the same line again to go on from the newest checkpoint\n"
        )
        os.write(2, sentence.encode())
        os._exit(PREEMPTED)
