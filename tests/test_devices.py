"""One device, eight and two processes must train the same fits, each its own share of them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.fitting import devices
from soopf_jax.runtime.arrays import read_npz
from tests import sharded_training

ROOT = Path(__file__).parents[1]
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def start(out: Path, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.sharded_training", str(out)]
    cluster = ("JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM")
    own = {name: value for name, value in os.environ.items() if not name.startswith(cluster)}
    return subprocess.Popen(command, cwd=ROOT, env=own | {"JAX_PLATFORMS": "cpu"} | environment)


def finish(*processes: subprocess.Popen) -> None:
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The same training on one device, this process's."""
    out = tmp_path_factory.mktemp("one") / "out.npz"
    sharded_training.main(str(out))
    return read_npz(out.read_bytes())


def assert_same_training(found, expected):
    """Real fits only: a mesh may have more places than there are fits."""
    for name, value in expected.items():
        if name.startswith(("before", "after", "stats")):
            a, b = found[name][found["real"]], value[expected["real"]]
            if name.startswith("before"):
                np.testing.assert_array_equal(a, b, err_msg=name)
            else:
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4, err_msg=name)
    rows = found["real"].any(axis=1)
    for name in ("batches", "role"):
        np.testing.assert_array_equal(found[name][rows], expected[name])


def test_eight_devices_each_train_their_share_and_agree_with_one(tmp_path, one):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    finish(start(tmp_path / "out.npz", XLA_FLAGS=flags))
    eight = read_npz((tmp_path / "out.npz").read_bytes())
    # 3 seeds x 9 fits on 8 devices: 1 x 8 puts 3 x 2 fits on each, 2 x 4 puts 2 x 3, 4 x 2 puts 1 x 5.
    assert eight["mesh"].tolist() == [4, 2]
    assert sorted(eight["shards"][:, 0].tolist()) == list(range(8))
    assert {tuple(shape) for shape in eight["shards"][:, 1:].tolist()} == {(1, 5)}
    assert eight["real"].sum() == 27
    assert not [name for name in COLLECTIVES if f" {name}(" in str(eight["text"])], "fits need nothing of each other's"
    assert_same_training(eight, one)


def test_two_processes_divide_the_work_and_agree_with_one(tmp_path, one):
    address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    out = tmp_path / "out.npz"
    finish(*(start(out, JAX_PROCESS_ID=str(number), **address) for number in range(2)))
    two = read_npz(out.read_bytes())
    assert two["mesh"].tolist() == [1, 2] or two["mesh"].tolist() == [2, 1]
    assert len(two["shards"]) == 2
    places = np.prod(two["shards"][:, 1:], axis=1)
    assert places[0] == places[1] < 27
    assert_same_training(two, one)


@pytest.mark.parametrize(
    ("seeds", "fits", "n", "shape"),
    [(10, 45, 1, (1, 1)), (1, 45, 8, (1, 8)), (10, 45, 10, (10, 1)), (8, 45, 8, (8, 1)), (1, 1, 4, (4, 1))],
)
def test_the_mesh_leaves_few_places_empty(seeds, fits, n, shape):
    assert devices.mesh_for(seeds, fits, jax.devices() * n).devices.shape == shape  # devices are only counted


def test_without_a_cluster_distributed_says_what_is_missing(monkeypatch):
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="JAX_COORDINATOR_ADDRESS"):
        devices.join_processes()


def test_the_memory_of_a_device_is_within_the_machine():
    assert 1e8 < devices.memory_of_device() <= devices.psutil.virtual_memory().total


# --------------------------------------------------------------------------------------------------- lanes


def test_lanes_have_devices_of_their_own_that_share_the_table_in_memory():
    first, second = devices.lane_meshes(2)
    assert len({*first.devices.flat, *second.devices.flat, *jax.devices()}) == 3
    assert devices.lane_meshes(2) is devices.lane_meshes(2), "clients are made once"
    table = {"tokens": jnp.arange(4096.0).reshape(64, 64)}
    for mesh in (first, second):
        (shared,) = devices.share(table, mesh).values()
        assert shared.devices() == {*mesh.devices.flat}
        assert shared.unsafe_buffer_pointer() == table["tokens"].unsafe_buffer_pointer()
        np.testing.assert_array_equal(jax.jit(lambda x: x @ x)(shared), table["tokens"] @ table["tokens"])
    assert devices.share(table, devices.mesh_for(1, 1)) is table


def test_a_lane_s_threads_are_its_share_of_the_cores(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    monkeypatch.setattr(devices, "threads", lambda: 6)
    asked = []

    class Client:
        def devices(self):
            return jax.devices()

    monkeypatch.setattr(devices.xla_client, "make_cpu_client", lambda: asked.append(os.environ["NPROC"]) or Client())
    devices.lane_meshes.__wrapped__(4)
    devices.lane_meshes.__wrapped__(3)
    devices.lane_meshes.__wrapped__(12)
    assert asked == ["1"] * 4 + ["2"] * 3 + ["1"] * 12
    assert os.environ["NPROC"] == "7", "as it was"


def test_without_clients_of_their_own_lanes_share_jax_s_device(monkeypatch):
    monkeypatch.delattr(devices.xla_client, "make_cpu_client")
    monkeypatch.delenv("NPROC", raising=False)
    meshes = devices.lane_meshes.__wrapped__(2)
    assert [list(mesh.devices.flat) for mesh in meshes] == [jax.devices()] * 2
    assert "NPROC" not in os.environ


def test_a_compiled_program_runs_in_another_lane(no_cache_on_disk):
    first, second = devices.lane_meshes(2)
    x = np.random.default_rng(0).standard_normal((50, 50), dtype=np.float32)
    compiled = jax.jit(lambda x: jnp.tanh(x @ x)).lower(devices.put(x, first, devices.EVERYWHERE)).compile()
    copy = devices.copy_program(compiled, second)
    assert copy is not None
    there = copy(devices.put(x, second, devices.EVERYWHERE))
    assert there.devices() == {*second.devices.flat}
    np.testing.assert_array_equal(there, compiled(devices.put(x, first, devices.EVERYWHERE)))
    np.testing.assert_allclose(there, np.tanh(x @ x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"(?i)device|shard"):  # it is that lane's and no one else's
        copy(devices.put(x, first, devices.EVERYWHERE))
    shared = devices.copy_program(compiled, devices.mesh_for(1, 1))
    assert shared is compiled, "lanes that share a device share the program"


def test_where_jax_cannot_copy_a_program_there_is_none(monkeypatch, no_cache_on_disk):
    def refuse(compiled):
        raise NotImplementedError

    monkeypatch.setattr(devices.serialize_executable, "serialize", refuse)
    assert devices.copy_program(jax.jit(jnp.sin).lower(1.0).compile(), devices.lane_meshes(2)[1]) is None


def test_a_program_that_may_have_come_from_the_cache_on_disk_is_not_copied():
    assert jax.config.jax_compilation_cache_dir, "as conftest.py has it"
    assert devices.copy_program(jax.jit(jnp.sin).lower(1.0).compile(), devices.lane_meshes(2)[1]) is None
