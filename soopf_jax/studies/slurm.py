"""Carry out the rows of a study as jobs of Slurm, through submitit, and wait for them.

In: the plan of a study. Out: the result of each row, or the reason why there is none. A job is the command of the study
with `--only` and the names of its rows. A folder of the study has a file for every array of jobs, written before they
are submitted under a name of their own. So nothing is lost if this process ends at any moment.
"""

import contextlib
import io
import math
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.fitting import devices
from soopf_jax.runtime import atomic
from soopf_jax.runtime.hashing import canonical, slug
from soopf_jax.studies.job import Command
from soopf_jax.studies.planning import Planned, encoded_with, finished
from soopf_jax.studies.rows import Obstacle, Places, folder
from soopf_jax.studies.running import Found
from soopf_jax.studies.slurm_queue import JOBS, QUEUED, RUNNING, Row, Submitted, last_line, look, wait

FOLDER = "slurm"
"""The folder of a study that has a folder for every array of jobs, with logs and what submitit writes."""
OURS = ("array", "error", "job_name", "open_mode", "output", "signal")
"""Options of sbatch that the launcher sets and relies on."""
LEAST_MINUTES = 10
TIME_FACTOR = 2.0
"""The time that a job asks for, over the time that it should take."""
MEMORY_BESIDES = 4e9
"""Bytes that a job asks for besides the table of its row: the encoder, the fits and Python itself."""
MOST_RESTARTS = 1000
"""How often a job may run out of time and be started again. It goes on from its checkpoint each time."""


class Launch(NamedTuple):
    """How rows become jobs."""

    words: Sequence[str]
    """The command of the study as it is run on one machine; a job adds `--only` and its rows."""
    options: Mapping[str, str | bool]
    """Options of sbatch, by name. True: an option without a value."""
    rows_per_job: int = 1
    wait: bool = True
    """Whether to wait for the jobs."""


def carry_out_all(planned: Sequence[Planned], places: Places, launch: Launch) -> Found:
    """Submit every row that is neither done nor under way, and wait for all of them.

    Args:
        planned: The plan.
        places: The folders of results, data and features. Every machine of the cluster must see them.
        launch: How rows become jobs.

    Raises:
        UserError: submitit or Slurm is not here, or Slurm refuses the jobs.
    """
    check_at_hand()
    jobs = places.runs / FOLDER
    to_run = {folder(p.run): p for p in planned if not p.document and not p.obstacle}
    if to_run:
        with atomic.locked(jobs / atomic.LOCK, f"waiting for another process that is submitting jobs of {places.runs}"):
            under_way = {name for name, row in look(jobs, to_run).items() if row.state in (QUEUED, RUNNING)}
            for array in arrays([p for name, p in to_run.items() if name not in under_way], launch.rows_per_job):
                submit(array, jobs, launch)
        rows = wait(jobs, to_run) if launch.wait else look(jobs, to_run)
    found: Found = {p.run: p.document or p.obstacle or Obstacle("not run yet") for p in planned}
    for name, p in to_run.items():
        found[p.run] = finished(p.run, places.runs, p.workload.key if p.workload else None) or _why(name, rows[name])
    return found


def check_at_hand() -> None:
    """Check that jobs can be submitted here.

    Raises:
        UserError: submitit or Slurm's commands are missing.
    """
    plugins.require("--launcher slurm", "submitit")
    for program in ("sbatch", "squeue", "srun"):
        if shutil.which(program) is None:
            raise UserError(
                f"--launcher slurm needs {program}, which is not on this machine; start the study on a machine of the"
                " cluster that has Slurm's commands, or leave --launcher out"
            )


