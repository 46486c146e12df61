"""Does it reproduce, and where not? `python -m soopf_jax.reproduce` runs what the paper's tables need and compares.

The plan and the tables go to stdout, progress to stderr, every table as text, Markdown and LaTeX to --out. A row that
cannot run here says so and how to change that; nothing else is ever put in its place.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax import atomic, bench, cli, cost, planning, plugins, results, runs, sensitivity
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.paper import Paper, Row, load
from soopf_jax.planning import Planned
from soopf_jax.report import paper_tables, tables
from soopf_jax.report.paper_tables import Sheet
from soopf_jax.runs import Obstacle, Places, Run
from soopf_jax.types import Json

PROG = "soopf_jax.reproduce"
DATASETS, ENCODERS = ("shapes3d-lite", "mujoco"), ("pixels",)
"""Of the stand-ins and of the sensitivity study."""
STAND_IN, SENSITIVITY, CONTRADICTIONS = "stand-in", "sensitivity", "contradictions"
FORMATS = {"txt": paper_tables.text, "md": paper_tables.markdown, "tex": paper_tables.latex}

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
Optional = Annotated[str, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]


@dataclass(frozen=True)
class Reproduce:
    """Run what the paper's tables need and write each table with our numbers beside the paper's.

    Says first what every run will cost on this machine. What is done is not run again, and what cannot run here says
    what it needs.
    """

    table: Names = ()
    """Of the paper: headline, baselines, carrier, cross-encoder, scaling, two-edits, router, laundering, tests,
    thresholds, cells. contradictions: what does not agree in it. stand-in: its arms on what is at hand. sensitivity:
    choices that it leaves open, one changed at a time. Default: all but sensitivity."""
    encoder: Names = ()
    """Run only rows of these encoders; stand-ins and sensitivity take them in place of pixels."""
    dataset: Names = ()
    """Run only rows of these data sets; stand-ins and sensitivity take them in place of shapes3d-lite and mujoco."""
    quick: bool = False
    """3 seeds, 2 restarts, 500 steps throughout; labelled so in every table."""
    max_hours: float = 2.0
    """Hours for all runs together, as expected: a run that does not fit in is left out, with its command."""
    dry_run: bool = False
    """Print the plan and write the tables from what is done, but run nothing."""
    runs: str = "runs"
    """Where result folders are, and go."""
    out: str = "runs/tables"
    """Where the tables go."""
    data_root: str = "data"
    """Folder of the original data sets."""
    cache_dir: Optional = ""
    """Where features are kept. Default: the user's cache folder."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, run, exit code."""
    return cli.run(
        lambda: run(check(cli.parse(Reproduce, PROG, args, Reproduce()))),
        "interrupted; run the same command again to go on",
    )


def check(asked: Reproduce) -> Reproduce:
    """What was asked, if its names exist and its hours can be."""
    valid = (*load().tables, CONTRADICTIONS, STAND_IN, SENSITIVITY)
    for name in asked.table:
        if name not in valid:
            raise unknown_name("table", name, valid)
    for name in asked.dataset:
        plugins.resolve("dataset", plugins.SUBSTRATES, name)
    for name in asked.encoder:
        plugins.resolve("encoder", plugins.ENCODERS, name)
    if not asked.max_hours > 0:
        raise UserError(f"--max-hours must be positive, not {asked.max_hours}; give the hours that the runs may take")
    return asked


def run(asked: Reproduce) -> None:
    """Plan, run, compare."""
    paper, places = load(), Places(Path(asked.runs), asked.data_root, asked.cache_dir)
    names = asked.table or (*paper.tables, CONTRADICTIONS, STAND_IN)
    atomic.check_writable(Path(asked.out))
    atomic.check_writable(places.runs / "run")
    planned = planning.plan(
        wanted_runs(paper, names, asked), lambda r: chosen(r, asked), places, cost.machine_rate(), asked.max_hours
    )
    print(paper_tables.text(plan_sheet(planned)), flush=True)
    found = {p.run: execute(p, places, asked.dry_run) for p in planned}
    sheets = [sheet for name in names for sheet in make_sheets(name, paper, found, asked)]
    for sheet in sheets:
        print(paper_tables.text(sheet))
        write(sheet, Path(asked.out))
    print(f"tables: {asked.out}/ as .txt, .md and .tex")


