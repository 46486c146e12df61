"""A result in a few lines: text for a terminal, HTML for a notebook."""

from collections.abc import Sequence
from html import escape

from soopf_jax.experiments.hints import hints
from soopf_jax.report import summary, tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import printable
from soopf_jax.types import Json

MOST_ARMS, MOST_NOTES = 12, 3
"""How many arms, warnings and hints are shown. A result has them all."""
NEXT = "more: .arms, .to_frame(), .plot.cells(), .report(file), .save(folder)"
"""Where to go from here."""


def text(document: Json) -> str:
    """What was run, a row of scores for each arm, what guessing scores, warnings and hints."""
    scores = _scores(document)._replace(title=printable(summary.title(document)))
    lines = [
        tables.text(scores, tables.terminal_width(), way_out="; see .arms"),
        *_left_out(document["arms"], MOST_ARMS, "arm"),
        f"chance: {summary.chance(document)}",
        *map(printable, _notes(document)),
        NEXT,
    ]
    return "\n".join(lines)


def html(document: Json) -> str:
    """The same as an HTML element; every name escaped."""
    notes = [
        *_left_out(document["arms"], MOST_ARMS, "arm"),
        f"chance: {summary.chance(document)}",
        *_notes(document),
    ]
    title = f"<p><strong>{escape(summary.title(document))}</strong></p>"
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return printable(f"<div>{title}{tables.html_table(_scores(document))}{below}</div>")


def _scores(document: Json) -> Table:
    return summary.summary({**document, "arms": document["arms"][:MOST_ARMS]})


def _notes(document: Json) -> list[str]:
    """Warnings, and what looks odd."""
    kinds = {"warning": list(document["warnings"]), "hint": [hint.text for hint in hints(document)]}
    return [
        note
        for kind, texts in kinds.items()
        for note in (
            *(f"{kind}: {text}" for text in texts[:MOST_NOTES]),
            *_left_out(texts, MOST_NOTES, kind),
        )
    ]


def _left_out(items: Sequence[object], most: int, kind: str) -> list[str]:
    more = len(items) - most
    return [f"... and {more} more {kind}{'s' if more > 1 else ''}"] if more > 0 else []
