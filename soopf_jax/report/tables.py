"""A result as tables: text for the terminal, Markdown for a README, HTML for the report."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from soopf_jax.types import Json

PROTOCOL_NOTES = {
    "full": "full protocol",
    "quick": "quick protocol, not the paper's 10 seeds, 5 restarts, 2,000 steps",
    "custom": "custom protocol, not the paper's 10 seeds, 5 restarts, 2,000 steps",
}
SUMMARY_WIDTHS = (13, 7, 7, 16, 13, 8, 7, 21, 17, 9)


class Table(NamedTuple):
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float | None, digits: int = 3) -> str:
    """`0.874`; a dash where it is undefined."""
    return "-" if value is None else f"{value:.{digits}f}"


def headline(config: Json, protocol: str, n_cells: int) -> str:
    """One line: what was run and under which protocol."""
    source = config.get("features") or f"{config.get('dataset', 'table')}, {config.get('encoder', 'given features')}"
    size = config["protocol"]
    return (
        f"{source}: {size['seeds']} seeds x {n_cells} cells x {size['restarts']} restarts,"
        f" {size['steps']} steps ({PROTOCOL_NOTES[protocol]})"
    )


SUMMARY_HEADER = (
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
)


def summary_row(arm: Json) -> tuple[str, ...]:
    """One arm of the summary."""
    inj, interval = arm["inj"], arm["inj"]["ci95"]
    recovered = arm["recovery"] is not None
    return (
        arm["assignment"],
        number(inj["mean"]),
        number(inj["sd"]),
        f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "-",
        number(arm["non_injective"]["mean"]),
        number(arm["laundering_gap"]),
        number(arm["min_cell"]),
        " ".join(number(arm["collapse"][t]) for t in ("0.4", "0.5", "0.6")),
        f"{number(arm['recovery'])} ({number(arm['exact_recovery'])})" if recovered else "n/a",
        number(arm["distinct_support_rate"]),
    )


def summary(document: Json) -> Table:
    """Every arm."""
    return Table("Scores", SUMMARY_HEADER, [summary_row(arm) for arm in document["arms"]])


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
