"""Slurm for these tests, on this machine and in a folder of its own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def slurm(tmp_path_factory) -> Iterator[Path]:
    """A running Slurm of two CPUs: its folder. The test is skipped, with the reason, where it cannot be had."""
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run([HERE / "start.sh", folder, str(os.getpid())], capture_output=True, text=True, timeout=300)
    if started.returncode:
        reason = started.stderr.strip().rpartition("\n")[2]
        (pytest.skip if " needs " in reason else pytest.fail)(reason)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        yield folder
    finally:
        subprocess.run([HERE / "stop.sh", folder], timeout=300)
        del os.environ["SLURM_CONF"]
