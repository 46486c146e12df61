"""`study.html`: what came out of a study, on one self-contained page.

In: the outcomes of finished runs, and what is missing. Out: the page. Rows lead to the reports of their runs by paths
relative to the page, so the folder of a study can be moved or published whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from soopf_jax.report import figures, html_page, tables
from soopf_jax.report.page import anchor
from soopf_jax.report.panels import MAX_OPEN_ROWS
from soopf_jax.report.tables import Table
from soopf_jax.runtime import atomic
from soopf_jax.runtime.text import count, printable
from soopf_jax.scoring.statistics import ENOUGH_SEEDS, MIN_BOOTSTRAP_SEEDS, MIN_SEEDS
from soopf_jax.studies import page_tables, plots
from soopf_jax.studies.contests import contests, placings
from soopf_jax.studies.finding import finding, subjects
from soopf_jax.studies.geometry_ranks import MIN_ROWS, statistics_of
from soopf_jax.studies.grouping import Panel, Row, by_assignment, panels, selected_row
from soopf_jax.studies.outcome import Outcome
from soopf_jax.studies.plots import Drawn

NAME = "study.html"
BROAD = 8.0
"""Inches. Broader figures have no other one beside them."""
STYLE = """
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(34rem, 100%), 1fr)); gap: 0 1.5rem;
  align-items: start; }
