"""`soopf study` plans and runs many runs as one: which layer of which encoder binds what to where?

The plan goes to stdout before anything runs, then the table of results. Progress goes to stderr. Every row is an
ordinary result folder inside --out, beside a CSV file of all of them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import atomic, cli

PROG = "soopf_jax.study"
KEEP = ("none", "study", "all")

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]
Folder = Annotated[str, tyro.conf.arg(metavar="DIR")]
Count = Annotated[int | None, tyro.conf.arg(metavar="INT")]


@dataclass(frozen=True)
class Study:
    """Run the product of data sets, encoders, layers and readouts, and put their scores into one file.

    The plan says first what every run will cost here. Finished runs are not repeated: the same command goes on where it
    stopped. A run that cannot run is reported and does not stop the others.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml")] = ""
    """A study as a file: options of a run, lists of them, and tables [[row]] laid over them. Options below win."""
    dataset: Names = ()
    """Data sets. Default: shapes3d-lite."""
    encoder: Names = ()
    """Encoders. Default: pixels."""
    layer: Names = ()
    """all: every block. last: the output after the final norm. 6, -1: a block. 0.5: relative depth. An encoder without
    layers is read at its output. Default: last."""
    readout: Names = ()
    """Readouts. Default: soopf."""
    assignment: Names = ()
    """The arms of every run. Default: factorial, learned, compressed; a probe has its own."""
    objective: Names = ()
    """Objectives. Default: core; a probe has its own."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,... ...")] = ()
    """Any other option of a run, with one value or several: learning_rate=0.0025,0.005 preset=paper,ours."""
    quick: bool = False
    """3 seeds, 2 restarts, 500 steps; labelled so in every output."""
    seeds: Count = None
    """Seeds of every run."""
    restarts: Count = None
    """Restarts of every run."""
    steps: Count = None
    """Adam steps of every fit."""
    pairs_per_cell: Count = None
    """Pairs of each cell. Default: the paper's number for the data set."""
    keep_features: Annotated[str, tyro.conf.arg(metavar="none|study|all")] = "all"
    """none: remove the features of a run as soon as no other run needs them. study: remove them when the study is
    complete. Features that were there before are never removed."""
    max_hours: float = float("inf")
    """The most hours for all runs together, by estimate. A run that does not fit is left out; its command is shown."""
    dry_run: bool = False
    """Print the plan and write the scores of finished runs, but run nothing."""
    init: bool = False
    """Write a commented example to FILE and stop."""
    out: Folder = "runs/study"
    """The folder of the study."""
    data_root: Folder = "data"
    """Folder of the original data sets."""
    cache_dir: Folder = ""
    """Where features are kept. Default: the user's cache folder."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and run the study. Returns the exit code."""
    return cli.run(
        lambda: run(check(cli.parse(Study, PROG, args, Study()))),
        "interrupted; run the same command again to go on",
    )


def check(asked: Study) -> Study:
    """Check the options and return them.

    Raises:
        UserError: An option has an impossible value.
    """
    if asked.keep_features not in KEEP:
        raise unknown_name("value of --keep-features", asked.keep_features, KEEP)
    if not asked.max_hours > 0:
        raise UserError(f"--max-hours must be positive, not {asked.max_hours}; give the hours that the runs may take")
    if asked.init and not asked.file:
        raise UserError("--init needs the name of the file to write; for example soopf study my_study.toml --init")
    return asked


def options_of(asked: Study) -> dict[str, Any]:
    """The options of runs that the command line gives."""
    from soopf_jax.studies.definition import parse_settings

    lists = ("dataset", "encoder", "layer", "readout", "assignment", "objective")
    sizes = ("seeds", "restarts", "steps", "pairs_per_cell")
    given: dict[str, Any] = {name: list(getattr(asked, name)) for name in lists if getattr(asked, name)}
    given |= {name: getattr(asked, name) for name in sizes if getattr(asked, name) is not None}
    given |= {"quick": True} if asked.quick else {}
    return given | parse_settings(asked.set)


def run(asked: Study) -> None:
    """Plan the study, run it, and write what comes out.

    Raises:
        UserError: The study cannot be read, or a folder cannot be written.
    """
    from soopf_jax.studies import cost, definition, outcome, page, planning, running, sheets
    from soopf_jax.studies.opening import Openers
    from soopf_jax.studies.rows import Obstacle, Places, folder

    given = options_of(asked)
    if asked.init:
        write_example(Path(asked.file), definition.EXAMPLE)
        return
    out, openers = Path(asked.out), Openers()
    products = definition.read_file(Path(asked.file), given) if asked.file else [given]
    rows = definition.rows_of(products, openers.depth)
    atomic.check_writable(out / "run")
    places = Places(out, asked.data_root, asked.cache_dir)
    planned = planning.plan(dict.fromkeys(rows, ()), places, cost.machine_rate(), asked.max_hours, openers=openers)
    print(sheets.text(planning.plan_sheet(planned)), flush=True)
    if asked.dry_run:
        found = running.dry(planned, places)
    else:
        found = running.carry_out_all(planned, places, openers, asked.keep_features)
    arms = outcome.outcomes(found, out, {row.encoder_name: openers.depth(row.encoder_name) for row in rows})
    missing = {folder(row): result.reason for row, result in found.items() if isinstance(result, Obstacle)}
    done = f"{len(found) - len(missing)} of {len(found)} runs are done, {len(missing)} are missing"
    if arms:
        outcome.write(arms, out)
        page.write(arms, missing, out)
        done += f": {out}/{page.NAME} and {out}/study.csv"
    print(done)


def write_example(path: Path, text: str) -> None:
    """Write the commented example.

    Raises:
        UserError: The file exists.
    """
    if path.exists():
        raise UserError(f"{path} exists already; choose another name")
    atomic.check_writable(path)
    atomic.write_bytes(path, text.encode())
    print(f"written: {path}; edit it, then: soopf study {path}")


if __name__ == "__main__":
    sys.exit(main())
