"""`soopf study` plans and runs many runs as one: which layer of which encoder binds what to where?

The plan goes to stdout before anything runs, then the table of results. Progress goes to stderr. Every row is an
ordinary result folder inside --out, beside a CSV file of all of them. The rows are run in this process, or as jobs of
Slurm.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.help import Groups

if TYPE_CHECKING:
    from soopf_jax.studies.opening import Openers
    from soopf_jax.studies.planning import Planned
    from soopf_jax.studies.rows import Places
    from soopf_jax.studies.running import Found
    from soopf_jax.studies.slurm import Launch

PROG = "soopf_jax.study"
KEEP = ("none", "study", "all")
LOCAL, SLURM = LAUNCHERS = ("local", "slurm")

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]
Folder = Annotated[str, tyro.conf.arg(metavar="DIR")]
Count = Annotated[int | None, tyro.conf.arg(metavar="INT")]
Text = Annotated[str, tyro.conf.arg(metavar="NAME")]


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
    """all: every block. last: the output after the final norm. 6, -1: a block, counted from the front or from the end.
    0.5: the block at this relative depth. An encoder without layers is read at its output. Default: last."""
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
    log: Annotated[str, tyro.conf.arg(metavar="trackio|wandb|none")] = ""
    """Where every finished run is logged besides. Default: none."""
    keep_features: Annotated[str, tyro.conf.arg(metavar="none|study|all")] = "all"
    """none: remove the features of a run as soon as no other run needs them. study: remove them when the study is
    complete. Features that were there before are never removed."""
    max_hours: float = float("inf")
    """The most hours for all runs together, by estimate. A run that does not fit is left out; its command is shown.
    Default: no limit."""
    dry_run: bool = False
    """Print the plan and write the scores of finished runs, but run nothing."""
    init: bool = False
    """Write a commented example to FILE and stop."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW ...")] = ()
    """Run these rows alone, by the names that the plan shows. The tables of the study are not written."""
    launcher: Annotated[str, tyro.conf.arg(metavar="local|slurm")] = LOCAL
    """local: run the rows here, one after another. slurm: submit them as jobs of Slurm, and wait for them."""
    partition: Text = ""
    """With --launcher slurm: where the jobs run. Default: the cluster's own."""
    gpus: Annotated[str, tyro.conf.arg(metavar="N")] = ""
    """With --launcher slurm: GPUs of each job, as sbatch has it: 1 or a100:1. Default: none."""
    time: Annotated[str, tyro.conf.arg(metavar="TIME")] = ""
    """With --launcher slurm: the time of each job, in minutes or as 2:00:00. A job that runs out of it is started again
    and goes on. Default: twice the plan's estimate."""
    mem: Annotated[str, tyro.conf.arg(metavar="SIZE")] = ""
    """With --launcher slurm: the memory of each job, such as 16G. Default: the table of the plan and 4 GB."""
    slurm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """With --launcher slurm: any other options of sbatch: qos=long cpus-per-task=8 exclusive."""
    rows_per_job: Annotated[int, tyro.conf.arg(metavar="INT")] = 1
    """With --launcher slurm: rows of the same data set and encoder that one job runs, one after another."""
    wait: bool = True
    """With --launcher slurm: wait for the jobs. With --no-wait, the same command tells later where they are."""
    out: Folder = "runs/study"
    """The folder of the study."""
    data_root: Folder = "data"
    """Folder of the original data sets."""
    cache_dir: Folder = ""
    """Where features are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache
    folder."""


