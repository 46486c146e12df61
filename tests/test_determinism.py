"""Equal commands give equal bytes; what may change the last bits is measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from soopf_jax.experiments import results
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.fitting.train import Session
from soopf_jax.runtime.arrays import npz_bytes
from tests.environment import CORES, on_cores
from tests.faults.runs import SMALL, end, start, tokens
from tests.planted import SMALL as PROTOCOL
from tests.planted import small_table

COMMAND = (*SMALL, "--no-resume")
MEASURED = ("C_sup", "C_op", "Q", "loss")


def largest_difference(one: Path, other: Path) -> float:
    """Of everything continuous that is kept of the fits."""
    a, b = (results.load(folder).fits for folder in (one, other))
    return max(float(np.abs(a[name] - b[name]).max()) for name in MEASURED)


def without_times(folder: Path) -> dict:
    document = json.loads((folder / "result.json").read_text())
    del document["provenance"]["seconds"], document["provenance"][results.SEAL]["result.json"]
    return document


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of three runs of one command: `a` and `b` on one core, `two` on two cores if there are two.

    They are compiled as users' programs are, and each anew.
    """
    folder = tmp_path_factory.mktemp("runs")
    command = ("soopf_jax.bench", "--features", tokens(folder), *COMMAND, "--out")
    options = {"XLA_FLAGS": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    started = []
    for name, cores in [("a", 1), ("b", 1), ("two", 2)][: 3 if len(CORES) >= 2 else 2]:
        with on_cores(cores):
            started.append(start(*command, folder / name, **options))
    assert [end(process).failure() for process in started] == [None] * len(started)
    return folder


def test_the_same_command_in_two_processes_gives_the_same_bytes(runs):
    assert (runs / "a" / "fits.npz").read_bytes() == (runs / "b" / "fits.npz").read_bytes()
    assert without_times(runs / "a") == without_times(runs / "b")
    reports = [(runs / out / "figures").iterdir() for out in "ab"]
    assert [p.read_bytes() for p in sorted(reports[0])] == [p.read_bytes() for p in sorted(reports[1])]


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores to choose from")
def test_the_number_of_cores_changes_rounding_only_and_is_recorded(runs):
    documents = [results.load(runs / name).document for name in ("a", "two")]
    assert [document["provenance"]["environment"]["threads"] for document in documents] == [1, 2]
    assert largest_difference(runs / "a", runs / "two") < 1e-3


def test_another_number_of_fits_at_once_never_mixes_with_finished_groups(tmp_path):
    """A run that is stopped and goes on with other groups must not take one group's rows for another's."""

    def fits(session):
        return benchmark(small_table(), assignments=["learned"], protocol=PROTOCOL, session=session).fits

    whole = npz_bytes(fits(Session(fits_per_program=4)))
    fits(Session(tmp_path, fits_per_program=9))
    assert npz_bytes(fits(Session(tmp_path, fits_per_program=4))) == whole
