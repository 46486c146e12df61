"""`python -m soopf_jax.leaderboard FOLDER`: every result below a folder in one table, as text, page and CSV.

A row per arm. Rows are sorted by substrate, grid, pairs and protocol before INJ: only what stands under the same of
these may be ranked, and the protocol is part of every row.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from soopf_jax import atomic, cli, results
from soopf_jax.errors import UserError
from soopf_jax.report import shell
from soopf_jax.report.naming import RunName, name_run, printable
from soopf_jax.report.tables import Table, html, interval, number, text, two_edits
from soopf_jax.types import Json

PROG = "soopf_jax.leaderboard"
TITLE = "Leaderboard"
NOTE = (
    "INJ: held-out accuracy after injective alignment, with the 95 % t interval over seeds. Compare rows of the same"
    " substrate, grid, pairs and protocol only; python -m soopf_jax.compare tests differences."
)
_CSV_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")

Output = Annotated[str, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class Leaderboard:
    """Put every result below a folder into one table: encoders x substrates x assignments, with intervals."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Where result folders lie, at any depth. What cannot be read is listed on stderr and left out."""
    html: Output = ""
    """Write a self-contained page there; a click on a column's header sorts."""
    csv: Output = ""
    """Write all rows there, numbers in full."""


class Row(NamedTuple):
    """One arm of one run."""

    name: RunName
    arm: Json
    """Its element of the result's `arms`."""
    folder: str


def main(args: Sequence[str] | None = None) -> int:
    """Parse, gather, exit code."""
    return cli.run(lambda: run(cli.parse(Leaderboard, PROG, args)))


def run(options: Leaderboard) -> None:
    """From a folder to its table."""
    root = Path(options.folder)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give one that holds results")
    outputs = [Path(name) for name in (options.html, options.csv) if name]
    for path in outputs:
        atomic.check_writable(path)
    rows = gather(root)
    if not rows:
        raise UserError(f"{root} holds no result that can be shown; python -m soopf_jax.bench makes one")
    table = as_table(rows)
    if options.html:
        atomic.write_bytes(Path(options.html), page(table).encode())
    if options.csv:
        atomic.write_bytes(Path(options.csv), as_csv(rows).encode())
    print(text(table))
    for path in outputs:
        print(f"written: {path}", file=sys.stderr)


# ----------------------------------------------------------------------------------------------- gathering


def gather(root: Path) -> list[Row]:
    """The arms of all results below a folder; what is left out is said on stderr."""
    rows: list[Row] = []
    for folder in result_folders(root):
        try:
            rows += rows_of(folder, folder.relative_to(root))
        except UserError as error:
            print(f"left out: {printable(str(error))}", file=sys.stderr)
    return sorted(rows, key=_rank)


def result_folders(root: Path) -> Iterator[Path]:
    """Folders with a `result.json`; hidden ones belong to runs that are not finished."""
    for path in sorted(root.rglob("result.json")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path.parent


def rows_of(folder: Path, shown: Path) -> list[Row]:
    """The arms of one result."""
    document = results.load(folder).document
    if two_edits(document["config"]):
        raise UserError(f"{folder} reads two edits at once and holds no cell out")
    try:
        name = name_run(document)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    return [Row(name, arm, printable(str(shown))) for arm in document["arms"]]


def _rank(row: Row) -> tuple[Any, ...]:
    """Best first within the rows that may be ranked, undefined scores last."""
    name, mean = row.name, row.arm["inj"]["mean"]
    return (name.substrate, name.grid, name.pairs, name.protocol, mean is None, -(mean or 0.0), row.folder)


# ------------------------------------------------------------------------------------------------- writing


def as_table(rows: Iterable[Row]) -> Table:
    """For people: three digits, scores beside the names that matter most."""
    header = (
        *("substrate", "encoder", "assignment", "protocol"),
        *("INJ", "95% interval", "many-to-one", "gap", "min", "collapse .5", "seeds"),
        *("readout", "objective", "grid", "pairs", "result"),
    )
    return Table("All arms, best first within substrate, grid, pairs and protocol", header, [_cells(r) for r in rows])


def _cells(row: Row) -> tuple[str, ...]:
    name, arm = row.name, row.arm
    scores = (
        number(arm["inj"]["mean"]),
        interval(arm["inj"]["ci95"]),
        number(arm["non_injective"]["mean"]),
        number(arm["laundering_gap"]),
        number(arm["min_cell"]),
        number(arm["collapse"]["0.5"]),
        str(len(arm["inj"]["per_seed"])),
    )
    first = (name.substrate, name.encoder, printable(arm["assignment"]), name.protocol)
    return (*first, *scores, name.readout, name.objective, name.grid, name.pairs, row.folder)


def page(table: Table) -> str:
    """A self-contained page whose table sorts."""
    return shell.page(TITLE, f"<h1>{TITLE}</h1><p>{escape(NOTE)}</p>{html(table)}", "body { max-width: none; }")


def as_csv(rows: Iterable[Row]) -> str:
    """For programs: every number in full, empty where undefined; text that a spreadsheet would run is made harmless."""
    records = [_record(row) for row in rows]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: harmless(value) for key, value in record.items()} for record in records)
    return buffer.getvalue()


def _record(row: Row) -> dict[str, Any]:
    arm = row.arm
    low, high = arm["inj"]["ci95"] or (None, None)
    return {
        **row.name._asdict(),
        "assignment": printable(arm["assignment"]),
        "seeds": len(arm["inj"]["per_seed"]),
        "failed_fits": arm["failed_fits"],
        "inj": arm["inj"]["mean"],
        "inj_sd": arm["inj"]["sd"],
        "inj_ci95_low": low,
        "inj_ci95_high": high,
        "non_injective": arm["non_injective"]["mean"],
        "laundering_gap": arm["laundering_gap"],
        "min_cell": arm["min_cell"],
        **{f"collapse_{threshold}": rate for threshold, rate in arm["collapse"].items()},
        "recovery": arm["recovery"],
        "exact_recovery": arm["exact_recovery"],
        "distinct_support_rate": arm["distinct_support_rate"],
        "result": row.folder,
    }


def harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay as they are."""
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) and not _CSV_NUMBER.fullmatch(value):
        return f"'{value}"
    return value


if __name__ == "__main__":
    sys.exit(main())
