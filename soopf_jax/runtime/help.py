"""What `--help` prints, for every command: options in groups, in plain text that fits the terminal.

A command's options are a dataclass. The docstring of a field, or the `help` of its `tyro.conf.arg`, is the text of its
option. `--help` shows the usual options, each with the first sentence of its text; `--help-all` shows everything.
"""

import ast
import inspect
import re
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import tyro

SHORT, LONG, ALL = "-h", "--help", "--help-all"
INT, NUMBER, NAME = "INT", "NUMBER", "NAME"
KINDS = {INT: "a whole number", NUMBER: "a number"}
"""What a value must be, by the word that stands for it in the help."""
WIDEST = 100
"""Columns of text; longer lines are hard to read."""
_TEXT_AT = 24
"""The column at which the texts of the options begin."""


class Groups(NamedTuple):
    """How the options of a command are presented."""

    names: Mapping[str, Sequence[str]]
    """Names of fields by the title of their group. A field in no group comes last in the last one."""
    usual: Collection[str]
    """The fields that `--help` shows; `--help-all` shows all."""


class Option(NamedTuple):
    """An option, or an argument without one."""

    field: str
    metavar: str
    """What stands for the value in the help; empty for a flag."""
    text: str
    default: Any
    positional: bool

    @property
    def name(self) -> str:
        """As the user types it."""
        return self.metavar if self.positional else f"--{self.field.replace('_', '-')}"

    @property
    def head(self) -> str:
        """`--seeds INT`; of a flag that is set by default, both forms."""
        if self.positional or self.metavar:
            return self.metavar if self.positional else f"{self.name} {self.metavar}"
        return f"{self.name}, {self.name.replace('--', '--no-', 1)}" if self.default else self.name

    @property
    def full_text(self) -> str:
        """The text with the default, which the text itself may name."""
        nothing = self.default in (None, "", (), MISSING) or self.default is False
        told = nothing or re.search(r"\bdefault\b", self.text, re.IGNORECASE)
        default = self.name if self.default is True else self.default
        return self.text if told else f"{self.text} Default: {default}."

    @property
    def short_text(self) -> str:
        """The first sentence, and the default."""
        first, *others = re.split(r"(?<=\.)\s+(?=[A-Z])", self.full_text)
        return " ".join([first, *(sentence for sentence in others if sentence.startswith("Default"))])


# ------------------------------------------------------------------------------------ reading a dataclass


def options_of(kind: Any) -> list[Option]:
    """The options of a dataclass, those of nested dataclasses included; none for anything else."""
    if not is_dataclass(kind):
        return []
    texts, hints, found = _docstrings(kind), get_type_hints(kind, include_extras=True), []
    for field in fields(kind):
        if is_dataclass(field.default_factory):
            found += options_of(field.default_factory)
            continue
        marks = getattr(hints[field.name], "__metadata__", ())
        own = [mark for mark in marks if hasattr(mark, "metavar")]
        text = next((mark.help for mark in own if mark.help), None) or texts.get(field.name, "")
        metavar = next((mark.metavar for mark in own if mark.metavar), None) or _metavar(hints[field.name])
        found.append(Option(field.name, metavar, " ".join(text.split()), field.default, tyro.conf.Positional in marks))
    return found


def kinds_of(kind: Any) -> dict[str, Any]:
    """The dataclasses of a union by the words that choose them; empty if there is only one."""
    return {part.__name__.lower(): part for part in get_args(kind)} if not is_dataclass(kind) else {}


def _docstrings(kind: Any) -> dict[str, str]:
    """The docstrings of a dataclass's fields, which Python itself does not keep."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):  # there is no source file, so there are no texts
            continue
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = str(text.value.value)
    return found


def _metavar(hint: Any) -> str:
    """The word for a value of this type."""
    if hasattr(hint, "__metadata__"):
        return _metavar(hint.__origin__)
    if hint is bool:
        return ""
    if get_origin(hint) is tuple:
        return f"{_metavar(get_args(hint)[0])} ..."
    inner = [part for part in get_args(hint) if part is not type(None)]
    return _metavar(inner[0]) if inner else {int: INT, float: NUMBER}.get(hint, NAME)


# --------------------------------------------------------------------------------------------- the screen


def screen(kind: Any, command: str, args: Sequence[str], groups: Groups | None = None) -> str:
    """The help of a command, or of the part of it that the arguments choose.

    Args:
        kind: The dataclass of the options, or a union of several.
        command: The command as the user types it.
        args: Its arguments, among which is one that asks for help.
        groups: How the options are presented; by default all of them in one group.
    """
    parts = kinds_of(kind)
    chosen = next((arg for arg in args if arg in parts), None)
    if parts and chosen is None:
        rows = [_entry(word, _summary(part)[0]) for word, part in parts.items()]
        return "\n".join([f"usage: {command} COMMAND [OPTIONS]", "", *rows])
    kind, command = (parts[chosen], f"{command} {chosen}") if chosen else (kind, command)
    options = options_of(kind)
    whole = ALL in args or groups is None
    lines = [f"usage: {' '.join([command, *(o.metavar for o in options if o.positional), '[OPTIONS]'])}", ""]
    paragraphs = _summary(kind) if whole else [" ".join(_summary(kind)[:2])]
    lines += [line for paragraph in paragraphs for line in (_wrapped(paragraph), "")]
    titled = {"options": options} if groups is None else _grouped(options, groups)
    for title, members in titled.items():
        shown = [option for option in members if whole or option.field in (groups.usual if groups else ())]
        lines += [title, *(_entry(o.head, o.full_text if whole else o.short_text) for o in shown), ""] if shown else []
    more = "" if groups is None or whole else f"; {ALL}: all options, with more about each"
    return "\n".join([*lines, f"{SHORT}, {LONG}: this help{more}"])


def _grouped(options: Sequence[Option], groups: Groups) -> dict[str, list[Option]]:
    by_name = {option.field: option for option in options}
    titled = {title: [by_name.pop(name) for name in names if name in by_name] for title, names in groups.names.items()}
    titled[next(reversed(titled))] += by_name.values()
    return titled


def _summary(kind: Any) -> list[str]:
    """The paragraphs of a dataclass's docstring."""
    return [" ".join(paragraph.split()) for paragraph in (inspect.getdoc(kind) or "").split("\n\n")]


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, WIDEST)


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, _width())


def _entry(head: str, text: str) -> str:
    """An option with its text beside it, or below it where the option is long."""
    lines = textwrap.wrap(text, _width() - _TEXT_AT, break_on_hyphens=False) or [""]
    beside = len(head) + 4 <= _TEXT_AT
    first = f"  {head:<{_TEXT_AT - 2}}{lines[0]}" if beside else f"  {head}"
    rest = lines[1:] if beside else lines
    return "\n".join([first, *(" " * _TEXT_AT + line for line in rest)])
