"""`python -m tests.faults.exit_at_step FOLDER` saves a result and exits at the first, the second, ... step on the disk.

Each attempt is a forked process that exits without clean-up, as after SIGKILL. The output is a JSON list of outcomes.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.runtime.arrays import npz_bytes
from tests.report_result import dealt_result

STEPS = ("fsync", "replace", "rename", "rmdir", "unlink", "chmod", "mkdir")
OLD, NEW = dealt_result(seed=0), dealt_result(seed=1)
PAGES = {"figures/a.svg": b"<svg>"}


def vanish_at(moment: int) -> None:
    """End this process at the step with this number, counted from 0."""
    steps = itertools.count()

    def stopping(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if next(steps) == moment:
                os._exit(9)
            return step(*args, **options)

        return run

    for name in STEPS:
        setattr(os, name, stopping(getattr(os, name)))


def attempt(out: Path, work: Path, moment: int) -> bool:
    """Save a result in a forked process that exits at a step. Returns whether saving was complete before that step."""
    child = os.fork()
    if child == 0:
        vanish_at(moment)
        results.save(NEW, out, PAGES, replace=True, within=work)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def found_at(out: Path) -> bytes | None:
    """The fits that a reader finds; None if there is no folder."""
    return npz_bytes(results.load(out).fits) if out.exists() else None


def main(folder: Path) -> list[dict[str, Any]]:
    """Replace a result by another one. This takes all steps of saving a new result, and a few more."""
    outcomes = []
    old, new = (npz_bytes(result.fits) for result in (OLD, NEW))
    for moment in itertools.count():
        out, work = folder / str(moment), folder / f"{moment}-work"
        work.mkdir()
        results.save(OLD, out, PAGES, replace=False)
        whole, problem, found = attempt(out, work, moment), None, None
        try:
            found = found_at(out)
            if not whole:
                results.save(NEW, out, PAGES, replace=True, within=work)
        except (UserError, OSError) as error:
            problem = str(error)
        wrong = found not in ((new,) if whole else (old, new, None)) or found_at(out) != new
        outcomes.append({"problem": problem, "wrong": wrong})
        if whole:
            break
    return outcomes


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
