"""Kills the program at random moments of every stage: rendering and encoding, fitting, writing the report."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.faults import runs
from tests.faults.runs import bench_here, content, end, finished_groups, kill, start, work_of
from tests.faults.tally import Tally
from tests.planted import SMALL, SMALL_OPTIONS

BLOCKS = 40
"""The number of blocks of the store. A block has 32 pairs."""
GROUPS, STEPS = SMALL.seeds, SMALL.steps
"""With so few steps, every chunk is one step, and a checkpoint follows every step."""


def encoding(folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a build of features several times, then compare its store with that of an undisturbed build."""
    tally = Tally("SIGKILL while rendering and encoding")
    build = ("build", *runs.TINY_PARTS, "--pairs-per-cell", BLOCKS * 32 // 9, "--cache-dir")
    whole = Path(runs.features_here(*build, folder / "whole").out.strip())
    partial = folder / "killed" / "features" / whole.name
    stored = 0
    for _ in range(kills):
        process = start("soopf_jax.features", *build, folder / "killed", TINY_DELAY=0.01)
        target = stored + rng.integers(1, 3 * BLOCKS // (2 * kills + 2))
        wait_until(lambda target=target: blocks_in_journal(partial) >= target, process)
        time.sleep(rng.uniform(0, 0.1))
        kill(process)
        tally.record(
            ["the build was over too soon"] if partial.exists() else [], lost=blocks_in_journal(partial) < stored
        )
        stored = blocks_in_journal(partial)
    ended = end(start("soopf_jax.features", *build, folder / "killed"))
    tally.record([ended.failure()], wrong=content(partial) != content(whole))
    return tally


def blocks_in_journal(folder: Path) -> int:
    """The number of complete blocks in an unfinished store."""
    journal = folder.with_name(folder.name + ".journal")
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def fitting(folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a run several times while it trains. Its result must be the same bytes as that of an undisturbed run."""
    tally = Tally("SIGKILL while fitting")
    command = ("--features", runs.tokens(folder), *runs.SMALL, "--checkpoint-seconds", 0, "--out")
    tally.problems += filter(None, [bench_here(*command, folder / "whole").failure()])
    out, before, done = folder / "killed", finished_groups(folder / "killed"), 0
    for _ in range(kills):
        process = start("soopf_jax.bench", *command, out)
        target = done + rng.integers(1, max(2, 2 * (GROUPS * STEPS - done) // (kills + 1)))
        wait_until(lambda target=target: steps_done(out) >= target, process)
        time.sleep(rng.uniform(0, 0.05))
        kill(process)
        after = finished_groups(out)
        tally.record(["the run was over too soon"] if out.exists() else [], lost=not before.items() <= after.items())
        before, done = after, max(done, steps_done(out))
    tally.record([bench_here(*command, out).failure()], wrong=fits_differ(out, folder / "whole"))
    return tally


def steps_done(out: Path) -> int:
    """The steps done so far: those of all finished groups, and those of the newest checkpoint of each other group."""
    work = work_of(out)
    if work is None:
        return 0
    steps = [_newest_step(checkpoints) for checkpoints in work.glob("*.checkpoint")]
    return STEPS * len(list(work.glob("*.npz"))) + sum(steps)


def _newest_step(checkpoints: Path) -> int:
    return max((int(path.name) for path in checkpoints.glob("*") if path.name.isdigit()), default=0)


def report_writing(folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a run between its last fit and its end. The result must be complete or missing, and no fit may be lost."""
    tally = Tally("SIGKILL while writing the report")
    command = ("--features", runs.tokens(folder), *runs.SMALL, "--out")
    tally.problems += filter(None, [bench_here(*command, folder / "whole").failure()])
    begin = time.monotonic()
    tally.problems += filter(None, [bench_here(*command, folder / "drawn", report=True).failure()])
    seconds = time.monotonic() - begin  # at least as long as drawing and saving take
    for number in range(kills):
        out = folder / f"killed-{number}"
        process = start("soopf_jax.bench", *command, out)
        last_fit(process)
        time.sleep(rng.uniform(0, seconds))
        kill(process)
        half = out.exists() and fits_differ(out, folder / "whole")
        with runs.counting_trained_groups() as trained:
            ended = bench_here(*command, out)
        tally.record([ended.failure()], wrong=half or fits_differ(out, folder / "whole"), lost=bool(trained))
    return tally


def last_fit(process: subprocess.Popen[str]) -> None:
    """Wait until the process prints the scores of the last arm."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("learned: INJ"):
            return


def study(folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """Kill a study of two rows at random moments. It must end with the same bytes as one that nobody disturbs.

    A study that ends before its moment comes is compared too, and the next kills hit a new one.
    """
    tally = Tally("SIGKILL during a study")
    begin = time.monotonic()
    tally.problems += filter(None, [end(start_study(folder / "whole")).failure()])
    seconds = time.monotonic() - begin
    number = done = 0
    while done < kills:
        out = folder / f"killed-{number}"
        before, process, moment = finished_rows(out), start_study(out), time.monotonic() + rng.uniform(0, seconds)
        wait_until(lambda moment=moment: time.monotonic() >= moment, process)
        if process.poll() is None:
            kill(process)
            tally.record(lost=not before.items() <= finished_rows(out).items())
            done += 1
        else:
            tally.record([end(process).failure()], wrong=studies_differ(out, folder / "whole"))
            number += 1
    out, before = folder / f"killed-{number}", finished_rows(folder / f"killed-{number}")
    tally.record(
        [end(start_study(out)).failure()],
        wrong=studies_differ(out, folder / "whole"),
        lost=not before.items() <= finished_rows(out).items(),
    )
    return tally


def start_study(out: Path) -> subprocess.Popen[str]:
    """Start a study of two layers, whose encoder takes its time. Its features are beside its folder."""
    rows = ("--layer", 1, "last", "--assignment", "learned", "--pairs-per-cell", 10, "--set", "checkpoint_seconds=0")
    places = ("--out", out, "--cache-dir", out.with_name(out.name + "-cache"))
    return start("soopf_jax.study", *runs.LAYERED_PARTS, *rows, *SMALL_OPTIONS, *places, TINY_DELAY=0.1)


def finished_rows(out: Path) -> dict[str, int]:
    """name -> inode of the fits of every finished row of a study. A row that is done again gets another inode."""
    return {path.parent.name: path.stat().st_ino for path in out.glob("[!.]*/fits.npz")}


def studies_differ(out: Path, whole: Path) -> bool:
    """Whether the fits of some row, the table or the page of two studies have different bytes."""
    names = [path.relative_to(whole) for path in (*whole.glob("*/fits.npz"), whole / "study.csv", whole / "study.html")]
    assert len(names) == 2 + 2
    return any((out / name).read_bytes() != (whole / name).read_bytes() for name in names)


def every_step_of_saving(folder: Path, kills: int, rng: np.random.Generator) -> Tally:
    """End the process at each step of saving. The folder must hold the old result, the new one or none."""
    del kills, rng  # the number of tries is the number of steps
    tally = Tally("end at every step of saving")
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.exit_at_step", str(folder)], cwd=runs.ROOT, capture_output=True, text=True
    )
    for outcome in json.loads(done.stdout or "[]"):
        tally.record([outcome["problem"]], wrong=outcome["wrong"])
    if done.returncode:
        tally.problems.append(done.stderr)
    return tally


def wait_until(reached: object, process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds or the process has ended."""
    while not reached() and process.poll() is None:
        time.sleep(0.01)


def fits_differ(out: Path, whole: Path) -> bool:
    """Whether the fits of two finished runs have different bytes."""
    return (out / "fits.npz").read_bytes() != (whole / "fits.npz").read_bytes()
