"""A result as tables: text for the terminal, Markdown for a README, HTML for the report."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from soopf_jax.grid import Grid
from soopf_jax.report.confusion import axis_accuracy, confusion
from soopf_jax.report.naming import printable
from soopf_jax.types import Json

PROTOCOL_NOTES = {
    "full": "full protocol",
    "quick": "quick protocol, not the paper's {seeds} seeds, 5 restarts, 2,000 steps",
    "custom": "custom protocol, not the paper's {seeds} seeds, 5 restarts, 2,000 steps",
}
TWO_EDIT_SCORES = {
    "joint": "joint",
    "at_least_one": "at least one",
    "support_pair": "support pair",
    "support_pair_of_top_two": "pair of top two",
}
"""The scores of pairs with two edits, by their names in a result."""
ROUTER_SCORES = {"iou": "IoU", "iou_edited": "IoU of the edited support", "agreement": "agreement"}
"""The scores of a router's masks, by their names in a result."""


UNDEFINED = "-"


class Table(NamedTuple):
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float | None, digits: int = 3) -> str:
    """`0.874`; a dash where it is undefined."""
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def signed(difference: float | None) -> str:
    """`+0.012`; a dash where it is undefined."""
    return UNDEFINED if difference is None else f"{difference:+.3f}"


def interval(ci95: Sequence[float] | None) -> str:
    """`[0.861, 0.887]`; a dash where it is undefined."""
    return f"[{ci95[0]:.3f}, {ci95[1]:.3f}]" if ci95 else UNDEFINED


# ------------------------------------------------------------------------------------------ what was run


def two_edits(config: Json) -> bool:
    """Whether a run tests two edits at once rather than held-out cells."""
    return config.get("edits") == "two"


def protocol_note(config: Json, protocol: str) -> str:
    """What the protocol is called and, unless it is the paper's, how it differs."""
    return PROTOCOL_NOTES[protocol].format(seeds=5 if two_edits(config) else 10)


def headline(config: Json, protocol: str, n_cells: int) -> str:
    """One line: what was run and under which protocol."""
    source = config.get("features") or f"{config.get('dataset', 'table')}, {config.get('encoder', 'given features')}"
    size = config["protocol"]
    if two_edits(config):
        fits = f"two edits, {size['seeds']} seeds x {size['restarts']} restarts on all {n_cells} cells"
    else:
        fits = f"{size['seeds']} seeds x {n_cells} cells x {size['restarts']} restarts"
    return f"{source}: {fits}, {size['steps']} steps ({protocol_note(config, protocol)})"


def title(document: Json) -> str:
    """The headline of a finished run, after what a reader must know before believing any of it."""
    grid = document["provenance"]["grid"]
    n_cells = len(grid["supports"]) * len(grid["operations"])
    return caveat(document) + headline(document["config"], document["protocol"], n_cells)


def caveat(document: Json) -> str:
    """`2 FITS FAILED, learned INCOMPLETE: `; empty where every fit can be trusted."""
    failed = sum(arm["failed_fits"] for arm in document["arms"])
    found = [f"{failed} FITS FAILED"] if failed else []
    scores = [main_score(document["config"], arm) for arm in document["arms"]]
    found += [f"{assignment} INCOMPLETE" for assignment, _, score in scores if score == UNDEFINED]
    return f"{', '.join(found)}: " if found else ""


# ----------------------------------------------------------------------------------- one row for each arm


class Summary(NamedTuple):
    """How arms are summed up in one row each."""

    header: tuple[str, ...]
    widths: tuple[int, ...]
    row: Callable[[Json], tuple[str, ...]]


def _held_out_row(arm: Json) -> tuple[str, ...]:
    inj = arm["inj"]
    recovered = arm["recovery"] is not None
    return (
        arm["assignment"],
        number(inj["mean"]),
        number(inj["sd"]),
        interval(inj["ci95"]),
        number(arm["non_injective"]["mean"]),
        number(arm["laundering_gap"]),
        number(arm["min_cell"]),
        " ".join(number(arm["collapse"][t]) for t in ("0.4", "0.5", "0.6")),
        f"{number(arm['recovery'])} ({number(arm['exact_recovery'])})" if recovered else "n/a",
        number(arm["distinct_support_rate"]),
    )


def _two_edits_row(arm: Json) -> tuple[str, ...]:
    joint, *others = (arm["two_edits"][name] for name in TWO_EDIT_SCORES)
    return (
        arm["assignment"],
        number(joint["mean"]),
        number(joint["sd"]),
        interval(joint["ci95"]),
        *(number(other["mean"]) for other in others),
        number(arm["validation"]),
    )


HELD_OUT = Summary(
    (
        "assignment",
        "INJ",
        "SD",
        "95% interval",
        "many-to-one",
        "gap",
        "min",
        "collapse .4/.5/.6",
        "recovery (exact)",
        "distinct",
    ),
    (13, 7, 7, 16, 13, 8, 7, 21, 17, 9),
    _held_out_row,
)
TWO_EDITS = Summary(
    ("assignment", "joint", "SD", "95% interval", *list(TWO_EDIT_SCORES.values())[1:], "validation"),
    (13, 7, 7, 16, 14, 14, 17, 12),
    _two_edits_row,
)


def summary_of(config: Json) -> Summary:
    """The summary that fits a run."""
    return TWO_EDITS if two_edits(config) else HELD_OUT


def main_score(config: Json, arm: Json) -> tuple[str, str, str]:
    """(assignment, name, value) of an arm's first score."""
    header, _, row = summary_of(config)
    assignment, value, *_ = row(arm)
    return assignment, header[1], value