.figures > * { min-width: 0; }
.broad { grid-column: 1 / -1; }
td:first-child { min-width: 7.5rem; }
"""


class Content(NamedTuple):
    """What the sections of the page are made of."""

    panels: Sequence[Panel]
    has_report: Callable[[Outcome], bool]


def page(found: Sequence[Outcome], missing: Mapping[str, str], has_report: Callable[[Outcome], bool]) -> str:
    """The whole page.

    Args:
        found: The arms of all finished runs. There is at least one.
        missing: The runs that are not done, and why.
        has_report: Tells whether a run has a report to link to.
    """
    content = Content(panels(found), has_report)
    with figures.styled():
        made = {title: "".join(make(content)) for title, make in SECTIONS.items()}
    shown = {title: body for title, body in made.items() if body}
    title = f"Study of {subjects(content.panels)}"
    body = [
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="finding">{escape(finding(content.panels))}</p>',
        absent(missing),
        "</header><nav>" + "".join(f'<a href="#{anchor(title)}">{escape(title)}</a>' for title in shown) + "</nav>",
        *(f'<section id="{anchor(title)}"><h2>{escape(title)}</h2>{body}</section>' for title, body in shown.items()),
    ]
    return html_page.page(title, "".join(body), STYLE)


def write(found: Sequence[Outcome], missing: Mapping[str, str], folder: Path) -> None:
    """Write the page into the folder of a study, which has the result folders; the arguments are those of `page`."""
    made = page(found, missing, lambda outcome: (folder / outcome.folder / "report.html").is_file())
    atomic.write_bytes(folder / NAME, made.encode())


def absent(missing: Mapping[str, str]) -> str:
    """The runs that are not on the page, and why."""
    if not missing:
        return ""
    said = f"{count(len(missing), 'run')} of this study {'is' if len(missing) == 1 else 'are'} missing here"
    items = "".join(f"<li>{escape(printable(f'{run}: {reason}'))}</li>" for run, reason in missing.items())
    return f'<div class="note">{html_page.details(said, f"<ul>{items}</ul>")}</div>'


def address(row: Row, content: Content) -> str:
    """Where the report of a row is, seen from the page; empty if it has none."""
    # A first part with a colon would be taken for a protocol.
    return quote(f"./{row.outcome.folder}/report.html") if content.has_report(row.outcome) else ""


def drawings(about: str, drawn: Mapping[str, Drawn], content: Content) -> Iterator[str]:
    """What figures show, then the figures by their titles, side by side where there is room. Points lead to reports."""
    if not drawn:
        return
    yield note(about)
    yield '<div class="figures">'
    for title, (figure, points) in drawn.items():
        spots = [
            figures.Spot(point.axes, point.x, point.y, address(point.row, content), point.row.about)
            for point in points
            if address(point.row, content)
        ]
        made = html_page.figure(title, "", *figures.svg_with_links(figure, spots))
        yield made if figure.get_figwidth() < BROAD else f'<div class="broad">{made}</div>'
    yield "</div>"


def note(text: str) -> str:
    """A paragraph under a heading."""
    return f'<p class="faint">{escape(text)}</p>'


def folded(table: Table, links: Sequence[str] = ()) -> str:
    """A table, behind its title if it is long."""
    made = tables.html_table(table, links)
    if len(table.rows) > MAX_OPEN_ROWS:
        return html_page.details(f"{table.title} ({len(table.rows)} rows)", made)
    return f"<h3>{escape(table.title)}</h3>{made}"


# ----------------------------------------------------------------------------------------------------- sections


def profiles(content: Content) -> Iterator[str]:
    """The scores against depth."""
    about = (
        "Scores against the relative depth of the layer. Bands: 95 % interval over seeds. last: the encoder's output. "
        "A level line: an encoder that is read at its output only. Support and operation alone: the share of held-out "
        "pairs of which it is read correctly. Points lead to reports."
    )
    yield from drawings(about, {panel.title: plots.profile(panel) for panel in content.panels}, content)


def encoders(content: Content) -> Iterator[str]:
    """INJ of encoders on data sets."""
    about = (
        "INJ. Left: at the encoder's output or, where the study does not read it, at the deepest layer. Right: at the "
        "layer with the best validation accuracy. No layer is chosen by INJ."
    )
    groups = by_assignment(content.panels).items()
    made = {f"{assignment} assignment": plots.encoder_map(group) for assignment, group in groups}
    yield from drawings(about, made, content)


def cells(content: Content) -> Iterator[str]:
    """INJ of held-out cells."""
    about = "INJ of each held-out cell, mean over seeds. The names of layers lead to reports."
    yield from drawings(about, {panel.title: plots.cell_map(panel) for panel in content.panels}, content)


def where_or_what(content: Content) -> Iterator[str]:
    """What is wrong where a held-out pair is read wrong."""
    about = (
        "Of the held-out pairs that are read wrong, the share with a wrong support only (where), a wrong operation "
        "only (what), or both. Right: the share of all held-out pairs that is wrong. Last bar: a wrong cell at random."
    )
    some = [panel for panel in content.panels if any(sum(row.outcome.errors) > 0 for row in panel.complete)]
    yield from drawings(about, {panel.title: plots.error_bars(panel) for panel in some}, content)


def ranked(content: Content) -> Iterator[str]:
    """How sure the order of encoders and of rows is."""
    made = []
    for panel in content.panels:
        chosen = [selected_row(rows) for rows in panel.series.values()]
        kinds = {"encoders, each at the layer with its best validation accuracy": chosen, "all rows": panel.rows}
        if len(chosen) in (1, len(panel.rows)):
            del kinds["encoders, each at the layer with its best validation accuracy"]
        for kind, rows in kinds.items():
            if (found := placings(rows)) is not None:
                made.append(folded(page_tables.ranks(f"{panel.title}: {kind}", found)))
    if made:
        yield note(
            "By INJ. Bootstrap: seeds are resampled with replacement, the same ones for every row; first is the share "
            f"of resamples in which a row is first. It needs {MIN_BOOTSTRAP_SEEDS} seeds, and is too sure with fewer "
            f"than {ENOUGH_SEEDS}."
        )
        yield from made


def compared(content: Content) -> Iterator[str]:
    """Paired tests between rows."""
    found = contests(content.panels)
    if found:
        tests = sum(contest.p is not None for contest in found)
        yield note(
            "Encoders are compared at the layer with their best validation accuracy, and the other layers of an "
            f"encoder with that one. p (Holm) is corrected for the {count(tests, 'test')} on this page. A test needs "
            f"{MIN_SEEDS} seeds."
        )
        yield folded(page_tables.comparisons(found))


def geometry(content: Content) -> Iterator[str]:
    """The statistics of features beside INJ."""
    about = (
        "INJ against statistics of the features, a point for each row, and Spearman's rank correlation over rows. "
        f"Layers of one encoder are not independent of each other. Fewer than {MIN_ROWS} rows give none."
    )
    found = [(panel, statistics_of(panel)) for panel in content.panels]
    made = {panel.title: plots.against_features(panel, some) for panel, some in found if some}
    yield from drawings(about, made, content)


def every_row(content: Content) -> Iterator[str]:
    """The table of everything. The last column leads to reports."""
    table, rows = page_tables.all_rows(content.panels)
    yield tables.html_table(table, [address(row, content) for row in rows])


SECTIONS: dict[str, Callable[[Content], Iterator[str]]] = {
    "Layer profile": profiles,
    "Encoders and data sets": encoders,
    "Held-out cells": cells,
    "Where or what?": where_or_what,
    "Ranks": ranked,
    "Paired comparisons": compared,
    "Why: geometry beside the score": geometry,
    "All rows": every_row,
}
"""The sections in the order of the page. A section without content is left out."""
