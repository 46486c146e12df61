"""The leaderboard as a page: encoders x data sets, a plot of INJ with intervals, and all columns; one filter for all.

Names of folders on this machine are left out, and results are linked by paths relative to the page: the page and the
results can be moved or published together.
"""

import os
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path, PurePath
from urllib.parse import quote

from soopf_jax.experiments.naming import without_folder
from soopf_jax.report import html_page, tables
from soopf_jax.report.leaderboard_table import RankedArm, as_table
from soopf_jax.runtime.text import number, printable
from soopf_jax.scoring.statistics import shown_interval

TITLE = "Leaderboard"
NOTE = (
    "INJ: held-out accuracy after injective alignment, with its 95 % interval over seeds. Compare arms of the same"
    " substrate, grid, pairs and protocol only; python -m soopf_jax.compare tests differences."
)
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)

STYLE = """
body { max-width: none; }
.plot .arm, .plot .axis { display: grid; grid-template-columns: 22rem minmax(8rem, 40rem) 12rem; gap: 0 1rem;
  align-items: center; }
.plot .arm { border-bottom: 1px solid var(--line); padding: .1rem 0; }
.plot .value { font-size: .9rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
.plot .name { overflow-wrap: anywhere; font-size: .9rem; }
.plot svg { display: block; width: 100%; height: 1.4rem; overflow: visible; }
.plot .axis { font-size: .8rem; color: var(--faint); }
.plot .tick { stroke: var(--line); }
.plot .chance { stroke: var(--faint); stroke-dasharray: 3 3; }
.plot .interval { stroke: var(--ink); stroke-width: 2; }
.plot .mean { fill: var(--link); }
.plot text { fill: var(--faint); font-size: .75rem; text-anchor: middle; }
.plot h3 small { font-weight: 400; }
.pivot small { font-weight: 400; color: var(--faint); font-size: .8rem; }
.pivot thead small { display: block; white-space: normal; min-width: 9rem; max-width: 14rem; }
.pivot td, .pivot th { vertical-align: top; text-align: left; }
@media (max-width: 40rem) {
  .plot .arm, .plot .axis { grid-template-columns: 1fr auto; }
  .plot .arm svg { grid-column: 1 / -1; grid-row: 2; }
  .plot .axis svg { grid-column: 1 / -1; }
  .plot .axis span { display: none; }
}
"""


def page(arms: Sequence[RankedArm], at: Path) -> str:
    """The whole page.

    Args:
        arms: In the order of `leaderboard_table.gather`.
        at: Where the page will be written; links to reports are relative to its folder.
    """
    table, links = as_table(arms), [link(ranked, at) for ranked in arms]
    body = [
        f"<h1>{TITLE}</h1><p>{escape(NOTE)}</p>",
        '<div class="filter"></div>',
        f"<h2>Encoders and data sets</h2>{pivot(arms, links)}",
        f"<h2>INJ with 95% intervals, sorted</h2>{plot(arms, links)}",
        f'<section class="filtered"><h2>{escape(table.title)}</h2>{tables.html_table(table, links)}</section>',
    ]
    return html_page.page(TITLE, "".join(body), STYLE)


# ---------------------------------------------------------------------------------------------------- names


def comparable(ranked: RankedArm) -> tuple[str, ...]:
    """What arms must share to be ranked."""
    name = ranked.name
    return (name.substrate, name.grid, name.pairs, name.protocol)


def competitor(ranked: RankedArm) -> tuple[str, ...]:
    """What is ranked: the encoder and all that is trained on top of it."""
    name = ranked.name
    return (name.encoder, printable(ranked.arm["assignment"]), name.readout, name.objective)


def varying(arms: Sequence[RankedArm]) -> list[int]:
    """The parts of `competitor` that are shown: the encoder, the assignment, and whatever is not the same for all."""
    parts = list(zip(*map(competitor, arms), strict=True))
    return [index for index, values in enumerate(parts) if index < 2 or len(set(values)) > 1]


def heading(group: tuple[str, ...]) -> tuple[str, str]:
    """A data set's name, and its grid, pairs and protocol."""
    substrate, grid, pairs, protocol = group
    return without_folder(substrate), f"{grid}, {pairs} pairs, {protocol}"


def words(ranked: RankedArm) -> str:
    """What the filter searches."""
    return " ".join([*map(without_folder, ranked.name), printable(ranked.arm["assignment"]), ranked.folder])


