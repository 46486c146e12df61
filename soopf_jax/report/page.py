"""`report.html`: one self-contained file per run. What to beware of first, then the summary, then everything else."""

import json
from collections.abc import Mapping
from html import escape

from soopf_jax.grid import Grid
from soopf_jax.report import cards, figures, shell, tables
from soopf_jax.report.examples import Examples
from soopf_jax.report.figures import Plot
from soopf_jax.report.tables import Table
from soopf_jax.results import Result
from soopf_jax.types import Json

GLOSSARY = {
    "INJ": "injective accuracy: share of held-out pairs read as their own cell, after every support and every "
    "operation has been bound to a slot of its own (Hungarian, on optimisation pairs); mean over cells, then seeds",
    "SD, 95% interval": "population SD and t interval over seeds",
    "many-to-one": "the same, but two values may be bound to one slot",
    "gap": "many-to-one minus INJ: accuracy that is owed to shared slots (operation laundering)",
    "min": "the lowest INJ of a held-out cell",
    "collapse": "share of (seed, held-out cell) fits with INJ strictly below 0.4, 0.5, 0.6",
    "recovery (exact)": "share of observed labels that a learned Q puts at their place in the grid, best over "
    "permutations of the axes, and the share of fits where all are; n/a where nothing was learned",
    "distinct": "share of fits whose many-to-one binding gives each support a slot of its own",
    "sees": "labels an arm may read beyond flat cell labels",
}
TWO_EDITS_GLOSSARY = {
    "joint": "share of pairs whose two largest energies are those of the two edited cells",
    "at least one": "share where at least one of them is",
    "support pair": "share where the two largest support marginals are those of the edited supports",
    "pair of top two": "share where the two largest energies lie in the two edited supports",
    "SD, 95% interval": "population SD and t interval over seeds",
}
MAX_OPEN_ROWS = 12
"""Longer tables are folded."""


def pages(result: Result, examples: Examples | None = None) -> dict[str, bytes]:
    """The report and its figures, by their path in the result folder."""
    plots = figures.plots_of(result, examples)
    drawn = {
        f"figures/{name}.{kind}": data for name, plot in plots.items() for kind, data in figures.render(plot).items()
    }
    return {"report.html": report(result, plots, drawn, examples).encode(), **drawn}


def report(
    result: Result, plots: Mapping[str, Plot], drawn: Mapping[str, bytes], examples: Examples | None = None
) -> str:
    """The whole page; `drawn` holds the figures' bytes by path."""
    document, grid = result.document, Grid.of(**result.document["provenance"]["grid"])
    every = tables.details(document)
    if not tables.two_edits(document["config"]):
        every.append(tables.readings(document, result.fits))
    sections = {
        "Summary": summary(document),
        "Figures": "".join(figure(plot, drawn[f"figures/{name}.svg"]) for name, plot in plots.items()),
        "Examples": cards.cards(examples, grid) if examples is not None else "",
        "Tables": "".join(collapsible(table) for table in every),
        "Configuration and provenance": records(document),
    }
    shown = {title: body for title, body in sections.items() if body}
    body = [
        header(document),
        "<nav>" + "".join(f'<a href="#{anchor(title)}">{title}</a>' for title in shown) + "</nav>",
        *(f'<section id="{anchor(title)}"><h2>{title}</h2>{content}</section>' for title, content in shown.items()),
    ]
    return shell.page(tables.title(document), "".join(body), cards.style(grid.n_supports) if examples else "")


def anchor(title: str) -> str:
    """The name that a link to a section uses."""
    return title.lower().replace(" ", "-")


# -------------------------------------------------------------------------------------------------- the top


def header(document: Json) -> str:
    """What was run, how it differs from the paper's protocol, and what to beware of: incomplete arms, warnings."""
    protocol = document["protocol"]
    name, _, size = tables.title(document).rpartition(": ")
    notes = [] if protocol == "full" else [tables.protocol_note(document["config"], protocol)]
    notes += document["warnings"]
    return (
        f'<header><h1>{escape(name)} <span class="label {protocol}">{protocol} protocol</span></h1>'
        + "".join(f'<p class="note">{escape(note[:1].upper() + note[1:])}.</p>' for note in notes)
        + f'<p class="faint">{escape(size)}<br>{escape(facts(document))}</p></header>'
    )


