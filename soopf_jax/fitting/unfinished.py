"""The work folder of an unfinished run. It holds the run's plan and finished groups of fits, with which it continues.

Every file shows whether it is complete and belongs to the same run. A file that is damaged or holds other fits is
ignored, and its work is done again.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from soopf_jax.errors import UserError
from soopf_jax.fitting import devices
from soopf_jax.runtime import atomic, interrupt
from soopf_jax.runtime.arrays import npz_bytes, read_npz
from soopf_jax.runtime.hashing import digest, slug

PLAN, DIGEST = "plan.json", "digest"
ROW = "row"
"""The column of a saved group that says which rows of `Fits` it holds."""
KEEP = "keep"
"""The entry of a saved group that says what is kept of its fits."""

Columns = dict[str, np.ndarray]
"""Values of some fits by name, a row per fit."""


class Plan(NamedTuple):
    """What was chosen for a run. It is kept with the unfinished work because rounding depends on it."""

    fits_per_program: int
    bytes_per_device: int
    """What training and evaluation hold at most on each device, the table and all lanes included."""
    lanes: int = 1
    """Groups that train side by side."""


def read_plan(work: Path | None) -> Plan | None:
    """The plan of an interrupted run; None if there is none or it cannot be read."""
    try:
        saved = json.loads((work / PLAN).read_bytes()) if work else {}
        whole = saved.pop(DIGEST, "") == digest(saved)
        return Plan(**saved) if whole else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def write_plan(work: Path | None, plan: Plan) -> None:
    """Keep a plan for the next start."""
    if work and devices.is_main():
        chosen = plan._asdict()
        atomic.write_bytes(work / PLAN, json.dumps({**chosen, DIGEST: digest(chosen)}).encode())


def group_file(work: Path | None, assignment_name: str, number: int) -> Path | None:
    """Where a finished group of an arm is kept."""
    return work / f"{slug(assignment_name)}-{number}.npz" if work else None


def checkpoint_folder(path: Path) -> Path:
    """Where the checkpoints of a group lie while it is not finished."""
    return path.with_suffix(".checkpoint")


class KeptSteps:
    """Counts how much of an arm's training is on the disk, for the message after Ctrl-C."""

    def __init__(self, assignment_name: str, n_fits: int, steps: int) -> None:
        self._name, self._n_fits, self._steps = assignment_name, n_fits, steps
        self._by_group: dict[int, int] = {}

    def note(self, group: int, n_fits: int, steps: int) -> None:
        """So many steps of the fits of this group are on the disk."""
        self._by_group[group] = n_fits * steps
        mean = sum(self._by_group.values()) // self._n_fits
        some = f"{mean} of {self._steps} steps of {self._name}"
        interrupt.kept(self._name, self._name if mean == self._steps else some)


def read_group(path: Path | None, rows: np.ndarray, keep: str = "none") -> Columns | None:
    """The columns that an earlier start saved of these fits; None if there are none or they cannot be read.

    The file holds other fits if the earlier start trained another number of fits at once, and other columns if it was
    to keep something else. It is then ignored.

    Raises:
        UserError: The first process can read the file, but this one cannot.
    """
    columns: Columns = {}
    with suppress(OSError, ValueError):
        columns = read_npz(path.read_bytes()) if path else {}
    same_keep = str(columns.pop(KEEP, "none")) == keep
    found = np.array_equal(columns.pop(ROW, np.empty(0)), rows) and same_keep
    if not devices.agreed(found):
        return None
    if not found:
        raise UserError(f"{path} is not visible to every process; choose an --out on a file system that all share")
    return columns


def write_group(path: Path | None, columns: Columns, rows: np.ndarray, keep: str = "none") -> None:
    """Keep a finished group, and remove its checkpoints, which are no longer needed."""
    if path and devices.is_main():
        atomic.write_bytes(path, npz_bytes({ROW: rows, KEEP: np.array(keep), **columns}))
        shutil.rmtree(checkpoint_folder(path), ignore_errors=True)
