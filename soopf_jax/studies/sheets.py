"""A sheet is a table with notes. This module turns it into text, Markdown or LaTeX, and writes all of them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from soopf_jax.report import tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime import atomic


class Sheet(NamedTuple):
    """A table and the notes beneath it."""

    name: str
    """The name of its files."""
    table: Table
    notes: tuple[str, ...]


def text(sheet: Sheet) -> str:
    """Text for the terminal. The last column is prose and therefore flush left."""
    title, header, rows = sheet.table
    body = tables.text(Table(title, header[:-1], [row[:-1] for row in rows])).splitlines()
    ends = ["", header[-1], *(row[-1] for row in rows)]
    lines = [f"{line}  {end}".rstrip() for line, end in zip(body, ends, strict=True)]
    return "\n".join([*lines, *(f"  {note}" for note in sheet.notes)]) + "\n"


def markdown(sheet: Sheet) -> str:
    """A heading, a pipe table, a list of notes."""
    notes = "\n".join(f"- {note}" for note in sheet.notes)
    return f"### {sheet.table.title}\n\n{tables.markdown(sheet.table)}\n\n{notes}\n"


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
)


def latex(sheet: Sheet) -> str:
    """A table environment, for a document that loads booktabs."""

    def row(values: Sequence[str]) -> str:
        return " & ".join(map(_tex, values)) + r" \\"

    lines = [
        r"\begin{table}",
        rf"\caption{{{_tex(sheet.table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(sheet.table.header) - 2)}l}}",
        r"\toprule",
        row(sheet.table.header),
        r"\midrule",
        *map(row, sheet.table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par{{\footnotesize {_tex(note)}}}" for note in sheet.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(value: str) -> str:
    return value.translate(_LATEX).replace("+-", r"$\pm$").replace("--", "-{}-")


RENDERERS: Mapping[str, Callable[[Sheet], str]] = {"txt": text, "md": markdown, "tex": latex}
"""By the suffix of the file."""


def write(sheet: Sheet, folder: Path) -> None:
    """Write a sheet in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, render in RENDERERS.items():
        atomic.write_bytes(folder / f"{sheet.name}.{suffix}", render(sheet).encode())