def facts(document: Json) -> str:
    """The readout, the size of the data, the version and the device, in one line."""
    arm, origin = document["arms"][0], document["provenance"]
    parts = [
        f"readout {arm['readout']}, objective {arm['objective']}",
        f"{origin['pairs']:,} pairs, {origin['patches']} patches x {origin['channels']:,} channels",
        f"soopf_jax {origin['environment']['packages']['soopf_jax']} on {origin['environment']['device']}",
    ]
    return "; ".join(parts)


def summary(document: Json) -> str:
    """A tile for each arm, the table of scores, and what its columns mean."""
    draw = two_edits_tile if tables.two_edits(document["config"]) else held_out_tile
    glossary = TWO_EDITS_GLOSSARY if tables.two_edits(document["config"]) else GLOSSARY
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in glossary.items())
    return (
        f'<div class="tiles">{"".join(draw(arm) for arm in document["arms"])}</div>'
        f'<p class="faint">Chance: {escape(tables.chance(document))}.</p>'
        + tables.html_table(tables.summary(document))
        + shell.details("What the columns mean", f'<dl class="faint">{terms}</dl>')
    )


def held_out_tile(arm: Json) -> str:
    """INJ of an arm, what many-to-one scoring adds, its weakest cell, and the labels that it was given."""
    cells = {name: value for name, value in arm["inj"]["per_cell"].items() if value is not None}
    weakest = min(cells, key=cells.__getitem__, default=None)
    lines = {
        "many-to-one": f"{tables.number(arm['non_injective']['mean'])} (gap {tables.number(arm['laundering_gap'])})",
        "weakest cell": "-" if weakest is None else f"{weakest} {tables.number(cells[weakest])}",
        "collapse below 0.5": tables.number(arm["collapse"]["0.5"]),
    }
    if arm["recovery"] is not None:
        lines["recovery"] = tables.number(arm["recovery"])
    return tile(arm, "INJ", arm["inj"], lines)


def two_edits_tile(arm: Json) -> str:
    """Joint accuracy of an arm, and its other scores."""
    (name, shown), *others = tables.TWO_EDIT_SCORES.items()
    lines = {other: tables.number(arm["two_edits"][score]["mean"]) for score, other in others}
    return tile(arm, shown, arm["two_edits"][name], lines)


def tile(arm: Json, score: str, spread: Json, lines: Mapping[str, str]) -> str:
    """An arm's main score, large, above a few others and what its parts were told."""
    number = "incomplete" if spread["mean"] is None else f"{spread['mean']:.3f} ± {spread['sd']:.3f}"
    lines = {"95% interval": tables.interval(spread["ci95"]), **lines}
    lines["sees"] = f"flat labels and {', '.join(arm['sees'])}" if arm["sees"] else "flat labels only"
    if arm["failed_fits"]:
        lines["failed fits"] = str(arm["failed_fits"])
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(value)}</dd>" for term, value in lines.items())
    name = escape(arm["assignment"])
    main = f'<div class="score"><small>{escape(score)}</small> {number}</div>'
    return f'<div class="tile"><h3>{name}</h3>{main}<dl>{terms}</dl></div>'


# ------------------------------------------------------------------------------------------------- the rest


def figure(plot: Plot, svg: bytes) -> str:
    """A figure that scrolls in its own box, with its caption."""
    image = shell.image(svg, "image/svg+xml", f"{plot.title}. {plot.caption}")
    box = f'<div class="wide" role="region" tabindex="0" aria-label="{escape(plot.title)}">{image}</div>'
    return f"<figure><h3>{escape(plot.title)}</h3>{box}<figcaption>{escape(plot.caption)}</figcaption></figure>"


def collapsible(table: Table) -> str:
    """A table behind its title, open unless it is long."""
    return shell.details(table.title, tables.html_table(table), is_open=len(table.rows) <= MAX_OPEN_ROWS)


def records(document: Json) -> str:
    """Configuration and provenance as they stand in result.json."""
    return "".join(
        shell.details(title, f"<pre>{escape(json.dumps(document[name], indent=1, ensure_ascii=False))}</pre>")
        for title, name in (("Configuration", "config"), ("Provenance", "provenance"))
    )
