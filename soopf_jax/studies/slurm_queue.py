"""Where the rows of a study are that were submitted to Slurm: queued, running, done or failed.

In: the files that name the rows of every job, Slurm's queue, and result folders. Out: the state of every row and the
log of its job. A row is done when its result is there. Slurm is asked only for jobs that have not ended.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.runtime import interrupt, progress

JOBS = "jobs.json"
"""The name of an array and the rows of each of its jobs."""
SECONDS_BETWEEN_LOOKS = 5.0
QUEUED, RUNNING, DONE, FAILED = "queued", "running", "done", "failed"


class Submitted(NamedTuple):
    """An array of jobs that was given to Slurm."""

    folder: Path
    name: str
    jobs: list[list[str]]
    """The rows of each job."""

    def log(self, number: int) -> Path | None:
        """What a job has printed; None if it has not begun."""
        task = f"*_{number}_0_log.out" if len(self.jobs) > 1 else "*_0_log.out"
        return max(self.folder.glob(task), default=None)


class Row(NamedTuple):
    """Where a row is that was submitted."""

    state: str
    log: Path | None


def look(place: Path, rows: Collection[str]) -> dict[str, Row]:
    """Where every row is. One that was never submitted counts as failed.

    Args:
        place: The folder of the arrays, in the folder of the results.
        rows: The names of the rows.

    Raises:
        UserError: Slurm does not answer.
    """
    found = {name: Row(FAILED, None) for name in rows}
    submitted = [_read(path) for path in sorted(place.glob(f"*/{JOBS}"), key=lambda path: int(path.parent.name))]
    queue = in_queue([array.name for array in submitted])
    for array in submitted:
        for number, names in enumerate(array.jobs):
            row = Row(queue.get((array.name, number), FAILED), array.log(number))
            found |= {name: row for name in names if name in rows}
    for name in rows:
        if (place.parent / name / "result.json").exists():
            found[name] = found[name]._replace(state=DONE)
    return found


def _read(path: Path) -> Submitted:
    document = json.loads(path.read_text())
    return Submitted(path.parent, document["name"], document["jobs"])


def in_queue(names: Sequence[str]) -> dict[tuple[str, int], str]:
    """QUEUED or RUNNING by array and number of the job, for all jobs that have not ended.

    Raises:
        UserError: Slurm does not answer.
    """
    if not names:
        return {}
    asked = ["squeue", "--noheader", "--array", f"--name={','.join(names)}", "--format=%j|%K|%T"]
    answer = subprocess.run(asked, capture_output=True, text=True)
    if answer.returncode:
        raise UserError(f"squeue does not answer ({last_line(answer.stderr)}); try again when Slurm is back")
    found = {}
    for line in answer.stdout.splitlines():
        name, number, state = line.strip().split("|")
        found[name, int(number) if number.isdigit() else 0] = QUEUED if state == "PENDING" else RUNNING
    return found


def wait(place: Path, rows: Collection[str]) -> dict[str, Row]:
    """Show where the rows are until none of them is queued or running."""
    told, done, ended = "", 0, False
    with progress.bar("study", len(rows), unit="rows") as advance:
        while True:
            try:
                found = look(place, rows)
            except UserError as error:
                found, line = {}, str(error)
            else:
                counts = Counter(row.state for row in found.values())
                line = "rows: " + ", ".join(f"{counts[state]} {state}" for state in (DONE, RUNNING, QUEUED, FAILED))
                advance(counts[DONE] - done)
                done, left = counts[DONE], counts[QUEUED] + counts[RUNNING]
                interrupt.kept(place.name, f"{done} finished rows and {left} that Slurm still has")
            if line != told:
                print(line, file=sys.stderr, flush=True)
                told = line
            if found and not left:
                # A result may become visible on this machine some time after its job has left the queue.
                if ended or not counts[FAILED]:
                    return found
                ended = True
            time.sleep(SECONDS_BETWEEN_LOOKS)


def last_line(text: str) -> str:
    """The last line of what a program has printed."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given").strip()
