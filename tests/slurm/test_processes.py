"""One run in two processes: under Slurm, and when one of them is killed and both are started again."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from soopf_jax import bench
from soopf_jax.runtime.arrays import read_npz
from tests.test_devices import ROOT, free_port

RUN = [
    *("--dataset", "tests.slurm.parts:open_substrate", "--encoder", "tests.slurm.parts:open_encoder"),
    *("--assignment", "factorial", "--seeds", "2", "--restarts", "1", "--batch-size", "8"),
    *("--steps", "200", "--checkpoint-seconds", "0"),
]
COMMAND = [sys.executable, "-m", "soopf_jax", "run", *RUN, "--distributed"]
CLUSTER = ("JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM_")


def start(out, cache):
    """Both processes of a run."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER)}
    usual |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2", "JAX_PLATFORMS": "cpu"}
    return [
        subprocess.Popen(
            [*COMMAND, "--out", str(out), "--cache-dir", str(cache)],
            cwd=ROOT,
            env=usual | {"JAX_PROCESS_ID": str(number)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]


def ended(processes):
    """The exit code of each, and what it printed on stderr."""
    try:
        printed = [process.communicate(timeout=240)[1] for process in processes]
        return [process.returncode for process in processes], printed
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    """The fits of two processes that nobody disturbs."""
    out = tmp_path_factory.mktemp("whole") / "out"
    codes, printed = ended(start(out, cache))
    assert codes == [0, 0], printed
    return (out / "fits.npz").read_bytes()


def newest_checkpoint(out):
    steps = [int(path.name) for path in out.parent.glob(f".{out.name}.work-*/*.checkpoint/*") if path.name.isdigit()]
    return max(steps, default=0)


@pytest.mark.slow
def test_if_one_process_is_killed_the_other_ends_and_both_go_on_later(tmp_path, cache, undisturbed):
    out, before = tmp_path / "out", 0
    for victim in (1, 0):
        processes = start(out, cache)
        while (step := newest_checkpoint(out)) <= before:
            assert all(process.poll() is None for process in processes), ended(processes)
            time.sleep(0.02)
        processes[victim].send_signal(signal.SIGKILL)
        began = time.monotonic()
        codes, printed = ended(processes)
        assert time.monotonic() - began < 60, "JAX itself would take 100 s or more"
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] != 0
        last = [line for line in printed[1 - victim].splitlines() if line.startswith("error: ")]
        assert last == [printed[1 - victim].splitlines()[-1]]
        assert last[0].startswith(f"error: process {victim} of this run has died, ")
        assert "Traceback" not in printed[1 - victim]
        assert "stack trace" not in printed[1 - victim]
        before = step
    codes, printed = ended(start(out, cache))
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
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "over 2 devices" in done.stderr
    assert (out / "fits.npz").read_bytes() == undisturbed
    assert bench.main([*RUN, "--out", str(alone), "--cache-dir", str(cache)]) == 0
    two, one = (read_npz((folder / "fits.npz").read_bytes()) for folder in (out, alone))
    for name in ("seed", "held_out", "restart", "failed"):
        np.testing.assert_array_equal(two[name], one[name])
    for name in ("C_sup", "C_op", "Q"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, err_msg=name)  # float32 rounding, 200 steps
    for name in ("validation", "inj", "non_injective"):
        assert np.abs(two[name] - one[name]).mean() < 0.01, name
