"""A table and its forms: text for the terminal, Markdown for a README, HTML for a page, CSV for programs."""

import csv
import io
import itertools
import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from soopf_jax.runtime.text import printable, shortened

GAP = 2
"""Blanks between two columns."""
LONGEST_NAME = 26
"""Characters of a value, where a table has to fit a terminal."""
_CSV_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


class Table(NamedTuple):
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def terminal_width(wide: bool = False) -> int | None:
    """The width that tables on stdout have to fit.

    Args:
        wide: Whether the user wants every column, however narrow the terminal is.

    Returns:
        The columns of the terminal; None if there is no limit, for example in a file.
    """
    return None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns


def text(table: Table, width: int | None = None, way_out: str = "; --wide shows all") -> str:
    """The table in columns that are as wide as they need to be; safe to print on a terminal.

    Args:
        table: The table. Its most important columns come first.
        width: How wide a line may be. Long names are shortened, the last columns are left out, and a line says which.
        way_out: What that line says about how to see them.
    """
    lines = [table.header, *table.rows]
    if width is not None:
        lines = [tuple(shortened(value, LONGEST_NAME) for value in values) for values in lines]
    widths = [max(map(len, column)) + GAP * (i > 0) for i, column in enumerate(zip(*lines, strict=True))]
    fitting = sum(edge <= (width or math.inf) for edge in itertools.accumulate(widths))
    n_shown = max(1, fitting)
    left_out = ", ".join(table.header[n_shown:])
    note = [f"(not shown: {left_out}{way_out})"] if left_out else []
    return "\n".join([table.title, *(printable(_line(values, widths[:n_shown])) for values in lines), *note])


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    """One row of fixed-width text, the first column flush left."""
    first, *rest = (f"{v:>{w}}" if i else f"{v:<{w}}" for i, (v, w) in enumerate(zip(values, widths, strict=False)))
    return (first + "".join(rest)).rstrip()


def markdown(table: Table) -> str:
    """A pipe table."""
    rule = ("---", *("---:" for _ in table.header[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows))


def html(table: Table) -> str:
    """A heading and a table element; every value escaped."""
    return f"<h2>{escape(table.title)}</h2>{html_table(table)}"


def html_table(table: Table, links: Sequence[str] = ()) -> str:
    """A table in a box that scrolls by itself where the page is narrow; the page's script sorts it by any column.

    Args:
        table: What to show.
        links: Where the last cell of each row leads; an empty text leads nowhere.
    """
    # Numbers are flush right; the first column names its row, and is flush left anyway.
    columns = [[row[i] for row in table.rows] for i in range(len(table.header))]
    kinds = [' class="text"' if i and any(map(_is_text, column)) else "" for i, column in enumerate(columns)]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, table.header, strict=True))
    rows = [[escape(value) for value in row] for row in table.rows]
    for row, link in zip(rows, links, strict=False):
        row[-1] = f'<a href="{escape(link)}">{row[-1]}</a>' if link else row[-1]
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{value}</td>" for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    element = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.title)}">{element}</div>'


def _is_text(value: str) -> bool:
    return value != "n/a" and value[:1].isalpha()


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV, with every column that one of them has. What a record lacks, and None, is empty."""
    columns = dict.fromkeys(name for record in records for name in record)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in record.items()} for record in records)
    return buffer.getvalue()


def harmless(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would take for a formula. Numbers stay as they are."""
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) and not _CSV_NUMBER.fullmatch(value):
        return f"'{value}"
    return value
