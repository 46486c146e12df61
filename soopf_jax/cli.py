"""What every command line of the package does alike: one plain line for a mistake, exit codes 0, 2 and 130."""

import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from soopf_jax.errors import UserError

_AFTER_THE_POINT = r"For full helptext|Argument helptext|Got errors:|Perhaps you meant|─────"
"""What tyro writes after the sentence that says what is wrong."""


def run(program: Callable[[], None], interrupted: str = "interrupted; what was finished is kept") -> int:
    """Run a program and turn its end into an exit code: 0 done, 2 a user's mistake, 130 Ctrl-C."""
    try:
        program()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: leave the last flush in peace
        return 141
    except MemoryError as error:
        print(f"error: not enough memory ({error}); ask for less at once, or use a larger machine", file=sys.stderr)
        return 2
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        print(f"error: {error.strerror or error}{place}; mend that and run the same command again", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return 130
    return 0


def parse(kind: Any, prog: str, args: Sequence[str] | None = None, default: Any = tyro.MISSING_NONPROP) -> Any:
    """The command line (`args`, or the process's own) as a `kind`; `--help` exits, a mistake is a UserError."""
    args = list(sys.argv[1:] if args is None else args)
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=f"python -m {prog}", args=args, default=default)
    except SystemExit as stop:
        if not stop.code:
            raise
    wrong = _unknown_option(kind, args) or _first_sentence(box.getvalue())
    raise UserError(f"{wrong} (see python -m {prog} --help)")


def _unknown_option(kind: Any, args: Sequence[str]) -> str | None:
    """The first option that a dataclass of options lacks, with the nearest one that it has."""
    fields = [f"--{name.replace('_', '-')}" for name in _field_names(kind)]
    known = {*fields, *(field.replace("--", "--no-", 1) for field in fields), "--help"}
    for option in (arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")):
        if fields and option not in known:
            close = difflib.get_close_matches(option, fields, n=1)
            return f"unknown option {option}" + (f": did you mean {close[0]}?" if close else "")
    return None


def _field_names(kind: Any) -> list[str]:
    """The fields of a dataclass and of the dataclasses that are its defaults."""
    names: list[str] = []
    for name, field in getattr(kind, "__dataclass_fields__", {}).items():
        nested = getattr(field.default_factory, "__dataclass_fields__", None)
        names += _field_names(field.default_factory) if nested else [name]
    return names


def _first_sentence(box: str) -> str:
    """The point of tyro's box of 5 to 15 lines."""
    lines = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sentence = re.split(_AFTER_THE_POINT, " ".join(filter(None, lines)))[0]
    return sentence.strip(" .:") or "this command line cannot be read"
