"""The tables about the assignment `matched`, which benchmarks/matching.py measures."""

from benchmarks import assignments as compared
from docs.evidence import Command, Found, ResultTable, only
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import number
from soopf_jax.studies.rows import Obstacle
from soopf_jax.types import Json

PLACEMENTS = [
    Command(("benchmarks.matching", "--parts", "placement", "--pairs", pair), "placement.json")
    for pair in compared.PAIRS
]
"""What `matched` decides, on every pair of data set and encoder."""
WAYS = Command(("benchmarks.matching", "--parts", "statistics"), "statistics.json")
SEARCHES = Command(("benchmarks.matching", "--parts", "search"), "search.json")
DECIDED = {
    "recovery": "recovery", "exact": "exact", "unidentifiable": "a wrong grid fits better", "search_gap": "search gap",
    "best_of_all": "best of all grids",
}  # fmt: skip
"""What the measurements say about grids that were decided, and how tables call it."""


def placement(found: Found) -> Table:
    """The grids of `matched` before any training, and what a random grid has."""
    documents = [document for document in found.values() if not isinstance(document, Obstacle)]
    rows = [
        (compared.shown(f"{row['dataset']}/{row['encoder']}"), *(number(row[key]) for key in DECIDED))
        for document in documents
        for row in document["rows"]
    ]
    chance = documents[0]["chance"]
    rows.append(("a random grid", *(number(chance[key]) if key in chance else "" for key in DECIDED)))
    return Table("", ("data set/encoder", *DECIDED.values()), rows)


def ways(found: Found) -> Table:
    """The ways to recognise an operation."""
    rows = [(row["way"], *(number(row[key]) for key in DECIDED), number(row["lead"], 2)) for row in only(found)["rows"]]
    return Table("", ("how an operation is recognised", *DECIDED.values(), "lead in SDs"), rows)


def searches(found: Found) -> Table:
    """How often each search finds the grid of synthetic means, and its time, with the sizes side by side.

    The last rows say for how many means a wrong grid fits better than the true one: some method has found such a grid.
    """
    measured = only(found)["rows"]
    sides = sorted({row["side"] for row in measured})
    by_method: dict[tuple[str, int], dict[int, Json]] = {}
    for row in measured:
        by_method.setdefault((row["method"], row["channels"]), {})[row["side"]] = row
    rows = [
        (
            *(method, str(channels)),
            *(f"{by_side[side]['found']}/{by_side[side]['trials']}" for side in sides),
            *(number(by_side[side]["cpu_seconds"]) for side in sides),
        )
        for (method, channels), by_side in by_method.items()
    ]
    for channels in sorted({row["channels"] for row in measured}):
        of_sides = [[row for row in measured if (row["channels"], row["side"]) == (channels, side)] for side in sides]
        counts = (f"{max(row['unidentifiable'] for row in of)}/{of[0]['trials']}" for of in of_sides)
        rows.append(("(a wrong grid fits better)", str(channels), *counts, *("" for _ in sides)))
    sizes = [f"{side} x {side}" for side in sides]
    return Table("", ("method", "channels", *sizes, *(f"seconds, {size}" for size in sizes)), rows)


TABLES = {
    "placement": ResultTable(PLACEMENTS, placement),
    "statistics": ResultTable([WAYS], ways),
    "search-synthetic": ResultTable([SEARCHES], searches),
}
"""By name, as in docs/result_tables.py."""
