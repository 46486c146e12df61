"""The one exception that stands for a user's mistake, and the "did you mean" that goes with it."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """One line: what is wrong and what to do. Command lines print it on stderr and exit with code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def unknown_name(kind: str, name: str, valid: Iterable[str], also: str = "") -> UserError:
    """`unknown encoder 'dinov4': did you mean 'dinov3'? (choose from ...)`."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return UserError(f"unknown {kind} '{name}': {hint}choose from {', '.join(names)}{also}")
