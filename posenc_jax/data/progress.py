"""Progress for a person to read: a bar on a terminal, a plain line now and then anywhere else."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much (None while that is unknown)."""

PLAIN_SECONDS = 10.0  # between two plain lines about the same thing


@contextlib.contextmanager
def show_progress() -> Iterator[Progress]:
    """Gives a `Progress` that prints to standard output until the block ends."""
    if sys.stdout.isatty():
        with _bar() as report:
            yield report
    else:
        yield _plain_lines()


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    from rich import progress

    columns = ("[progress.description]{task.description}", progress.BarColumn(), progress.TaskProgressColumn())
    with progress.Progress(*columns, progress.TimeElapsedColumn(), progress.TimeRemainingColumn()) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(act: str, done: int, total: int | None) -> None:
            if act not in tasks:
                for task in tasks.values():  # the earlier acts are over
                    bars.update(task, total=1, completed=1)
                    bars.stop_task(task)
                tasks[act] = bars.add_task(act, total=total)
            bars.update(tasks[act], completed=done, total=total)

        yield report


def _plain_lines() -> Progress:
    last_act, last_time = "", 0.0

    def report(act: str, done: int, total: int | None) -> None:
        nonlocal last_act, last_time
        finished = total is not None and done >= total
        if act == last_act and not finished and time.monotonic() - last_time < PLAIN_SECONDS:
            return
        last_act, last_time = act, time.monotonic()
        amount = f" {100 * done / total:.0f} %" if total else f" {done:,}" if done else ""
        print(f"{act}{amount}", flush=True)

    return report


def show_table(title: str, rows: list[tuple[str, str]]) -> None:
    """Names and values in two columns: a table on a terminal, plain lines anywhere else."""
    if not sys.stdout.isatty():
        print(title)
        for name, value in rows:
            print(f"  {name}: {value}")
        return
    from rich import box, console, table

    grid = table.Table(title=title, box=box.SIMPLE, show_header=False, title_justify="left")
    for row in rows:
        grid.add_row(*row)
    console.Console().print(grid)
