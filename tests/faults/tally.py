"""Counts the outcomes of faults and prints them as a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from soopf_jax.report.tables import Table, text


@dataclass
class Tally:
    """The outcomes of all tries of one fault."""

    fault: str
    tries: int = 0
    survived: int = 0
    """Tries in which the program ended cleanly and the next run succeeded."""
    wrong: int = 0
    """Tries with another result than that of an undisturbed run."""
    lost: int = 0
    """Tries in which finished work was done again."""
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    """Why the fault was not tried."""

    def record(self, problems: Iterable[str | None] = (), wrong: bool = False, lost: bool = False) -> None:
        """Count one try. It has survived if `problems` is empty or holds only None."""
        found = [problem for problem in problems if problem]
        self.tries += 1
        self.survived += not found
        self.wrong += wrong
        self.lost += lost
        self.problems += found + ["wrong result"] * wrong + ["work lost"] * lost


def table(tallies: Sequence[Tally]) -> str:
    """The table of `make faults`, with every problem below it."""
    header = ("fault", "tries", "survived", "wrong results", "work lost")
    rows = [(t.fault, *([f"skipped: {t.skipped}", "", "", ""] if t.skipped else cells(t))) for t in tallies]
    problems = [f"{t.fault}: {problem}" for t in tallies for problem in t.problems]
    return "\n".join([text(Table("Faults", header, rows)), *problems])


def cells(tally: Tally) -> list[str]:
    """The numbers of a row."""
    return [str(tally.tries), str(tally.survived), str(tally.wrong), str(tally.lost or "none")]
