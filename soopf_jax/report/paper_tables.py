"""Our results beside the paper's numbers: a line for each number, then what the reader must know about the lines.

In: a table of the paper and, for each of its rows, a result or the reason why there is none. Out: a Sheet, as text,
Markdown or LaTeX. A number is inside the paper's spread if it is within one SD over seeds of the paper's mean, half a
unit of the last printed digit allowed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from soopf_jax.paper import Entry, Number, Paper, PaperTable, Row
from soopf_jax.report import tables
from soopf_jax.report.tables import Table, interval, number
from soopf_jax.runs import Obstacle, Run, slug
from soopf_jax.types import Json

ROUNDING = 0.0005
LOSS_THAT_COUNTS = 0.05
"""A seed loses accuracy under injective scoring if it loses more than this."""
FORMATS = {"p": ".3g", "t": ".2f", "seeds_losing": ".0f"}
"""Of scores that are not shares."""
LEGEND = "inside, outside: of the paper's mean +- SD over seeds, where it prints one"
NOT_THE_PAPER_S = "A stand-in: none of these numbers is one of the paper's, nor comparable with one."


class Sheet(NamedTuple):
    """A table and the notes beneath it."""

    name: str
    """The name of its files."""
    table: Table
    notes: tuple[str, ...]


class Measured(NamedTuple):
    """A score of ours."""

    value: float | None
    sd: float | None = None


# ------------------------------------------------------------------------------------------ against the paper


def against_paper(paper: Paper, table: PaperTable, find: Callable[[Row], Json | Obstacle]) -> Sheet:
    """Every number of a table of the paper, ours and the difference beside it."""
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
    """A line for each number of an entry; its title, or why it was not run, stands on the first."""
    title, why_not = entry.title, f"not run: {found.reason}" if isinstance(found, Obstacle) else ""
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
            return Measured(float(sum(shared - own > LOSS_THAT_COUNTS for shared, own in pairs)))
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
    """How to get what is missing, each thing once."""
    missing = (result for result in found if isinstance(result, Obstacle))
    return tuple(dict.fromkeys(f"not run; {remedy}" for result in missing for remedy in result.remedies))


def contradictions(paper: Paper) -> Sheet:
    """Where the paper's numbers or words do not agree with each other, or leave a gap."""
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


def stand_in(dataset: str, encoder: str, found: Mapping[Run, Json | Obstacle]) -> Sheet:
    """The paper's arms on data or an encoder that are not the paper's: ours alone, nothing to compare with."""
    lines: list[tuple[str, ...]] = []
    for run, result in found.items():
        if isinstance(result, Obstacle):
            lines += [(_arm_name(run, a), *["-"] * 6, f"not run: {result.reason}") for a in run.assignments]
        else:
            lines += [_stand_in_line(run, arm, result["protocol"]) for arm in result["arms"]]
    header = ("arm", "INJ", "95% interval", "many-to-one", "min", "collapse", "recovery", "protocol")
    title = f"Stand-in, not the paper's data or encoder: {dataset} with {encoder}"
    notes = (NOT_THE_PAPER_S, *remedies(found.values()))
    return Sheet(slug(f"stand-in {dataset} {encoder}"), Table(title, header, lines), notes)


def _arm_name(run: Run, assignment: str) -> str:
    return ", ".join(dict.fromkeys((run.readout, assignment, run.objective)))


def _stand_in_line(run: Run, arm: Json, protocol: str) -> tuple[str, ...]:
    return (
        _arm_name(run, arm["assignment"]),
        shown("inj", arm["inj"]["mean"], arm["inj"]["sd"]),
        interval(arm["inj"]["ci95"]),
        number(arm["non_injective"]["mean"]),
        number(arm["min_cell"]),
        number(arm["collapse"]["0.5"]),
        number(arm["recovery"]),
        protocol,
    )


# -------------------------------------------------------------------------------------------------- formats


def text(sheet: Sheet) -> str:
    """For the terminal; the last column, which is prose, flush left."""
    title, header, rows = sheet.table
    body = tables.text(Table(title, header[:-1], [row[:-1] for row in rows])).splitlines()
    ends = ["", header[-1], *(row[-1] for row in rows)]
    lines = [f"{line}  {end}".rstrip() for line, end in zip(body, ends, strict=True)]
    return "\n".join([*lines, *(f"  {note}" for note in sheet.notes)]) + "\n"


def markdown(sheet: Sheet) -> str:
    """A heading, a pipe table, a list of notes."""
    notes = "\n".join(f"- {note}" for note in sheet.notes)
    return f"### {sheet.table.title}\n\n{tables.markdown(sheet.table)}\n\n{notes}\n"


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
)


def latex(sheet: Sheet) -> str:
    """A table environment, for a document that loads booktabs."""

    def row(values: Sequence[str]) -> str:
        return " & ".join(map(_tex, values)) + r" \\"

    lines = [
        r"\begin{table}",
        rf"\caption{{{_tex(sheet.table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(sheet.table.header) - 2)}l}}",
        r"\toprule",
        row(sheet.table.header),
        r"\midrule",
        *map(row, sheet.table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par{{\footnotesize {_tex(note)}}}" for note in sheet.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(value: str) -> str:
    return value.translate(_LATEX).replace("+-", r"$\pm$").replace("--", "-{}-")
