"""Commands and how they end, in this process or in one that can be killed."""

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

from soopf_jax import bench, cli, features, train
from tests.planted import planted_table

ROOT = Path(__file__).parents[2]
TINY_PARTS = ("--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_encoder")


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def complaint(self) -> str | None:
        """Why this is no plain end: exit code 0, or 2 with one line that says what is wrong and what to do."""
        errors = [line for line in self.err.splitlines() if line.startswith("error: ")]
        plain = "Traceback" not in self.err and len(errors) == (self.code == 2) and self.code in (0, 2)
        return None if plain else f"exit code {self.code}: {self.err[-1500:]}"

    def failure(self) -> str | None:
        """Why this is no success."""
        return None if self.code == 0 and not self.complaint() else f"exit code {self.code}: {self.err[-1500:]}"


def here(main: Callable[[list[str]], int | None], args: list[str]) -> Ended:
    """Run a command line in this process; an exception is what it would be there, a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(args) or 0
        except Exception:
            traceback.print_exc()
            code = 1
    return Ended(code, out.getvalue(), err.getvalue())


def bench_here(*args: object, report: bool = False) -> Ended:
    """`soopf_jax.bench`; its figures take longer than the rest, and are drawn only where they matter."""
    with contextlib.nullcontext() if report else mock.patch.object(bench.page, "pages", return_value={}):
        return here(bench.main, [str(arg) for arg in args])


def features_here(*args: object) -> Ended:
    """`soopf_jax.features`."""
    return here(lambda given: cli.run(lambda: features.main(given)), [str(arg) for arg in args])


def start(module: str, *args: object, **environment: object) -> subprocess.Popen[str]:
    """The same in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        cwd=ROOT,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for it; one that never ends is killed, which its exit code says."""
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Ended(process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL: nothing in the process can see it come."""
    process.kill()
    process.communicate()


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tokens(folder: Path, pairs_per_cell: int = 8) -> Path:
    """A small features file in the documented format."""
    table, path = planted_table(pairs_per_cell), folder / "tokens.npz"
    np.savez(
        path,
        source=table.source,
        edited=table.source + table.delta,
        cell=table.cell,
        supports=table.grid.supports,
        operations=table.grid.operations,
        region=table.region.argmax(axis=2),
    )
    return path


def work_of(out: Path) -> Path | None:
    """Where an unfinished run to `out` keeps its work."""
    return next(out.parent.glob(f".{out.name}.work-*"), None)


def finished_groups(out: Path) -> dict[str, int]:
    """The inode of every finished group of an unfinished run: another inode is another training."""
    work = work_of(out)
    return {path.name: path.stat().st_ino for path in work.glob("*.npz")} if work else {}


@contextlib.contextmanager
def counting_trained_groups() -> Iterator[list[int]]:
    """A list that grows by one with every group of fits that this process trains."""
    trained: list[int] = []
    original = train._train

    def counting(*args: object) -> object:
        trained.append(len(trained))
        return original(*args)

    with mock.patch.object(train, "_train", counting):
        yield trained