def summary(document: Json) -> Table:
    """Every arm."""
    header, _, row = summary_of(document["config"])
    return Table("Scores", header, [row(arm) for arm in document["arms"]])


# ----------------------------------------------------------------------------------------------- the rest


def chance(document: Json) -> str:
    """`INJ 0.111, recovery 0.402`: what guessing scores."""
    names = TWO_EDIT_SCORES if two_edits(document["config"]) else {"inj": "INJ", "recovery": "recovery"}
    levels = document["provenance"]["chance"]
    return ", ".join(f"{shown} {number(levels.get(name))}" for name, shown in names.items())


def details(document: Json) -> list[Table]:
    """What follows the summary."""
    found = [combinations(document)] if two_edits(document["config"]) else [cells(document), tests(document)]
    return [*found, router(document)] if routers(document) else found


def combinations(document: Json) -> Table:
    """The scores of every combination of two edited cells, beside chance."""
    scores, levels = document["arms"][0]["two_edits"], document["provenance"]["chance"]
    rows = [
        (name, *(number(scores[score]["per_combination"][name]) for score in TWO_EDIT_SCORES))
        for name in scores["joint"]["per_combination"]
    ]
    rows.append(("chance", *(number(levels.get(score)) for score in TWO_EDIT_SCORES)))
    return Table("Two edits, per combination", ("edited cells", *TWO_EDIT_SCORES.values()), rows)


def cells(document: Json) -> Table:
    """INJ of every held-out cell, an arm per column, beside chance."""
    arms, chance = document["arms"], number(document["provenance"]["chance"].get("inj"))
    names = list(arms[0]["inj"]["per_cell"])
    header = ("held-out cell", *(arm["assignment"] for arm in arms), "chance")
    rows = [(name, *(number(arm["inj"]["per_cell"][name]) for arm in arms), chance) for name in names]
    return Table("INJ per held-out cell", header, rows)


def tests(document: Json) -> Table:
    """Paired tests over seeds."""
    header = ("a", "b", "score", "n", "a - b", "t", "p", "p (Holm)")
    rows = [
        (
            test["a"],
            test["b"],
            test["score"],
            str(test["n"]),
            number(test["mean_diff"]),
            number(test["t"], 2),
            _p_value(test["p"]),
            _p_value(test["p_holm"]),
        )
        for test in document["tests"]
    ]
    return Table("Paired t-tests over seeds", header, rows)


def routers(document: Json) -> dict[str, Json]:
    """How well routers find the supports: by arm, on its held-out cells, and for fits that saw all cells."""
    by_arm = {arm["assignment"]: arm.get("router") for arm in document["arms"]}
    found = by_arm | {"diagnostic, all cells observed": document.get("router")}
    return {name: scores for name, scores in found.items() if scores}


def router(document: Json) -> Table:
    """Every router's scores over seeds."""
    rows = [
        (name, *(f"{number(scores[s]['mean'])} ± {number(scores[s]['sd'])}" for s in ROUTER_SCORES))
        for name, scores in routers(document).items()
    ]
    return Table(
        "Router masks against the true regions (mean ± SD over seeds)", ("fits", *ROUTER_SCORES.values()), rows
    )


def readings(document: Json, fits: Mapping[str, np.ndarray]) -> Table:
    """What each arm reads held-out pairs as: the cell, its support alone, its operation alone, its commonest error."""
    grid = Grid.of(**document["provenance"]["grid"])
    rows = []
    for index, arm in enumerate(document["arms"]):
        shares = confusion(fits, index, grid)
        supports, operations = axis_accuracy(shares, grid)
        for cell in np.flatnonzero(np.isfinite(supports)):
            others = np.where(np.arange(grid.n_cells) == cell, -1.0, shares[cell])
            error = f"{grid.cell_names[others.argmax()]} ({others.max():.3f})" if others.max() > 0 else "-"
            right = (shares[cell, cell], supports[cell], operations[cell])
            rows.append((grid.cell_names[cell], arm["assignment"], *map(number, right), error))
    header = ("held-out cell", "assignment", "INJ", "support right", "operation right", "commonest error")
    return Table("What held-out pairs are read as", header, rows)


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.2g}"


def line(values: Sequence[str], widths: Sequence[int]) -> str:
    """One row of fixed-width text, the first column flush left; safe to print on a terminal."""
    first, *rest = (f"{v:>{w}}" if i else f"{v:<{w}}" for i, (v, w) in enumerate(zip(values, widths, strict=True)))
    return printable(first + "".join(rest))


def text(table: Table, widths: Sequence[int] | None = None) -> str:
    """Columns as wide as they need to be, or of the given widths."""
    columns = zip(table.header, *table.rows, strict=True)
    widths = widths or [max(map(len, column)) + 2 for column in columns]
    return "\n".join([table.title, *(line(row, widths) for row in (table.header, *table.rows))])


def markdown(table: Table) -> str:
    """A pipe table."""
    rule = ("---", *("---:" for _ in table.header[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows))


def html(table: Table) -> str:
    """A heading and a table element; every value escaped."""
    return f"<h2>{escape(table.title)}</h2>{html_table(table)}"


def html_table(table: Table) -> str:
    """A table in a box that scrolls by itself where the page is narrow; `shell.SCRIPT` sorts it by any column."""
    # Numbers are flush right; the first column names its row, and is flush left anyway.
    columns = [[row[i] for row in table.rows] for i in range(len(table.header))]
    kinds = [' class="text"' if i and any(map(_is_text, column)) else "" for i, column in enumerate(columns)]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, table.header, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(value)}</td>" for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in table.rows
    )
    element = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.title)}">{element}</div>'


def _is_text(value: str) -> bool:
    return value != "n/a" and value[:1].isalpha()
