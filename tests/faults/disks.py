"""Full disks and read-only folders: the program stops, and continues after the user has solved the problem."""

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from tests.faults import runs
from tests.faults.kills import blocks_in_journal, fits_differ
from tests.faults.runs import bench_here, content, features_here
from tests.faults.tally import Tally

DISK = 8 << 20
SMALL = ("--seeds", 3, "--restarts", 1, "--steps", 4, "--checkpoint-seconds", 0)
Fill = Callable[[int | None], None]
"""Leaves only this many bytes of the disk free; None removes the restriction."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Fill]:
    """A small disk mounted at `folder`, if root may mount one; otherwise a limit on the size of every file."""
    folder.mkdir()
    if not _mounted("-t", "tmpfs", "-o", f"size={DISK}", "none", folder):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(left: int | None) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft if left is None else left // 4, hard))

        yield limit
        limit(None)
        return

    def fill(left: int | None) -> None:
        ballast = folder / "ballast"
        ballast.unlink(missing_ok=True)
        if left is not None:
            disk = os.statvfs(folder)
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - left))

    try:
        yield fill
    finally:
        subprocess.run(["umount", folder], check=True)


def _mounted(*args: object) -> bool:
    """Try to mount, and return whether it worked."""
    return os.geteuid() == 0 and subprocess.run(["mount", *map(str, args)], capture_output=True).returncode == 0


def full_disk_for_features(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Fill the disk during a build. It must stop with one line, and later continue where it stopped."""
    tally = Tally("full disk while building features")
    build = ("build", *runs.TINY_PARTS, "--pairs-per-cell", 72, "--cache-dir")
    whole = Path(features_here(*build, folder / "whole").out.strip())
    total = sum(map(len, content(whole).values()))
    with small_disk(folder / "disk") as fill:
        for number in range(tries):
            cache = folder / "disk" / str(number)
            fill(int(rng.uniform(0, total)))
            stopped = features_here(*build, cache)
            before = blocks_in_journal(cache / "features" / whole.name)
            fill(None)
            with counted_blocks() as blocks:
                ended = features_here(*build, cache)
            problems = [stopped.complaint(), ended.failure(), None if stopped.code == 2 else "the disk was not full"]
            built = content(cache / "features" / whole.name)
            tally.record(problems, wrong=built != content(whole), lost=before + len(blocks) > 21)
            shutil.rmtree(cache)  # the small disk has room for only one
    return tally


@contextlib.contextmanager
def counted_blocks() -> Iterator[list[int]]:
    """A list that grows with every block that is written."""
    from soopf_jax.features import store_writer

    written: list[int] = []
    append = store_writer.append

    def counting(partial: object, index: int, block: object) -> None:
        written.append(index)
        append(partial, index, block)

    with mock.patch.object(store_writer, "append", counting):
        yield written


def full_disk_for_results(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Fill the disk while a run writes checkpoints, fits or report. It must stop with one line, and later continue."""
    tally = Tally("full disk while fitting and saving")
    command = ("--features", runs.tokens(folder), "--assignment", "learned", *SMALL, "--out")
    tally.problems += filter(None, [bench_here(*command, folder / "whole", report=True).failure()])
    total = sum(map(len, content(folder / "whole").values()))
    with small_disk(folder / "disk") as fill:
        if not (folder / "disk").is_mount():
            tally.skipped = "this user cannot mount a small disk"
            return tally
        for number in range(tries):
            out = folder / "disk" / str(number) / "run"
            out.parent.mkdir()
            fill(int(total * 10 ** rng.uniform(-2, 0)))
            stopped = bench_here(*command, out, report=True)
            kept = len(runs.finished_groups(out))
            fill(None)
            with runs.counting_trained_groups() as trained:
                ended = bench_here(*command, out)
            lost = kept + len(trained) > 3
            tally.record([stopped.complaint(), ended.failure()], wrong=fits_differ(out, folder / "whole"), lost=lost)
            shutil.rmtree(out.parent)
    return tally


def read_only_folders(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Run in read-only folders. Existing files can be read; everything else must fail with one line."""
    del tries, rng  # each case is tried once
    tally = Tally("read-only folders")
    features, small = runs.tokens(folder), ("--assignment", "learned", *SMALL)
    closed = folder / "closed"
    cached = ("--dataset", runs.TINY_PARTS[1], "--encoder", runs.TINY_PARTS[3], "--cache-dir", closed / "cache")
    for out in (closed / "done", folder / "cached"):
        source = ("--features", features) if out.parent == closed else cached
        tally.problems += filter(None, [bench_here(*source, *small, "--out", out).failure()])
    undisturbed = content(closed)
    with read_only(closed) as worked:
        if not worked:
            tally.skipped = "this user can neither mount nor be refused"
            return tally
        reads = [
            bench_here("--features", features, *small, "--out", closed / "done"),
            bench_here(*cached, *small, "--out", folder / "again"),
            features_here("verify", "--cache-dir", closed / "cache"),
        ]
        refused = [
            bench_here("--features", features, *small, "--out", closed / "new"),
            bench_here("--features", features, *small, "--out", closed / "done", "--overwrite"),
            bench_here(*cached, "--data-seed", 1, *small, "--out", folder / "other"),
            features_here("build", *runs.TINY_PARTS, "--data-seed", 2, "--cache-dir", closed / "cache"),
        ]
    for ended in reads:
        tally.record([ended.failure()], wrong=content(closed) != undisturbed)
    for ended in refused:
        tally.record([ended.complaint(), None if ended.code == 2 else "it was not refused"])
    tally.record(wrong=fits_differ(folder / "cached", folder / "again"))
    ended = bench_here("--features", features, *small, "--out", closed / "new")
    tally.record([ended.failure()], wrong=fits_differ(closed / "new", closed / "done"))
    return tally


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[bool]:
    """Make a folder read-only, by a mount for root and by its mode for others. Yields whether it worked."""
    if os.geteuid():
        paths = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for path in paths:
            path.chmod(0o500)
        yield True
        for path in paths:
            path.chmod(0o700)
    elif _mounted("--bind", folder, folder):
        try:
            yield _mounted("-o", "remount,bind,ro", folder)
        finally:
            subprocess.run(["umount", folder], check=True)
    else:
        yield False
