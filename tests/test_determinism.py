"""Equal commands give equal bytes; what may change the last bits is measured."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import results
from soopf_jax.protocol import Protocol
from soopf_jax.runner import benchmark
from soopf_jax.train import Session
from tests.faults.runs import end, start, tokens
from tests.planted import planted_table

COMMAND = ("--assignment", "learned", "--seeds", 2, "--restarts", 1, "--steps", 20, "--no-resume")
MEASURED = ("C_sup", "C_op", "Q", "loss")


def largest_difference(one: Path, other: Path) -> float:
    """Of everything continuous that is kept of the fits."""
    a, b = (results.load(folder).fits for folder in (one, other))
    return max(float(np.abs(a[name] - b[name]).max()) for name in MEASURED)


def without_times(folder: Path) -> dict:
    document = json.loads((folder / "result.json").read_text())
    del document["provenance"]["seconds"], document["provenance"][results.SEAL]["result.json"]
    return document


def test_the_same_command_in_two_processes_gives_the_same_bytes(tmp_path):
    features = tokens(tmp_path)
    started = [start("soopf_jax.bench", "--features", features, *COMMAND, "--out", tmp_path / o) for o in "ab"]
    assert [end(process).failure() for process in started] == [None, None]
    assert (tmp_path / "a" / "fits.npz").read_bytes() == (tmp_path / "b" / "fits.npz").read_bytes()
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")
    reports = [(tmp_path / out / "figures").iterdir() for out in "ab"]
    assert [p.read_bytes() for p in sorted(reports[0])] == [p.read_bytes() for p in sorted(reports[1])]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose from"
)
def test_the_number_of_cores_changes_rounding_only_and_is_recorded(tmp_path):
    features = tokens(tmp_path)
    cores = os.sched_getaffinity(0)
    started = []
    for count in (1, 2):
        os.sched_setaffinity(0, sorted(cores)[:count])  # a process inherits it
        started.append(start("soopf_jax.bench", "--features", features, *COMMAND, "--out", tmp_path / str(count)))
    os.sched_setaffinity(0, cores)
    assert [end(process).failure() for process in started] == [None, None]
    documents = [results.load(tmp_path / str(count)).document for count in (1, 2)]
    assert [document["provenance"]["environment"]["threads"] for document in documents] == [1, 2]
    assert largest_difference(tmp_path / "1", tmp_path / "2") < 1e-3


def test_another_number_of_fits_at_once_never_mixes_with_finished_groups(tmp_path):
    """A run that is stopped and goes on with other groups must not take one group's rows for another's."""

    def fits(session):
        protocol = Protocol(seeds=2, restarts=1, steps=20)
        return benchmark(planted_table(10), assignments=["learned"], protocol=protocol, session=session).fits

    whole = results.npz_bytes(fits(Session(fits_per_program=4)))
    fits(Session(tmp_path, fits_per_program=9))
    assert results.npz_bytes(fits(Session(tmp_path, fits_per_program=4))) == whole
