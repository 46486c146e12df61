"""Shows on stderr what a command is doing: a row for every piece of work under way, and one for the whole run.

A piece of work whose length is known has a `bar` with its rate and the time left; any other piece is a `phase` with the
time that it has taken so far. On a terminal and in a notebook the rows are drawn anew ten times a second, by a thread
of rich's. Elsewhere, for example in a log file, a line is printed whenever nothing was said for some seconds. Either
way the display lives on while the main thread is busy inside a compiler.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from threading import Event, RLock, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

SECONDS_BETWEEN_LINES = 4.0
"""Without a terminal: the longest silence."""
LONGEST_DESCRIPTION = 28
"""Characters. A longer description, for example with the address of a plug-in, would leave no room for the numbers."""

WHOLE_RUN = "whole run"
"""The description of the row about the run as a whole."""
SECONDS = "planned seconds"
"""The unit of a bar that counts the seconds of a plan. Its rate is not shown."""

Advance = Callable[[int], None]
"""A function to call with the number of units done since the last call."""
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]
"""(description, total number of units) -> a context manager that gives an Advance."""


# --------------------------------------------------------------------------------------- what callers use


@contextmanager
def bar(description: str, total: int, unit: str) -> Iterator[Advance]:
    """Show a progress bar during a block.

    Args:
        description: The text before the bar.
        total: The total number of units.
        unit: The name of the units.

    Yields:
        A function to call with the number of units done since the last call, from any thread. The first call may report
        the work of an earlier run, because the rate is measured from then on.
    """
    with _screen.row(description, total, unit) as row:
        yield lambda n: _screen.advance(row, n)


@contextmanager
def phase(description: str) -> Iterator[None]:
    """Show a piece of work of unknown length during a block, if the block is within `shown`."""
    if not _screen.phases:
        yield
        return
    with _screen.row(description, None, ""):
        yield


@contextmanager
def shown(phases: bool = True) -> Iterator[None]:
    """Show the phases of a block. Elsewhere only bars are shown, because a library should not print unasked.

    Args:
        phases: False to leave things as they are.
    """
    _screen.phases += phases
    try:
        yield
    finally:
        _screen.phases -= phases


@contextmanager
def whole_run(sizes: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Show how long a run will take in all, during a block that does its parts one after another.

    Args:
        sizes: How much work each part is, in any unit.

    Yields:
        A function to call at the end of each part.
    """
    run = _screen.run = _WholeRun(sizes)
    try:
        with phase(WHOLE_RUN):
            yield run.part_is_done
    finally:
        _screen.run = None


# ------------------------------------------------------------------------------------------ the estimates


