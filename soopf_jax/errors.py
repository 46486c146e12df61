"""The exception for mistakes that the user can correct, and its "did you mean" hint."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake that the user can correct. Its message is one line that says what is wrong and what to do.

    Command lines print the message on stderr and exit with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone."""
        return [f"{type(self).__name__}: {self}"]


class MissingPackage(UserError):
    """A package that only some parts need is not installed; the message says how to install it."""


def unknown_name(kind: str, name: str, valid: Iterable[str], also: str = "") -> UserError:
    """`unknown encoder 'dinov4': did you mean 'dinov3'? choose from ...`.

    Args:
        kind: What the name stands for.
        name: The unknown name.
        valid: All valid names.
        also: Text to add after the valid names.

    Returns:
        The error, for the caller to raise.
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    offer = f"choose from {', '.join(names)}" if names else "there is none"
    return UserError(f"unknown {kind} '{name}': {hint}{offer}{also}")
