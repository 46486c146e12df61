"""Progress on stderr: a bar with rate and time left; where stderr is no terminal, a line every ten seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn

SECONDS_BETWEEN_LINES = 10.0

Advance = Callable[[int], None]
"""To be called with the number of units done since the last call."""
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]
"""(description, units in all) -> context manager that gives an Advance."""


@contextmanager
def bar(description: str, total: int, unit: str) -> Iterator[Advance]:
    """A bar of `total` units; call what it gives with the number of units done since the last call, from any thread.

    The first call sets the starting point of the rate, so work done by an earlier run may be reported in it.
    """
    console = Console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=600.0,
        get_time=time.monotonic,
    )
    shown.add_task(description, total=total, pace="")
    task = shown.tasks[0]
    last_line = time.monotonic()
    one_at_a_time = Lock()

    def advance(n: int) -> None:
        nonlocal last_line
        with one_at_a_time:
            shown.update(task.id, advance=n)
            shown.update(task.id, pace=_pace(task, unit))
            if shown.disable and time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                print(
                    f"{description}: {task.completed:.0f}/{total} {_pace(task, unit)}",
                    file=sys.stderr,
                    flush=True,
                )

    with shown:
        yield advance


def _pace(task: Task, unit: str) -> str:
    """`12.3 images/s, 0:04:10 left`; only the unit before there is anything to measure."""
    if not task.speed:
        return unit
    left = timedelta(seconds=int(task.time_remaining or 0))
    speed = f"{task.speed:,.0f}" if task.speed >= 100 else f"{task.speed:.3g}"
    return f"{speed} {unit}/s, {left} left"