def _why(name: str, row: Row) -> Obstacle:
    """Why a row that was submitted has no result. A failure is told on stderr."""
    if row.state in (QUEUED, RUNNING):
        return Obstacle(f"{row.state} in Slurm")
    if row.log is None:
        reason, remedy = "its job was cancelled before it began", "the same command submits it again"
    else:
        errors = [line for line in row.log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        said = f" ({errors[-1].removeprefix('error: ').partition(';')[0]})" if errors else ""
        reason, remedy = f"its job has ended without a result{said}", f"see {row.log}; the same command goes on"
    print(f"not run: {name}: {reason}; {remedy}", file=sys.stderr, flush=True)
    return Obstacle(reason, (f"{name}: {remedy}",))


# --------------------------------------------------------------------------------------------------- what is asked for


def arrays(rows: Sequence[Planned], rows_per_job: int) -> Iterator[list[list[Planned]]]:
    """The jobs of each array. An array has the rows of one data set and encoder, which need the same machines."""
    by_pass: dict[Any, list[Planned]] = {}
    for row in rows:
        by_pass.setdefault(encoded_with(row.run), []).append(row)
    for alike in by_pass.values():
        yield [alike[start : start + rows_per_job] for start in range(0, len(alike), rows_per_job)]


def resources(jobs: Sequence[Sequence[Planned]], given: Mapping[str, str | bool]) -> dict[str, Any]:
    """What every job of an array asks for: by the plan, unless it is given.

    A job waits while another one encodes for it, so each of them has the time of the encoding too.
    """
    encoding = max(p.encoding for job in jobs for p in job)
    seconds = encoding + max(sum(p.seconds - p.encoding for p in job) for job in jobs)
    tables = max(p.workload.table_bytes if p.workload else 0 for job in jobs for p in job)
    asked: dict[str, Any] = {
        "time": max(LEAST_MINUTES, math.ceil(TIME_FACTOR * seconds / 60)),
        "cpus_per_task": devices.threads(),
        "mem": f"{math.ceil((tables + MEMORY_BESIDES) / 1e9)}G",
        "requeue": True,
    }
    if any(name.startswith("mem") for name in given):
        del asked["mem"]  # sbatch takes one of mem, mem_per_cpu and mem_per_gpu
    return asked | dict(given)


def parse_options(settings: Sequence[str]) -> dict[str, str | bool]:
    """`KEY=VALUE KEY ...` as options of sbatch, with _ for -.

    Raises:
        UserError: An item has another form, or is an option that the launcher sets.
    """
    found: dict[str, str | bool] = {}
    for item in settings:
        name, equals, value = item.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not name.isidentifier() or (equals and not value):
            raise UserError(f"--slurm takes KEY=VALUE as sbatch does, not '{item}'; for example qos=long")
        if name in OURS:
            raise UserError(f"--slurm {item}: the launcher sets this option itself; leave it out")
        found[name] = value if equals else True
    return found


def submit(jobs: Sequence[Sequence[Planned]], place: Path, launch: Launch) -> None:
    """Give an array of jobs to Slurm.

    Raises:
        UserError: Slurm refuses them.
    """
    submitit = _submitit()
    refused = (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError)
    asked = resources(jobs, launch.options)
    number = 1 + max((int(path.name) for path in place.iterdir() if path.name.isdigit()), default=0)
    submitted = Submitted(
        place / str(number),
        f"soopf-{slug(place.absolute().parent.name)[:40]}-{secrets.token_hex(4)}",
        [[folder(p.run) for p in job] for job in jobs],
    )
    submitted.folder.mkdir()
    atomic.write_bytes(submitted.folder / JOBS, canonical({"name": submitted.name, "jobs": submitted.jobs}))
    executor = submitit.SlurmExecutor(submitted.folder.absolute(), max_num_timeout=MOST_RESTARTS)
    executor.update_parameters(job_name=submitted.name, stderr_to_stdout=True, additional_parameters=asked)
    conf = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
    quiet = contextlib.redirect_stderr(io.StringIO())  # submitit prints what sbatch says, and raises it
    try:
        # Without the variables of a job that this process may be part of.
        with quiet, submitit.helpers.clean_env(), submitit.helpers.environment_variables(**conf), executor.batch():
            for rows in submitted.jobs:
                executor.submit(Command([*launch.words, "--only", *rows]))
    except refused as error:
        shutil.rmtree(submitted.folder)
        raise UserError(f"Slurm refuses the jobs ({last_line(str(error))}); correct the options of sbatch") from error
    print(f"{described(jobs, launch.options)}, as {submitted.name}", file=sys.stderr, flush=True)


def _submitit() -> Any:
    """Import submitit without its configuration of logs, which closes every log of this process. Jobs keep it."""
    name = "SUBMITIT_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ[name] = "NOCONFIG"
    try:
        import submitit
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
    return submitit


def tell_plan(planned: Sequence[Planned], launch: Launch) -> None:
    """Print what would be submitted if nothing were under way."""
    for jobs in arrays([p for p in planned if not p.document and not p.obstacle], launch.rows_per_job):
        print(described(jobs, launch.options))


def described(jobs: Sequence[Sequence[Planned]], given: Mapping[str, str | bool]) -> str:
    """`4 jobs for 4 rows, each with time=10 mem=5G`."""
    asked = resources(jobs, given)
    words = [name.replace("_", "-") + ("" if value is True else f"={value}") for name, value in asked.items()]
    return f"{len(jobs)} jobs for {sum(map(len, jobs))} rows, each with {' '.join(words)}"
