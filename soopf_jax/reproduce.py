"""`python -m soopf_jax.reproduce` runs what the paper's tables need and compares our numbers with the paper's.

The plan and the tables go to stdout, and progress goes to stderr. Every table is also written to --out as text,
Markdown and LaTeX. A row that cannot run here says why and what to do about it. It is never filled with other numbers.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.paper.published import CONTRADICTIONS, SENSITIVITY, STAND_IN, load
from soopf_jax.runtime import atomic, cli

PROG = "soopf_jax.reproduce"

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]
Folder = Annotated[str, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class Reproduce:
    """Run what the paper's tables need and write each table with our numbers beside the paper's.

    The command first says what every run will cost on this machine. Finished runs are not repeated, and a row that
    cannot run here says what it needs.
    """

    table: Names = ()
    """Tables of the paper: headline, baselines, carrier, cross-encoder, scaling, two-edits, router, laundering, tests,
    thresholds, cells. contradictions: what does not agree in the paper. stand-in: the paper's arms on data and encoders
    that are not its own. sensitivity: choices that the paper leaves open, one changed at a time. Default: all but
    sensitivity."""
    encoder: Names = ()
    """Run only rows of these encoders; stand-ins and sensitivity take them in place of pixels."""
    dataset: Names = ()
    """Run only rows of these data sets; stand-ins and sensitivity take them in place of shapes3d-lite and mujoco."""
    quick: bool = False
    """3 seeds, 2 restarts, 500 steps throughout; labelled so in every table."""
    max_hours: float = 2.0
    """The most hours for all runs together, by estimate. A run that does not fit is left out; its command is shown."""
    dry_run: bool = False
    """Print the plan and write the tables from finished runs, but run nothing."""
    runs: Folder = "runs"
    """Where result folders are read and written."""
    out: Folder = "runs/tables"
    """Where the tables go."""
    data_root: Folder = "data"
    """Folder of the original data sets."""
    cache_dir: Folder = ""
    """Where features are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache
    folder."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and reproduce. Returns the exit code."""
    return cli.run(
        lambda: run(check(cli.parse(Reproduce, PROG, args, Reproduce()))),
        "interrupted; run the same command again to go on",
    )


def check(asked: Reproduce) -> Reproduce:
    """Check the options and return them.

    Raises:
        UserError: A name is unknown, or the hours are not positive.
    """
    valid = (*load().tables, CONTRADICTIONS, STAND_IN, SENSITIVITY)
    for name in asked.table:
        if name not in valid:
            raise unknown_name("table", name, valid)
    for name in asked.dataset:
        plugins.find("dataset", plugins.SUBSTRATES, name)
    for name in asked.encoder:
        plugins.find("encoder", plugins.ENCODERS, name)
    if not asked.max_hours > 0:
        raise UserError(f"--max-hours must be positive, not {asked.max_hours}; give the hours that the runs may take")
    return asked


def run(asked: Reproduce) -> None:
    """Plan the runs, carry them out, and print and write the tables.

    Raises:
        UserError: A folder cannot be written.
    """
    from soopf_jax.paper import selection
    from soopf_jax.studies import cost, planning, running, sheets
    from soopf_jax.studies.opening import Openers
    from soopf_jax.studies.rows import Places

    paper, places, openers = load(), Places(Path(asked.runs), asked.data_root, asked.cache_dir), Openers()
    wanted = selection.Selection(asked.dataset, asked.encoder, asked.quick)
    names = asked.table or (*paper.tables, CONTRADICTIONS, STAND_IN)
    atomic.check_writable(Path(asked.out))
    atomic.check_writable(places.runs / "run")
    planned = planning.plan(
        selection.wanted_runs(paper, names, wanted),
        places,
        cost.machine_rate(),
        asked.max_hours,
        lambda r: selection.chosen(r, wanted),
        openers,
    )
    print(sheets.text(planning.plan_sheet(planned)), flush=True)
    found = running.dry(planned, places) if asked.dry_run else running.carry_out_all(planned, places, openers)
    for sheet in (sheet for name in names for sheet in selection.make_sheets(name, paper, found, wanted)):
        print(sheets.text(sheet))
        sheets.write(sheet, Path(asked.out))
    print(f"tables: {asked.out}/ as .txt, .md and .tex")


if __name__ == "__main__":
    sys.exit(main())
