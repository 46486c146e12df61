"""Where the fits run: one device or many, one process or many. The rest of the package does not ask which.

A group of fits is an array of (seeds x fits of each); both axes are spread over a mesh of all devices. Fits never talk
to each other, so that nothing but results crosses between devices.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from jax.experimental import multihost_utils, serialize_executable
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client
from jaxtyping import PyTree

from soopf_jax.errors import UserError

SEEDS, FITS = "seeds", "fits"
"""The two axes of the mesh."""
BY_FIT, BY_SEED, EVERYWHERE = PartitionSpec(SEEDS, FITS), PartitionSpec(SEEDS), PartitionSpec()
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def join_processes() -> None:
    """Make one program of many processes: Slurm and other clusters are found by JAX itself.

    Elsewhere the environment names the first process's address, the number of processes and one's own number.
    """
    number, own = (os.environ.get(name) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
    try:
        jax.distributed.initialize(num_processes=int(number) if number else None, process_id=int(own) if own else None)
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--distributed found no cluster ({reason}); start it under Slurm, or set JAX_COORDINATOR_ADDRESS,"
            " JAX_NUM_PROCESSES and JAX_PROCESS_ID for every process"
        ) from error


def is_main() -> bool:
    """Whether this process writes files and talks to the user."""
    return jax.process_index() == 0


def mesh_for(seeds: int, fits: int, devices: int | None = None) -> Mesh:
    """All devices, in the arrangement that leaves the fewest (seed, fit) places empty; on ties, more over seeds.

    The fits of a seed share their minibatches, so that splitting by seed keeps each device's products large.
    """
    n = devices or jax.device_count()
    shapes = [(n // columns, columns) for columns in range(1, n + 1) if n % columns == 0]
    rows, columns = min(shapes, key=lambda shape: -(-seeds // shape[0]) * -(-fits // shape[1]))
    return Mesh(np.array(jax.devices()[:n]).reshape(rows, columns), (SEEDS, FITS))


@cache
def lane_meshes(lanes: int) -> tuple[Mesh, ...]:
    """A CPU device for each of several programs that run side by side, with its share of the cores to itself.

    JAX's own CPU device cuts every product up among all cores, each of which then waits for the others. Programs that
    keep to their own cores need not. Threads belong to a client, so that every lane has a client of its own; jaxlib
    makes them but does not promise to. Where it does no more, lanes share JAX's device: slower, and as right.
    """
    return tuple(Mesh(np.array([[_cpu_device(max(1, threads() // lanes))]]), (SEEDS, FITS)) for _ in range(lanes))


def _cpu_device(n_threads: int) -> jax.Device:
    """A CPU device that computes in so many threads."""
    name = "NPROC"  # XLA reads it while it makes a client, and at no other time
    before = os.environ.get(name)
    os.environ[name] = str(n_threads)
    try:
        return xla_client.make_cpu_client().devices()[0]  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return jax.devices()[0]
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def share(tree: PyTree, mesh: Mesh) -> PyTree:
    """Arrays of JAX's own devices, on the mesh of a lane; they stay where they are in memory."""
    if set(mesh.devices.flat) <= set(jax.devices()):
        return tree
    return jax.device_put(jax.tree.map(np.asarray, tree), NamedSharding(mesh, EVERYWHERE), may_alias=True)


def copied(compiled: jax.stages.Compiled, mesh: Mesh) -> jax.stages.Compiled | None:
    """A program that was compiled for one lane, for the mesh of another: a tenth of a second instead of some seconds.

    None where JAX cannot: it refuses programs that hold arrays of their own, and of those that came from its cache on
    disk, where every lane finds them anyway, it copies only a part (jaxlib 0.10).
    """
    device = mesh.devices.flat[0]
    if device in jax.devices():
        return compiled
    if jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return None
    try:
        code, takes, gives = serialize_executable.serialize(compiled)
        return serialize_executable.deserialize_and_load(code, takes, gives, device.client, [device])
    except (NotImplementedError, ValueError):
        return None


def put(tree: PyTree, mesh: Mesh, spec: PartitionSpec | PyTree) -> PyTree:
    """Host arrays, the same in every process, as arrays over the mesh."""

    def one(leaf: Any, spec: PartitionSpec) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])

    specs = jax.tree.map(lambda _: spec, tree) if isinstance(spec, PartitionSpec) else spec
    return jax.tree.map(one, tree, specs)


def to_host(tree: PyTree) -> PyTree:
    """Arrays over the mesh as NumPy arrays, whole in every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return jax.tree.map(lambda leaf: np.asarray(multihost_utils.process_allgather(leaf, tiled=True)), tree)


def agreed(decision: bool) -> bool:
    """The first process's decision, in every process."""
    if jax.process_count() == 1:
        return decision
    return bool(multihost_utils.broadcast_one_to_all(np.asarray(decision)))


def memory_of_device() -> int:
    """Bytes that a program may use on one of this process's devices."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    limits = [path.read_text().strip() for path in map(Path, _CGROUP_LIMITS) if path.exists()]
    total = min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdigit())])
    return total // jax.local_device_count()


def threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