def link(ranked: RankedArm, at: Path) -> str:
    """The address of an arm's report, seen from the page; empty if the result has no report."""
    if ranked.report is None:
        return ""
    relative = os.path.relpath(ranked.report.resolve(), at.resolve().parent)
    # A first part with a colon would be taken for a protocol.
    return quote(f"./{PurePath(relative).as_posix()}")


def anchor(text: str, address: str) -> str:
    """Text that leads to a report, if there is one."""
    return f'<a href="{escape(address)}">{escape(text)}</a>' if address else escape(text)


# ---------------------------------------------------------------------------------------------------- pivot


def pivot(arms: Sequence[RankedArm], links: Sequence[str]) -> str:
    """A row for each encoder and a column for each data set and protocol, with INJ of all arms in the fields."""
    groups, rest = sorted({comparable(ranked) for ranked in arms}), varying(arms)[1:]
    head = "".join(
        f'<th scope="col">{escape(name)}<small>{escape(facts)}</small></th>' for name, facts in map(heading, groups)
    )
    fields: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for ranked, address in zip(arms, links, strict=True):
        label = ", ".join(competitor(ranked)[index] for index in rest)
        score = f"{anchor(number(ranked.arm['inj']['mean']), address)} <small>{escape(label)}</small>"
        line = f'<div data-words="{escape(words(ranked))}">{score}</div>'
        fields.setdefault((ranked.name.encoder, comparable(ranked)), []).append(line)
    body = "".join(
        f'<tr class="group"><th scope="row">{escape(without_folder(encoder))}</th>'
        + "".join(f"<td>{''.join(fields.get((encoder, group), ['-']))}</td>" for group in groups)
        + "</tr>"
        for encoder in sorted({ranked.name.encoder for ranked in arms})
    )
    element = (
        f'<table class="pivot"><thead><tr><th scope="col">encoder</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
    return f'<div class="wide" role="region" tabindex="0" aria-label="Encoders and data sets">{element}</div>'


# ----------------------------------------------------------------------------------------------------- plot


def plot(arms: Sequence[RankedArm], links: Sequence[str]) -> str:
    """INJ of every arm with its interval, best first, in a group for each set of arms that may be ranked."""
    shown = varying(arms)
    groups = []
    for group, members in groupby(zip(arms, links, strict=True), key=lambda member: comparable(member[0])):
        rows = "".join(plot_row(ranked, address, shown) for ranked, address in members)
        name, rest = heading(group)
        title = f'<h3>{escape(name)} <small class="faint">{escape(rest)}</small></h3>'
        groups.append(f'<div class="group">{title}{rows}{AXIS}</div>')
    return f'<div class="plot">{"".join(groups)}</div><p class="faint">Dashed: chance.</p>'


def plot_row(ranked: RankedArm, address: str, shown: Sequence[int]) -> str:
    """An arm's name, its mean and interval as a drawing, and the same in numbers."""
    inj = ranked.arm["inj"]
    parts = competitor(ranked)
    label = ", ".join(without_folder(parts[index]) for index in shown)
    value = f"{number(inj['mean'])} {shown_interval(inj)}"
    drawing = f'<svg role="img" aria-label="INJ {escape(value)}">{"".join(marks(ranked))}</svg>'
    return (
        f'<div class="arm" data-words="{escape(words(ranked))}"><span class="name">{anchor(label, address)}</span>'
        f'{drawing}<span class="value">{escape(value)}</span></div>'
    )


def marks(ranked: RankedArm) -> Iterator[str]:
    """The lines and the dot of an arm. An interval that leaves the range from 0 to 1 is cut off there."""
    inj = ranked.arm["inj"]
    yield from (_vertical(tick, "tick") for tick in TICKS)
    if ranked.chance is not None:
        yield _vertical(ranked.chance, "chance")
    if inj["ci95"] is not None:
        low, high = (_per_cent(min(max(end, 0.0), 1.0)) for end in inj["ci95"])
        yield f'<line class="interval" x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
    if inj["mean"] is not None:
        yield f'<circle class="mean" cx="{_per_cent(inj["mean"])}" cy="50%" r="4.5"/>'


def _vertical(place: float, css_class: str) -> str:
    at = _per_cent(place)
    return f'<line class="{css_class}" x1="{at}" x2="{at}" y1="0" y2="100%"/>'


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}%"


AXIS = (
    '<div class="axis" aria-hidden="true"><span></span><svg>'
    + "".join(f'<text x="{_per_cent(tick)}" y="80%">{tick:g}</text>' for tick in TICKS)
    + "</svg></div>"
)
