"""Runs several processes at once, and one process while the clock jumps."""

from pathlib import Path

import numpy as np

from soopf_jax.features import store
from tests.faults import runs
from tests.faults.kills import fits_differ
from tests.faults.runs import bench_here, content, end, start
from tests.faults.tally import Tally


def one_cache(folder: Path, processes: int, rng: np.random.Generator) -> Tally:
    """Build one store in many processes. One must build it, and the others must wait and use it."""
    del rng
    tally = Tally(f"{processes} processes on one cache")
    build = ("build", *runs.TINY_PARTS, "--pairs-per-cell", 36, "--cache-dir")
    whole = Path(runs.features_here(*build, folder / "whole").out.strip())
    started = [start("soopf_jax.features", *build, folder / "shared", TINY_DELAY=0.05) for _ in range(processes)]
    shared = folder / "shared" / "features" / whole.name
    ended = [end(process) for process in started]
    wrong = content(shared) != content(whole) or bool(store.verify(shared))
    for one in ended:
        tally.record([one.failure(), None if one.out.strip() == str(shared) else "another folder was named"], wrong)
    return tally


def one_output(folder: Path, processes: int, rng: np.random.Generator) -> Tally:
    """Run the same command in several processes. One must train, and the others must wait and show the result."""
    del rng
    tally = Tally(f"{processes} processes on one --out")
    command = ("--features", runs.tokens(folder), *runs.SMALL, "--out")
    started = [start("soopf_jax.bench", *command, folder / "shared") for _ in range(processes)]
    ended = [end(process) for process in started]
    tally.problems += filter(None, [bench_here(*command, folder / "whole").failure()])
    wrong = fits_differ(folder / "shared", folder / "whole")
    for one in ended:
        tally.record([one.failure()], wrong)
    rows = {tuple(line for line in one.out.splitlines() if line.startswith("learned ")) for one in ended}
    trained = sum("already done" not in one.out for one in ended)
    left = [path.name for path in folder.iterdir() if path.name.startswith(".shared")]
    tally.record(
        [f"they printed {rows}" if len(rows) > 1 else None, f"{left} is left" if left else None], lost=trained > 1
    )
    return tally


def jumping_clock(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Let the wall clock jump back and forth by days whenever it is read. The process must still end."""
    tally = Tally("a clock that jumps")
    command = ("--features", runs.tokens(folder), *runs.SMALL, "--checkpoint-seconds", 0, "--out")
    tally.problems += filter(None, [bench_here(*command, folder / "whole").failure()])
    for number in range(tries):
        out = folder / str(number)
        ended = end(start("tests.faults.wild_clock", rng.integers(2**31), *command, out))
        tally.record([ended.failure()], wrong=fits_differ(out, folder / "whole"))
    return tally
