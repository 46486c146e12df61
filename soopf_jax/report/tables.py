"""A result as tables: text for the terminal, Markdown for a README, HTML for the report."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

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


class Table(NamedTuple):
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float | None, digits: int = 3) -> str:
    """`0.874`; a dash where it is undefined."""
    return "-" if value is None else f"{value:.{digits}f}"


def interval(ci95: Sequence[float] | None) -> str:
    """`[0.861, 0.887]`; a dash where it is undefined."""
    return f"[{ci95[0]:.3f}, {ci95[1]:.3f}]" if ci95 else "-"


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
    """The headline of a finished run."""
    grid = document["provenance"]["grid"]
    return headline(document["config"], document["protocol"], len(grid["supports"]) * len(grid["operations"]))


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


def summary(document: Json) -> Table:
    """Every arm."""
    header, _, row = summary_of(document["config"])
    return Table("Scores", header, [row(arm) for arm in document["arms"]])


# ----------------------------------------------------------------------------------------------- the rest


def chance(document: Json) -> str:
    """`INJ 0.111, recovery 0.402`: what guessing scores."""
    names = TWO_EDIT_SCORES if two_edits(document["config"]) else {"inj": "INJ", "recovery": "recovery"}
    levels = document["provenance"]["chance"]
    return ", ".join(f"{shown} {number(levels[name])}" for name, shown in names.items())


def details(document: Json) -> list[Table]:
    """What follows the summary."""
    if two_edits(document["config"]):
        return [combinations(document)]
    return [cells(document), tests(document)]


def combinations(document: Json) -> Table:
    """The scores of every combination of two edited cells, beside chance."""
    scores, levels = document["arms"][0]["two_edits"], document["provenance"]["chance"]
    rows = [
        (name, *(number(scores[score]["per_combination"][name]) for score in TWO_EDIT_SCORES))
        for name in scores["joint"]["per_combination"]
    ]
    rows.append(("chance", *(number(levels[score]) for score in TWO_EDIT_SCORES)))
    return Table("Two edits, per combination", ("edited cells", *TWO_EDIT_SCORES.values()), rows)


def cells(document: Json) -> Table:
    """INJ of every held-out cell, an arm per column, beside chance."""
    arms, chance = document["arms"], number(document["provenance"]["chance"]["inj"])
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


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.2g}"


def line(values: Sequence[str], widths: Sequence[int]) -> str:
    """One row of fixed-width text, the first column flush left."""
    first, *rest = (f"{v:>{w}}" if i else f"{v:<{w}}" for i, (v, w) in enumerate(zip(values, widths, strict=True)))
    return first + "".join(rest)


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
    """A table element; every value escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    body = "".join("<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
