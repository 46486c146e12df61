"""Our results beside the paper's numbers: a line for each number, then notes on the lines.

In: a table of the paper and, for each of its rows, a result or the reason why there is none. Out: a Sheet, as text,
Markdown or LaTeX. A number is inside the paper's spread if it is within one SD over seeds of the paper's mean, half a
unit of the last printed digit allowed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from soopf_jax.experiments.naming import with_caveat
from soopf_jax.experiments.options import Bench
from soopf_jax.paper.published import Entry, Number, Paper, PaperTable, PublishedArm
from soopf_jax.report.tables import Table
from soopf_jax.runtime.hashing import slug
from soopf_jax.runtime.text import number
from soopf_jax.scoring import statistics
from soopf_jax.scoring.statistics import shown_interval
from soopf_jax.studies.rows import Obstacle, arm_names
from soopf_jax.studies.sheets import Sheet
from soopf_jax.types import Json

ROUNDING = 0.0005
FORMATS = {"p": ".3g", "t": ".2f", "seeds_losing": ".0f"}
"""Number formats of scores that are not shares."""
LEGEND = "inside, outside: whether ours lies within the paper's mean +- SD over seeds, where it prints an SD"
NOT_THE_PAPER_S = "A stand-in: these are not the paper's numbers and cannot be compared with them."


class Measured(NamedTuple):
    """A score of ours."""

    value: float | None
    sd: float | None = None


# ------------------------------------------------------------------------------------------ against the paper


def against_paper(paper: Paper, table: PaperTable, find: Callable[[PublishedArm], Json | Obstacle]) -> Sheet:
    """Every number of a table of the paper, with ours and the difference beside it."""
    marks = {key: f"[{index}]" for index, key in enumerate(_notes(table), 1)}
    found = [find(entry.row) for entry in table.entries]
    lines = [
        line
        for entry, result in zip(table.entries, found, strict=True)
        for line in _entry_lines(paper, entry, result, marks)
    ]
    header = ("row", "score", "paper", "ours", "difference", "verdict")
    notes = [f"{mark} {paper.notes[key]}" for key, mark in marks.items()]
    title = f"{table.title} (paper: {table.label})"
    return Sheet(table.name, Table(title, header, lines), (LEGEND, *notes, *remedies(found)))


def _entry_lines(
    paper: Paper, entry: Entry, found: Json | Obstacle, marks: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """A line for each number of an entry. The first line has the title and, if it was not run, the reason."""
    title = with_caveat(entry.title, entry.row.readout)
    why_not = f"not run: {found.reason}" if isinstance(found, Obstacle) else ""
    for score, printed in entry.numbers.items():
        theirs = "n/a" if printed is None else shown(score, printed.value, printed.sd)
        mark = f" {marks[printed.note]}" if printed and printed.note else ""
        if isinstance(found, Obstacle):
            ours = ("-", "-", why_not)
        else:
            ours = _compare(found, entry, score, None if entry.test else paper.spread(entry.row, score))
        yield (title, paper.headers[score], theirs + mark, *ours)
        title, why_not = "", ""


def _compare(document: Json, entry: Entry, score: str, spread: float | None) -> tuple[str, str, str]:
    """(ours, difference, verdict) of one number."""
    ours, printed = measured(document, entry, score), entry.numbers[score]
    difference, verdict = "-", ""
    if printed and ours.value is not None:
        difference = f"{ours.value - printed.value:+{FORMATS.get(score, '.3f')}}"
        verdict = _verdict(ours.value, printed, spread)
    protocol = "" if document["protocol"] == "full" else f"({document['protocol']} protocol)"
    return shown(score, *ours), difference, f"{verdict} {protocol}".strip()


def _verdict(ours: float, printed: Number, spread: float | None) -> str:
    if spread is None:
        return ""
    return "inside" if abs(ours - printed.value) <= spread + ROUNDING else "outside"


def measured(document: Json, entry: Entry, score: str) -> Measured:
    """Our value of a score of the paper: from the arm of the entry's row, or from its paired test."""
    if entry.test:
        wanted = dict(zip(("a", "b", "score"), entry.test, strict=True))
        return Measured(next(test for test in document["tests"] if wanted.items() <= test.items())[score])
    arm = next(arm for arm in document["arms"] if arm["assignment"] == entry.row.assignment)
    match score.split("/"):
        case ["cells", operation, end]:
            cells = [value for name, value in arm["inj"]["per_cell"].items() if name.endswith(f"/{operation}")]
            return Measured(None if None in cells else (min if end == "low" else max)(cells))
        case ["seeds_losing"]:
            pairs = list(zip(arm["non_injective"]["per_seed"], arm["inj"]["per_seed"], strict=True))
            if any(None in pair for pair in pairs):
                return Measured(None)
            return Measured(float(sum(shared - own > statistics.LOSS for shared, own in pairs)))
        case path:
            found: Any = document if entry.row.router else arm
            for key in path:
                found = found[key]
            return Measured(found["mean"], found["sd"]) if isinstance(found, Mapping) else Measured(found)


