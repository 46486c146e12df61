"""Runs commands, in this process or in one that can be killed, and records how they end."""

import contextlib
import io
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from soopf_jax import bench
from soopf_jax.features.__main__ import main as features_main
from soopf_jax.fitting import train
from tests.planted import SMALL_OPTIONS, small_table

ROOT = Path(__file__).parents[2]
SMALL = ("--assignment", "learned", *SMALL_OPTIONS)
"""The arm and the protocol of most runs. They share them, so their programs are compiled only once."""
TINY_PARTS = ("--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_encoder")
LAYERED_PARTS = (*TINY_PARTS[:-1], "tests.tiny_parts:open_layered")


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def complaint(self) -> str | None:
        """Why this is not a clean end, or None. A clean end has exit code 0, or exit code 2 and one line of error."""
        errors = [line for line in self.err.splitlines() if line.startswith("error: ")]
        plain = "Traceback" not in self.err and len(errors) == (self.code == 2) and self.code in (0, 2)
        return None if plain else f"exit code {self.code}: {self.err[-1500:]}"

    def failure(self) -> str | None:
        """Why this is not a success, or None."""
        return None if self.code == 0 and not self.complaint() else f"exit code {self.code}: {self.err[-1500:]}"


def here(main: Callable[[list[str]], int | None], args: list[str]) -> Ended:
    """Run a command line in this process. An exception is recorded as a traceback with exit code 1."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(args) or 0
        except Exception:
            traceback.print_exc()
            code = 1
    return Ended(code, out.getvalue(), err.getvalue())


def bench_here(*args: object, report: bool = False) -> Ended:
    """Run `soopf_jax.bench` in this process. Its figures take longer than the rest and are drawn only with `report`."""
    with contextlib.nullcontext() if report else mock.patch("soopf_jax.report.page.pages", return_value={}):
        return here(bench.main, [str(arg) for arg in args])


def features_here(*args: object) -> Ended:
    """Run `soopf_jax.features` in this process."""
    return here(features_main, [str(arg) for arg in args])


def start(module: str, *args: object, **environment: object) -> subprocess.Popen[str]:
    """Start a command line in a new process."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        cwd=ROOT,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait until a process ends. It is killed after 300 s, and its exit code then shows that."""
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Ended(process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process by SIGKILL, which it cannot catch."""
    process.kill()
    process.communicate()


def content(folder: Path) -> dict[str, bytes]:
    """name -> content of every file in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tokens(folder: Path, name: str = "tokens.npz", **changes: object) -> Path:
    """Write a small features file in the documented format, with `changes` in place of some arrays."""
    table, path = small_table(), folder / name
    arrays = {
        "source": table.source,
        "edited": table.source + table.delta,
        "cell": table.cell,
        "supports": table.grid.supports,
        "operations": table.grid.operations,
        "region": table.region.argmax(axis=2),
    }
    np.savez(path, **(arrays | changes))
    return path


def work_of(out: Path) -> Path | None:
    """The work folder of an unfinished run that writes to `out`; None if there is none."""
    return next(out.parent.glob(f".{out.name}.work-*"), None)


def finished_groups(out: Path) -> dict[str, int]:
    """name -> inode of every finished group of an unfinished run. A group that is trained again gets another inode."""
    work = work_of(out)
    return {path.name: path.stat().st_ino for path in work.glob("*.npz")} if work else {}


@contextlib.contextmanager
def counting_trained_groups() -> Iterator[list[int]]:
    """A list that gets one more entry with every group of fits that this process trains."""
    trained: list[int] = []
    original = train.GroupOfFits.train

    def counting(*args: object) -> object:
        trained.append(len(trained))
        return original(*args)

    with mock.patch.object(train.GroupOfFits, "train", counting):
        yield trained
