"""Exceptions that Python prints and drops, because a callback or a destructor cannot raise them.

Some of them are expected and mean nothing to a user. Each part of the program names its own. The hook stays until the
process ends: one part that puts an older hook back would remove what the others expect.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

Expected = Callable[["sys.UnraisableHookArgs"], bool]
"""Whether a dropped exception means nothing to a user."""
_expected: dict[Expected, None] = {}


@dataclass(frozen=True)
class _Hook:
    """Passes on what nobody expects."""

    report: Callable[["sys.UnraisableHookArgs"], object]

    def __call__(self, dropped: "sys.UnraisableHookArgs", /) -> None:
        if not any(expected(dropped) for expected in _expected):
            self.report(dropped)


def expect(expected: Expected) -> None:
    """From now on, print nothing about dropped exceptions for which `expected` returns True."""
    _expected[expected] = None
    if not isinstance(sys.unraisablehook, _Hook):
        sys.unraisablehook = _Hook(sys.unraisablehook)