# ------------------------------------------------------------------------------------------------ the plan


def wanted_runs(paper: Paper, names: Sequence[str], asked: Reproduce) -> dict[Run, list[str]]:
    """The runs that the tables need, each once, with the tables that need it."""
    by_row = runs.paper_runs(paper, asked.quick)
    wanted: dict[Run, list[str]] = {}
    for name in names:
        if name == STAND_IN:
            needed = runs.stand_ins(paper, asked.dataset or DATASETS, asked.encoder or ENCODERS, asked.quick)
        elif name == SENSITIVITY:
            needed = [r for default in studies(asked) for r in sensitivity.study(default)]
        elif name == CONTRADICTIONS:
            needed = []
        else:
            needed = [by_row[entry.row.name] for entry in paper.tables[name].entries]
        for r in dict.fromkeys(needed):
            wanted.setdefault(r, []).append(name)
    return wanted


def studies(asked: Reproduce) -> list[Run]:
    """The default run of each table of the sensitivity study."""
    return [
        sensitivity.default_run(dataset, encoder, asked.quick)
        for dataset in asked.dataset or DATASETS
        for encoder in asked.encoder or ENCODERS
    ]


def chosen(r: Run, asked: Reproduce) -> bool:
    """Whether --dataset and --encoder let a run take place."""
    return (not asked.dataset or r.dataset in asked.dataset) and (not asked.encoder or r.encoder in asked.encoder)


def plan_sheet(planned: Sequence[Planned]) -> Sheet:
    """What each run will cost, or why it will not take place."""
    rows = []
    for p in planned:
        fate = "done" if p.document else f"about {planning.duration(p.seconds)}"
        rows.append((runs.folder(p.run), f"not run: {p.obstacle.reason}" if p.obstacle else fate, " ".join(p.tables)))
    total = planning.duration(sum(p.seconds for p in planned if not p.obstacle))
    return Sheet("plan", tables.Table(f"Plan: about {total} in all", ("run", "cost here", "for tables"), rows), ())


# ------------------------------------------------------------------------------------------------- the runs


def execute(planned: Planned, places: Places, dry_run: bool) -> Json | Obstacle:
    """The result of a run: made now unless it is there; or why there is none."""
    if planned.document:
        return planned.document
    if planned.obstacle:
        return planned.obstacle
    args = runs.arguments(planned.run, places)
    if dry_run:
        return planning.too_long(planned.run, planned.seconds, places)
    print(f"\n{runs.command(args)}", file=sys.stderr, flush=True)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            bench.run(bench.parse(args))
    except UserError as error:
        print(f"not run: {error}", file=sys.stderr)
        reason = str(error).partition(";")[0]
        return Obstacle(reason, (str(error),))
    return results.load(places.runs / runs.folder(planned.run)).document


# ----------------------------------------------------------------------------------------------- the tables


def make_sheets(name: str, paper: Paper, found: Mapping[Run, Json | Obstacle], asked: Reproduce) -> list[Sheet]:
    """The tables of one name: one of the paper's, or one for each stand-in or study."""
    if name == STAND_IN:
        own = runs.stand_ins(paper, asked.dataset or DATASETS, asked.encoder or ENCODERS, asked.quick)
        pairs = dict.fromkeys((r.dataset, r.encoder) for r in own)
        return [
            paper_tables.stand_in(*pair, {r: found[r] for r in own if (r.dataset, r.encoder) == pair}) for pair in pairs
        ]
    if name == SENSITIVITY:
        return [sensitivity.sheet(default, found) for default in studies(asked)]
    if name == CONTRADICTIONS:
        return [paper_tables.contradictions(paper)]
    by_row = runs.paper_runs(paper, asked.quick)

    def find(row: Row) -> Json | Obstacle:
        return found[by_row[row.name]]

    return [paper_tables.against_paper(paper, paper.tables[name], find)]


def write(sheet: Sheet, out: Path) -> None:
    """The table in every format."""
    out.mkdir(parents=True, exist_ok=True)
    for suffix, render in FORMATS.items():
        atomic.write_bytes(out / f"{sheet.name}.{suffix}", render(sheet).encode())


if __name__ == "__main__":
    sys.exit(main())