def shown(score: str, value: float | None, sd: float | None = None) -> str:
    """`0.874 +- 0.009`."""
    if value is None:
        return "n/a"
    return f"{value:{FORMATS.get(score, '.3f')}}" + ("" if sd is None else f" +- {sd:.3f}")


def remedies(found: Iterable[Json | Obstacle]) -> tuple[str, ...]:
    """How to get what is missing, without repetitions."""
    missing = (result for result in found if isinstance(result, Obstacle))
    return tuple(dict.fromkeys(f"not run; {remedy}" for result in missing for remedy in result.remedies))


def contradictions(paper: Paper) -> Sheet:
    """The places where the paper contradicts itself or leaves something open."""
    rows = [
        (" ".join(table.name for table in paper.tables.values() if key in _notes(table)), note)
        for key, note in paper.notes.items()
    ]
    rows += [("in general", note) for note in paper.general_notes]
    title = "What does not agree, or is not said, in the paper"
    return Sheet("contradictions", Table(title, ("table", "what"), rows), ())


def _notes(table: PaperTable) -> list[str]:
    """The keys of the notes on its numbers, in order of appearance."""
    printed = (number for entry in table.entries for number in entry.numbers.values())
    return list(dict.fromkeys(number.note for number in printed if number and number.note))


# ------------------------------------------------------------------------------------------------ stand-ins


def stand_in(dataset: str, encoder: str, found: Mapping[Bench, Json | Obstacle]) -> Sheet:
    """The paper's arms on data or an encoder that are not the paper's: ours alone, nothing to compare with."""
    lines: list[tuple[str, ...]] = []
    for run, result in found.items():
        if isinstance(result, Obstacle):
            lines += [(_arm_name(run, a), *["-"] * 6, f"not run: {result.reason}") for a in arm_names(run).assignments]
        else:
            lines += [_stand_in_line(run, arm, result["protocol"]) for arm in result["arms"]]
    header = ("arm", "INJ", "95% interval", "many-to-one", "min", "collapse", "recovery", "protocol")
    title = f"Stand-in, not the paper's data or encoder: {dataset} with {encoder}"
    notes = (NOT_THE_PAPER_S, *remedies(found.values()))
    return Sheet(slug(f"stand-in {dataset} {encoder}"), Table(title, header, lines), notes)


def _arm_name(run: Bench, assignment: str) -> str:
    readout = with_caveat(run.readout_name, run.readout_name)
    return ", ".join(dict.fromkeys((readout, assignment, arm_names(run).objective)))


def _stand_in_line(run: Bench, arm: Json, protocol: str) -> tuple[str, ...]:
    return (
        _arm_name(run, arm["assignment"]),
        shown("inj", arm["inj"]["mean"], arm["inj"]["sd"]),
        shown_interval(arm["inj"]),
        number(arm["non_injective"]["mean"]),
        number(arm["min_cell"]),
        number(arm["collapse"]["0.5"]),
        number(arm["recovery"]),
        protocol,
    )
