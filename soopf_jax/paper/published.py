"""The paper as data: `assets/paper.json` in, checked records out.

A row is one arm that the paper ran. A table lists entries, each with the numbers that the paper prints for a row.
Numbers that only the running text has are gathered into tables of the same form (`laundering`, `tests`, `thresholds`,
...). Numbers that it repeats are in `statements`, and numbers of the set-up are in `constants`. Where the numbers do
not agree with each other, a note says so.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from soopf_jax import plugins
from soopf_jax.runtime.assets import asset
from soopf_jax.types import Json

STAND_IN, SENSITIVITY, CONTRADICTIONS = "stand-in", "sensitivity", "contradictions"
"""Names of tables that are not the paper's own."""


class PublishedArm(NamedTuple):
    """One arm of the paper and the protocol it was run under."""

    name: str
    dataset: str
    encoder: str
    readout: str
    assignment: str
    objective: str
    operations: tuple[str, ...]
    edits: str
    """`one`, or `two` at once."""
    router: bool
    """Whether the row is the router diagnostic, on all nine cells."""
    layer: int | None
    """None: not stated; the last is read."""
    batch_size: int | None
    """None: not stated."""
    seeds: int
    restarts: int
    steps: int


class Number(NamedTuple):
    """A number that the paper prints."""

    value: float
    sd: float | None
    """Population SD over seeds, where it is printed."""
    n: int
    """Seeds behind it; for the router diagnostic, examples."""
    where: str
    """Label of the table, row and column; or the section."""
    note: str | None
    """Key into the paper's notes."""


class Entry(NamedTuple):
    """A line of a table."""

    title: str
    row: PublishedArm
    numbers: Mapping[str, Number | None]
    """By score; None where the paper says that there is none."""
    test: tuple[str, str, str] | None
    """(a, b, score) of a paired test, as a result file names them; None: the scores are the arm's own."""


class PaperTable(NamedTuple):
    """A table of the paper, or a paragraph of numbers."""

    name: str
    label: str
    """Its label in the source, or its section."""
    title: str
    scores: tuple[str, ...]
    """The scores that its entries have, in order of appearance."""
    entries: tuple[Entry, ...]


class Statement(NamedTuple):
    """A score that the running text repeats."""

    row: PublishedArm
    score: str
    number: Number


class Constant(NamedTuple):
    """A number of the set-up."""

    where: str
    quantity: str
    value: float


class Paper(NamedTuple):
    """The whole paper."""

    title: str
    headers: Mapping[str, str]
    """Score -> the column header that the tables give it."""
    rows: Mapping[str, PublishedArm]
    tables: Mapping[str, PaperTable]
    statements: tuple[Statement, ...]
    constants: tuple[Constant, ...]
    notes: Mapping[str, str]
    """What does not agree, by key."""
    general_notes: tuple[str, ...]

    def all_numbers(self) -> Iterator[Number]:
        """Every printed result: those of the tables, then those that the text repeats."""
        for table in self.tables.values():
            yield from (number for entry in table.entries for number in entry.numbers.values() if number)
        yield from (statement.number for statement in self.statements)

    def scores(self) -> Iterator[tuple[PublishedArm, str, Number]]:
        """Every printed score, table by table, then those of the text; numbers of paired tests are not scores."""
        for table in self.tables.values():
            for entry in table.entries:
                if entry.test is None:
                    yield from ((entry.row, score, number) for score, number in entry.numbers.items() if number)
        yield from self.statements

    def spread(self, row: PublishedArm, score: str) -> float | None:
        """The SD over seeds that the paper prints for a score, wherever it does; None where it does not."""
        return next((n.sd for r, s, n in self.scores() if (r, s) == (row, score) and n.sd is not None), None)


@cache
def load() -> Paper:
    """The paper that comes with the package."""
    return parse(json.loads(asset("paper.json").read_text("utf-8")))


def parse(document: Json) -> Paper:
    """Make records from the JSON document.

    Raises:
        ValueError: The document is wrong; the message says where.
    """
    try:
        rows = {name: _row(name, document["defaults"] | row) for name, row in document["rows"].items()}
        paper = Paper(
            document["title"],
            document["scores"],
            rows,
            {table["name"]: _table(table, document["scores"], rows) for table in document["tables"]},
            tuple(_statement(item, rows) for item in document["statements"]),
            tuple(Constant(**item) for item in document["constants"]),
            document["notes"],
            tuple(document["general_notes"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"paper.json: {type(error).__name__}: {error}") from error
    _check(paper)
    return paper


def _row(name: str, fields: dict[str, Any]) -> PublishedArm:
    return PublishedArm(name=name, **fields | {"operations": tuple(fields["operations"])})


def _table(table: Json, headers: Mapping[str, str], rows: Mapping[str, PublishedArm]) -> PaperTable:
    entries = tuple(_entry(item, table["label"], headers, rows) for item in table["entries"])
    scores = dict.fromkeys(score for entry in entries for score in entry.numbers)
    return PaperTable(table["name"], table["label"], table["title"], tuple(scores), entries)


def _entry(item: Json, label: str, headers: Mapping[str, str], rows: Mapping[str, PublishedArm]) -> Entry:
    row, column = rows[item["row"]], item.get("column")
    numbers = {
        score: None
        if value is None
        else _number(value, row, f"{label}, row {item['title']}, column {column or headers[score]}")
        for score, value in item["values"].items()
    }
    title = f"{item['title']}, {column}" if column else item["title"]
    return Entry(title, row, numbers, tuple(item["test"]) if "test" in item else None)


def _number(given: Any, row: PublishedArm, where: str) -> Number:
    """From a bare number, or from an object with `value` and further fields."""
    fields = {"sd": None, "n": row.seeds, "note": None} | (given if isinstance(given, dict) else {"value": given})
    return Number(where=where, **fields | {"value": float(fields["value"])})


def _statement(item: dict[str, Any], rows: Mapping[str, PublishedArm]) -> Statement:
    given = {key: value for key, value in item.items() if key not in ("row", "score", "where")}
    row = rows[item["row"]]
    return Statement(row, item["score"], _number(given, row, item["where"]))


def _check(paper: Paper) -> None:
    """Check that all names exist and that all numbers are possible."""
    for row in paper.rows.values():
        for name, known in (
            (row.dataset, plugins.SUBSTRATES),
            (row.encoder, plugins.ENCODERS),
            (row.readout, plugins.READOUTS),
            (row.assignment, plugins.ASSIGNMENTS),
            (row.objective, plugins.OBJECTIVES),
        ):
            if name not in known:
                raise ValueError(f"paper.json: row {row.name} names '{name}', which there is no plug-in for")
    for number in paper.all_numbers():
        if not math.isfinite(number.value) or (number.sd is not None and not 0 <= number.sd < 1) or number.n < 1:
            raise ValueError(f"paper.json: {number.where}: {number} cannot be")
        if number.note is not None and number.note not in paper.notes:
            raise ValueError(f"paper.json: {number.where}: there is no note '{number.note}'")
    for _, score, number in paper.scores():
        if score != "seeds_losing" and not 0 <= number.value <= 1:
            raise ValueError(f"paper.json: {number.where}: {score} is no share: {number.value}")
    for table in paper.tables.values():
        if len({entry.title for entry in table.entries}) < len(table.entries):
            raise ValueError(f"paper.json: table {table.name} has two rows of the same name")
