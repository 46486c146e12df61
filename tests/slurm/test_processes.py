"""One run in two processes: under Slurm, and when one of them is killed and both are started again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from soopf_jax import bench
from soopf_jax.runtime.arrays import read_npz
from tests.slurm.waiting import HOLD, SECONDS, newest_checkpoint, until
from tests.test_devices import ROOT, free_port

RUN = [
    *("--dataset", "tests.slurm.parts:open_substrate", "--encoder", "tests.slurm.parts:open_encoder"),
    *("--assignment", "factorial", "--seeds", "2", "--restarts", "1", "--batch-size", "8"),
    *("--steps", "20", "--checkpoint-seconds", "0"),  # a checkpoint after every step
]
COMMAND = [sys.executable, "-m", "soopf_jax", "run", *RUN, "--distributed"]
CLUSTER = ("JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM_")


@contextmanager
def started(out, cache, holds=None):
    """Both processes of a run. One of them may wait after its next checkpoint, as long as it lives."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER)}
    usual |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [*COMMAND, "--out", str(out), "--cache-dir", str(cache)],
            cwd=ROOT,
            env=usual | {"JAX_PROCESS_ID": str(number)} | ({HOLD: str(cache)} if number == holds else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def ended(processes):
    """The exit code of each, and what it printed on stderr."""
    printed = [process.communicate(timeout=SECONDS)[1] for process in processes]
    return [process.returncode for process in processes], printed


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    """The fits of two processes that nobody disturbs."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with started(out, cache) as processes:
        codes, printed = ended(processes)
    assert codes == [0, 0], printed
    return (out / "fits.npz").read_bytes()


@pytest.mark.slow
def test_if_one_process_is_killed_the_other_ends_and_both_go_on_later(tmp_path, cache, undisturbed):
    out = tmp_path / "out"
    for before, victim in enumerate((1, 0)):
        with started(out, cache, holds=victim) as processes:

            def saved(processes=processes, before=before):
                assert all(process.poll() is None for process in processes), ended(processes)
                return newest_checkpoint(out) > before

            until(saved)
            processes[victim].send_signal(signal.SIGKILL)  # the other one waits for it in the next step
            began = time.monotonic()
            codes, printed = ended(processes)
        assert time.monotonic() - began < 60, "JAX itself would take 100 s or more"
        assert newest_checkpoint(out) == before + 1, "it has gone on from its checkpoint"
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] != 0
        last = [line for line in printed[1 - victim].splitlines() if line.startswith("error: ")]
        assert last == [printed[1 - victim].splitlines()[-1]]
        assert last[0].startswith(f"error: process {victim} of this run has died, ")
        assert "Traceback" not in printed[1 - victim]
        assert "stack trace" not in printed[1 - victim]
    with started(out, cache) as processes:
        codes, printed = ended(processes)
    assert codes == [0, 0], printed
    assert (out / "fits.npz").read_bytes() == undisturbed


@pytest.mark.slurm
def test_srun_starts_one_run_in_two_processes(slurm, tmp_path, cache, undisturbed, no_report):
    out, alone = tmp_path / "out", tmp_path / "alone"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER[:3])}
    assert shutil.which("srun")
    done = subprocess.run(
        ["srun", "-n", "2", *COMMAND, "--out", str(out), "--cache-dir", str(cache)],
        cwd=ROOT,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert "over 2 devices" in done.stderr
    assert (out / "fits.npz").read_bytes() == undisturbed
    assert bench.main([*RUN, "--out", str(alone), "--cache-dir", str(cache)]) == 0
    two, one = (read_npz((folder / "fits.npz").read_bytes()) for folder in (out, alone))
    for name in ("seed", "held_out", "restart", "failed"):
        np.testing.assert_array_equal(two[name], one[name])
    for name in ("C_sup", "C_op", "Q"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, err_msg=name)  # float32 rounding
    for name in ("validation", "inj", "non_injective"):
        assert np.abs(two[name] - one[name]).mean() < 0.01, name
