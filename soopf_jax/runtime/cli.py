"""Shared code of all command lines: parsing, one plain line for a mistake, and exit codes.

What takes time to import is imported in `parse`, which commands call within `run`: Ctrl-C ends with one line there.
"""

import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import interrupt

if TYPE_CHECKING:
    from soopf_jax.runtime.help import Groups, Option

_AFTER_THE_POINT = r"For full helptext|Argument helptext|Got errors:|Perhaps you meant|─────|-----"
"""What tyro prints after the sentence that names the mistake."""
_TITLE = r"^[^\n]*\n\s*-{5,}"
"""The title of tyro's box where the terminal has no characters for frames."""
RETIRED = {"--coco-split": "the split is part of the data set's name: write coco:val2017"}
"""Options of earlier versions, and what to write instead."""


_name: ContextVar[str | None] = ContextVar("name of the command", default=None)


@contextlib.contextmanager
def called_as(name: str) -> Iterator[None]:
    """Use this name for the command in help texts and hints, as the user typed it."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def run(program: Callable[[], None], interrupted: str = interrupt.INTERRUPTED) -> int:
    """Run a program and print its errors as one line.

    Args:
        program: The program.
        interrupted: What to print after Ctrl-C, unless the program has noted what is kept.

    Returns:
        The exit code: 0 for success, 2 for an error that the user can correct, 130 for Ctrl-C, 141 if stdout is closed.
    """
    try:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # finds a user's plug-ins, however the command was started
        with interrupt.remembered(interrupted):
            _run_or_be_interrupted(program)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail
        return 141
    except MemoryError as error:
        print(f"error: not enough memory ({error}); ask for less at once, or use a larger machine", file=sys.stderr)
        return 2
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        print(f"error: {error.strerror or error}{place}; fix that and run the same command again", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupt.said(interrupted), file=sys.stderr)
        return interrupt.CODE
    return 0


def _run_or_be_interrupted(program: Callable[[], None]) -> None:
    """Run a program. After Ctrl-C, any exception counts as KeyboardInterrupt: some imports turn one into the other."""
    try:
        program()
    except Exception:
        interrupt.check()
        raise


def parse(
    kind: Any, prog: str, args: Sequence[str] | None = None, default: Any = None, groups: "Groups | None" = None
) -> Any:
    """Parse a command line. `--help` prints the help and exits.

    Args:
        kind: The dataclass of the options, or a union of several.
        prog: The name of the module that is run, and perhaps the word of a subcommand.
        args: The arguments; by default those of the process.
        default: The value that holds the defaults, if `kind` has none.
        groups: How the options are presented in the help.

    Returns:
        An instance of `kind`.

    Raises:
        UserError: The arguments are wrong.
    """
    import tyro

    from soopf_jax.runtime import help

    module, _, word = prog.partition(" ")
    name = f"{_name.get() or f'python -m {module}'} {word}".strip()
    args = list(sys.argv[1:] if args is None else args)
    if {help.SHORT, help.LONG, help.ALL} & set(args):
        print(help.screen(kind, name, args, groups))
        raise SystemExit(0)
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=name, args=args, default=tyro.MISSING_NONPROP if default is None else default)
    except SystemExit as stop:
        if not stop.code:
            raise
    words = help.kinds_of(kind)
    if words and (not args or args[0] not in words):
        raise unknown_name("command", args[0], words) if args else UserError(f"{name} needs one of {', '.join(words)}")
    options = help.options_of(words[args[0]] if words else kind)
    wrong = (
        _unknown_option(options, args) or _wrong_value(options, args) or _said(_first_sentence(box.getvalue()), options)
    )
    raise UserError(f"{wrong} (see {name} --help)")


def _unknown_option(options: "Sequence[Option]", args: Sequence[str]) -> str | None:
    """A message about the first unknown option, with the most similar option that exists; None if all are known."""
    names = [option.name for option in options]
    known = {*names, *(name.replace("--", "--no-", 1) for name in names)}
    for option in (arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")):
        if option in RETIRED:
            return f"there is no option {option} any more; {RETIRED[option]}"
        if names and option not in known:
            close = difflib.get_close_matches(option, names, n=1)
            return f"unknown option {option}" + (f": did you mean {close[0]}?" if close else "")
    return None


def _wrong_value(options: "Sequence[Option]", args: Sequence[str]) -> str | None:
    """A message about the first option whose value is no number where a number is wanted."""
    from soopf_jax.runtime.help import INT, KINDS

    for option in options:
        for place, arg in enumerate(args):
            name, equals, given = arg.partition("=")
            value = given if equals else next(iter(args[place + 1 : place + 2]), "")
            if name.replace("_", "-") == option.name and option.metavar in KINDS:
                try:
                    int(value) if option.metavar == INT else float(value)
                except ValueError:
                    got = f", not '{value}'" if value and not value.startswith("--") else "; none was given"
                    return f"{option.name} takes {KINDS[option.metavar]}{got}"
    return None


def _first_sentence(box: str) -> str:
    """The sentence that names the mistake, from tyro's box of 5 to 15 lines."""
    box = re.sub(_TITLE, "", box)
    lines = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sentence = re.split(_AFTER_THE_POINT, " ".join(filter(None, lines)))[0]
    return sentence.strip(" .:") or "this command line cannot be read"


def _said(sentence: str, options: "Sequence[Option]") -> str:
    """The sentence of tyro in words of ours, if it is about an argument that is missing or one too many."""
    if found := re.match(r"Missing from .*?: (\S+)", sentence):
        missing = next((option for option in options if option.name == found[1]), None)
        return f"{found[1]} is missing" + (f": {missing.short_text}" if missing else "")
    if found := re.match(r"Unrecognized options: (.+)", sentence):
        return f"unexpected '{found[1]}': a value follows the option that it belongs to"
    return sentence
