"""Wait for what other processes do."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
HOLD = "SOOPF_TESTS_HOLD"
"""The variable of the environment with the name of the file that holds training; see parts.py."""
SECONDS = 900.0
"""A busy machine may need minutes for what takes seconds on a quiet one."""


def until(reached: Callable[[], T | None], seconds_between: float = 0.1) -> T:
    """Wait for something true, and return it."""
    end = time.monotonic() + SECONDS
    while not (found := reached()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(seconds_between)
    return found


def newest_checkpoint(out: Path) -> int:
    """The number of steps that the newest checkpoint of an unfinished run holds; 0 if there is none."""
    steps = [int(path.name) for path in out.parent.glob(f".{out.name}.work-*/*.checkpoint/*") if path.name.isdigit()]
    return max(steps, default=0)
