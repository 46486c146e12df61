"""The panels of a report: functions from what the report is about to HTML, which is empty if there is nothing to show.

The table `PANELS` holds them in the order of the page.
"""

import json
from collections.abc import Callable, Mapping
from html import escape

from soopf_jax.experiments.hints import hints
from soopf_jax.report import cards, citation, html_page, summary, tables
from soopf_jax.report.page_style import arm_class
from soopf_jax.report.subject import Subject
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import number
from soopf_jax.scoring import metrics
from soopf_jax.scoring.statistics import shown_interval
from soopf_jax.types import Json

MAX_OPEN_ROWS = 12
"""Longer tables are folded."""

# -------------------------------------------------------------------------------------------------- summary


def scores(subject: Subject) -> str:
    """A tile for each arm, the table of scores, and what its columns mean."""
    document = subject.result.document
    draw = TILES[metrics.experiment_of(document["config"])]
    meanings = summary.glossary(document["config"])
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in meanings.items())
    return (
        f'<div class="tiles">{"".join(draw(arm, index) for index, arm in enumerate(document["arms"]))}</div>'
        f'<p class="faint">Chance: {escape(summary.chance(document))}.</p>'
        + tables.html_table(summary.summary(document))
        + html_page.details("What the columns mean", f'<dl class="faint terms">{terms}</dl>', True, "first-visit")
    )


def held_out_tile(arm: Json, index: int = 0) -> str:
    """INJ of an arm, what many-to-one scoring adds, its weakest cell, and the labels that it was given."""
    cells = {name: value for name, value in arm["inj"]["per_cell"].items() if value is not None}
    weakest = min(cells, key=cells.__getitem__, default=None)
    lines = {
        "many-to-one": f"{number(arm['non_injective']['mean'])} (gap {number(arm['laundering_gap'])})",
        "weakest cell": "-" if weakest is None else f"{weakest} {number(cells[weakest])}",
        "collapse below 0.5": number(arm["collapse"]["0.5"]),
    }
    if arm["recovery"] is not None:
        lines["recovery"] = number(arm["recovery"])
    return tile(arm, index, "INJ", arm["inj"], lines)


def two_edits_tile(arm: Json, index: int = 0) -> str:
    """Joint accuracy of an arm, and its other scores."""
    main, *others = (row for row in metrics.METRICS[metrics.TWO_EDITS] if row.key in arm["two_edits"])
    lines = {row.name: number(arm["two_edits"][row.key]["mean"]) for row in others}
    return tile(arm, index, main.name, arm["two_edits"][main.key], lines)


def tile(arm: Json, index: int, score: str, spread: Json, lines: Mapping[str, str]) -> str:
    """An arm's main score, large, above a few others and what its parts were told; in the colour of its index."""
    deviation = f" <small>SD {number(spread['sd'])}</small>"
    shown = "incomplete" if spread["mean"] is None else f"{number(spread['mean'])}{deviation}"
    lines = {"95% interval": shown_interval(spread), **lines}
    lines["sees"] = f"flat labels and {', '.join(arm['sees'])}" if arm["sees"] else "flat labels only"
    if arm["failed_fits"]:
        lines["failed fits"] = str(arm["failed_fits"])
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(value)}</dd>" for term, value in lines.items())
    name = escape(arm["assignment"])
    main = f'<div class="score"><small>{escape(score)}</small> {shown}</div>'
    return f'<div class="tile {arm_class(index)}"><h3>{name}</h3>{main}<dl>{terms}</dl></div>'


TILES: dict[str, Callable[[Json, int], str]] = {metrics.HELD_OUT: held_out_tile, metrics.TWO_EDITS: two_edits_tile}
"""How an arm is shown at the top of the page, by experiment."""

# ------------------------------------------------------------------------------------------------- the rest


def advice(subject: Subject) -> str:
    """What looks odd in the run, what to try, and the page of the documentation that says more."""
    items = "".join(
        f"<li>{escape(hint.text[:1].upper() + hint.text[1:])}. "
        f'<span class="faint">See <code>{escape(hint.link)}</code>.</span></li>'
        for hint in hints(subject.result.document)
    )
    return f"<ul>{items}</ul>" if items else ""


def figures(subject: Subject) -> str:
    """Every figure, in a box of its own that scrolls, with its caption."""
    return "".join(
        html_page.figure(plot.title, plot.caption, subject.drawn[f"figures/{name}.svg"])
        for name, plot in subject.plots.items()
    )


def examples(subject: Subject) -> str:
    """Pairs with what the fits make of them."""
    return cards.cards(subject.examples, subject.grid) if subject.examples is not None else ""


def details(subject: Subject) -> str:
    """Every other table, behind its title, open unless it is long."""
    document, fits = subject.result.document, subject.result.fits
    of_fits = [make(document, fits) for make in summary.presentation(document["config"]).fit_details]
    return "".join(map(_collapsible, [*summary.details(document), *of_fits]))


def _collapsible(table: Table) -> str:
    return html_page.details(table.title, tables.html_table(table), is_open=len(table.rows) <= MAX_OPEN_ROWS)


def records(subject: Subject) -> str:
    """Configuration and provenance as they stand in result.json."""
    document = subject.result.document
    return "".join(
        html_page.details(title, f"<pre>{escape(json.dumps(document[name], indent=1, ensure_ascii=False))}</pre>")
        for title, name in (("Configuration", "config"), ("Provenance", "provenance"))
    )


PANELS: dict[str, Callable[[Subject], str]] = {
    "Summary": scores,
    "Hints": advice,
    "Figures": figures,
    "Examples": examples,
    "Tables": details,
    "Reproduce and cite": citation.panel,
    "Configuration and provenance": records,
}
"""By title. To add a panel, write its function in a module of its own and add a row here."""