PROTOCOL = ("quick", "seeds", "restarts", "steps", "pairs_per_cell")
OF_SLURM = ("partition", "gpus", "time", "mem", "slurm", "rows_per_job", "wait")
"""Options that only --launcher slurm has a use for."""
HELP = Groups(
    {
        "what is run": ("file", "dataset", "encoder", "layer", "readout", "assignment", "objective", "set", "init"),
        "protocol of every run": PROTOCOL,
        "where and how": (
            *("dry_run", "out", "data_root", "cache_dir", "keep_features", "max_hours", "only", "launcher", *OF_SLURM),
        ),
    },
    usual={
        *("file", "dataset", "encoder", "layer", "readout", "assignment", "set", "init", *PROTOCOL),
        *("dry_run", "out", "launcher", "partition", "gpus", "time", "slurm"),
    },
)


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and run the study. Returns the exit code."""
    return cli.run(
        lambda: run(check(cli.parse(Study, PROG, args, Study(), HELP))),
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
    if asked.launcher not in LAUNCHERS:
        raise unknown_name("value of --launcher", asked.launcher, LAUNCHERS)
    if asked.rows_per_job < 1:
        raise UserError(f"--rows-per-job must be at least 1, not {asked.rows_per_job}")
    if asked.launcher != SLURM:
        for name in changed(asked).keys() & set(OF_SLURM):
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is for jobs of Slurm; add --launcher slurm, or leave {option} out")
    return asked


def changed(asked: Study) -> dict[str, Any]:
    """The options that are not at their defaults."""
    return {f.name: getattr(asked, f.name) for f in fields(asked) if getattr(asked, f.name) != f.default}


def options_of(asked: Study) -> dict[str, Any]:
    """The options of runs that the command line gives."""
    from soopf_jax.studies.definition import parse_settings

    lists = ("dataset", "encoder", "layer", "readout", "assignment", "objective")
    sizes = ("seeds", "restarts", "steps", "pairs_per_cell")
    given: dict[str, Any] = {name: list(getattr(asked, name)) for name in lists if getattr(asked, name)}
    given |= {name: getattr(asked, name) for name in sizes if getattr(asked, name) is not None}
    given |= {"quick": True} if asked.quick else {}
    given |= {"log": asked.log} if asked.log else {}
    return given | parse_settings(asked.set)


def run(asked: Study) -> None:
    """Plan the study, run it, and write what comes out.

    Raises:
        UserError: The study cannot be read, a folder cannot be written, or a row of --only failed.
    """
    from soopf_jax.runtime import progress

    with progress.shown(), progress.phase("loading JAX"):
        from soopf_jax.studies import cost, definition, outcome, page, planning, sheets
        from soopf_jax.studies.opening import Openers
        from soopf_jax.studies.rows import Obstacle, Places, folder

    given = options_of(asked)
    if asked.init:
        write_example(Path(asked.file), definition.EXAMPLE)
        return
    out, openers = Path(asked.out), Openers()
    places = Places(out, asked.data_root, asked.cache_dir)
    products = definition.read_file(Path(asked.file), given) if asked.file else [given]
    with progress.shown(), progress.phase("planning"):
        rows = definition.rows_of(products, openers.depth)
        atomic.check_writable(out / "run")
        planned = planning.plan(
            dict.fromkeys(rows, ()),
            places,
            cost.machine_rate(),
            asked.max_hours,
            planning.beside(asked.only, rows),
            openers,
            here=asked.launcher == LOCAL,
        )
    shown = [p for p in planned if not asked.only or folder(p.run) in asked.only]
    print(sheets.text(planning.plan_sheet(shown)), flush=True)
    found = carry_out(asked, planned, shown, places, openers)
    if asked.only:
        missing = {folder(run): result.reason for run, result in found.items() if isinstance(result, Obstacle)}
        if failed := [f"{name} ({missing[name]})" for name in asked.only if name in missing]:
            raise UserError(f"not done: {', '.join(failed)}; see above")
        return
    with progress.shown(), progress.phase("writing the page"):
        depths = {row.encoder_name: openers.depth(row.encoder_name) for row in rows}
        arms, damaged = outcome.outcomes(found, out, depths)
        fates = (found | damaged).items()
        missing = {folder(run): fate.reason for run, fate in fates if isinstance(fate, Obstacle)}
        done = f"{len(found) - len(missing)} of {len(found)} runs are done, {len(missing)} are missing"
        if arms:
            outcome.write(arms, out)
            page.write(arms, missing, out)
            done += f": {out}/{page.NAME} and {out}/study.csv"
    print(done)


def carry_out(
    asked: Study, planned: "Sequence[Planned]", shown: "Sequence[Planned]", places: "Places", openers: "Openers"
) -> "Found":
    """The result of every row, or why there is none.

    Args:
        asked: The options.
        planned: The plan.
        shown: The part of it that is to be carried out; the rest is there because it shares features.
        places: The folders of results, data and features.
        openers: What opens data sets and encoders.
    """
    from soopf_jax.studies import running, slurm
    from soopf_jax.studies.rows import Obstacle

    if asked.launcher == LOCAL:
        if asked.dry_run:
            return running.dry(shown, places)
        return running.carry_out_all(planned, places, openers, asked.keep_features, asked.only)
    launch = launch_of(asked)
    if asked.dry_run:
        slurm.tell_plan(shown, launch)
        return running.dry(shown, places)
    found = slurm.carry_out_all(shown, places, launch)
    if asked.keep_features != "all" and not any(isinstance(result, Obstacle) for result in found.values()):
        running.Features(places, openers, asked.keep_features).release_all()
    return found


def launch_of(asked: Study) -> "Launch":
    """How the rows become jobs. A job runs this command without the options that are about jobs.

    Raises:
        UserError: --slurm cannot be read.
    """
    from soopf_jax.experiments.options import arguments
    from soopf_jax.studies.slurm import Launch, parse_options

    about_jobs = ("launcher", *OF_SLURM, "only", "keep_features", "max_hours")
    given = {name: value for name, value in changed(asked).items() if name not in about_jobs}
    file = [given.pop("file")] if "file" in given else []
    words = [sys.executable, "-m", "soopf_jax", "study", *file, *arguments(given)]
    options = {name: getattr(asked, name) for name in ("partition", "gpus", "time", "mem") if getattr(asked, name)}
    return Launch(words, options | parse_options(asked.slurm), asked.rows_per_job, asked.wait)


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