class _WholeRun:
    """Estimates the time left of a run from the parts that are done and the bar of the part under way."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        """The sizes of the parts that are not done. The first of them is under way."""
        self._pace = 0.0
        """The most seconds per unit of size that a part took. An interrupted run finds its first parts done already,
        so their mean would say little."""
        self._start = time.monotonic()

    def part_is_done(self) -> None:
        now = time.monotonic()
        self._pace = max(self._pace, (now - self._start) / self._sizes.pop(0))
        self._start = now

    def seconds_left(self, of_bar: float | None) -> float | None:
        """The time left, or None while nothing is known yet.

        Args:
            of_bar: The time left of the bar under way, if its rate is known.
        """
        if not self._sizes:
            return None
        size, *to_come = self._sizes
        so_far = time.monotonic() - self._start
        pace = self._pace if of_bar is None else max(self._pace, (so_far + of_bar) / size)
        of_part = max(pace * size - so_far, 0.0) if of_bar is None else of_bar
        return of_part + pace * sum(to_come) if pace else None


def _seconds_left(task: Task) -> float | None:
    """The time left of a bar, which runs down between two reports; None if the rate is unknown or all is done."""
    if not task.speed or task.remaining is None or task.finished:
        return None
    return max(task.remaining / task.speed - (task.get_time() - task.fields["reported"]), 0.0)


def _clock(seconds: float) -> str:
    """`0:04:10`."""
    return str(timedelta(seconds=int(seconds)))


def _pace(task: Task, unit: str) -> str:
    """`12.3 images/s, 0:04:10 left`, or only the unit while the rate is unknown or all is done."""
    left = _seconds_left(task)
    if left is None:
        return unit
    if unit == SECONDS:
        return f"{unit}, {_clock(left)} left"  # seconds in a second would tell nobody anything
    speed = f"{task.speed:,.0f}" if (task.speed or 0) >= 100 else f"{task.speed:.3g}"
    return f"{speed} {unit}/s, {_clock(left)} left"


# -------------------------------------------------------------------------------------------- the display


class _State(ProgressColumn):
    """The numbers at the end of a row."""

    max_refresh = None

    def render(self, task: Task) -> Text:
        return Text(_screen.state_of(task), no_wrap=True)


class _Screen:
    """The rows of this process. Rows may begin and end in any thread."""

    def __init__(self) -> None:
        self.phases = 0
        """How many blocks ask for phases to be shown."""
        self.run: _WholeRun | None = None
        self._lock = RLock()
        self._progress: Progress | None = None
        self._last_line = 0.0
        self._silent = Event()

    @contextmanager
    def row(self, description: str, total: int | None, unit: str) -> Iterator[TaskID]:
        """A row during a block. The display begins with the first row and ends with the last."""
        if len(description) > LONGEST_DESCRIPTION:
            description = description[: LONGEST_DESCRIPTION - 3] + "..."
        with self._lock:
            progress = self._progress or self._begin()
            row = progress.add_task(description, total=total, unit=unit, reported=0.0)
        try:
            yield row
        finally:
            with self._lock:
                self._remove(progress, row)
                if not progress.tasks:
                    self._end(progress)

    def advance(self, row: TaskID, n: int) -> None:
        with self._lock:
            if self._progress:
                self._progress.update(row, advance=n, reported=time.monotonic())
                self._line_if_due()

    def state_of(self, task: Task) -> str:
        """The numbers of a row."""
        if task.total is not None:
            return f"{task.completed:.0f}/{task.total:.0f} {_pace(task, task.fields['unit'])}"
        left = self._left_of_run() if task.description == WHOLE_RUN else None
        return _clock(task.elapsed or 0.0) + (f", about {_clock(left)} left" if left is not None else "")

    def _left_of_run(self) -> float | None:
        bars = [_seconds_left(task) for task in self._progress.tasks] if self._progress else []
        known = [seconds for seconds in bars if seconds is not None]
        return self.run.seconds_left(known[-1] if known else None) if self.run else None

    def _begin(self) -> Progress:
        console = Console(stderr=True)
        # In a notebook rich draws with ipywidgets, and only warns where it is not installed.
        alive = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self._progress = Progress(
            SpinnerColumn("line"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            _State(),
            console=console,
            disable=not alive,
            transient=True,
            redirect_stdout=False,
            speed_estimate_period=600.0,
            get_time=time.monotonic,
        )
        self._last_line = time.monotonic()
        if alive:
            self._progress.start()
        else:
            self._silent = Event()
            Thread(target=self._speak, args=(self._silent,), name="progress", daemon=True).start()
        return self._progress

    def _remove(self, progress: Progress, row: TaskID) -> None:
        """Remove a row. A bar that took a while leaves a line behind, where there is a display."""
        task = next(task for task in progress.tasks if task.id == row)
        progress.remove_task(row)
        if task.finished and not progress.disable and (task.elapsed or 0.0) > 1:
            progress.console.print(
                f"{task.description}: {task.total:,.0f} {task.fields['unit']} in {_clock(task.elapsed or 0.0)}",
                highlight=False,
            )

    def _end(self, progress: Progress) -> None:
        progress.stop()
        self._silent.set()
        self._progress = None

    def _speak(self, silent: Event) -> None:
        """Print a line from time to time where no display can be drawn."""
        while not silent.wait(0.5):
            with self._lock:
                self._line_if_due()

    def _line_if_due(self) -> None:
        progress = self._progress
        if progress is None or not progress.disable or time.monotonic() - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = time.monotonic()
        newest_last = [task for task in progress.tasks if task.description != WHOLE_RUN] or progress.tasks
        line = f"{newest_last[-1].description}: {self.state_of(newest_last[-1])}"
        left = self._left_of_run()
        whole = f"; whole run: about {_clock(left)} left" if left is not None else ""
        print(line + whole, file=sys.stderr, flush=True)


_screen = _Screen()
