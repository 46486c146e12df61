"""Where the fits run: on one device or many, in one process or many. The rest of the package need not know which.

A group of fits is an array of (seeds x fits of each seed). Both axes are spread over a mesh of all devices. Fits do not
communicate, so only results move between devices.
"""

import os
from collections.abc import Sequence
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
from soopf_jax.runtime.platforms import CPU, platform_of

SEEDS, FITS = "seeds", "fits"
"""The two axes of the mesh."""
BY_FIT, BY_SEED, EVERYWHERE = PartitionSpec(SEEDS, FITS), PartitionSpec(SEEDS), PartitionSpec()
_LEVEL = "xla_backend_optimization_level"
_lane_threads: dict[Mesh, int] = {}
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def join_processes() -> None:
    """Join the other processes of a distributed run.

    JAX itself recognises Slurm and other clusters. Elsewhere, environment variables give the address of the first
    process, the number of processes and the number of this one.

    Raises:
        UserError: There is no cluster, and the environment variables are missing or wrong.
    """
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM from ending a process
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


def mesh_for(seeds: int, fits: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Arrange devices so that the fewest (seed, fit) places stay empty. On ties, split more by seed than by fit.

    The fits of a seed share their minibatches, so splitting by seed keeps each device's matrix products large.

    Args:
        seeds: Seeds of a group.
        fits: Fits of each seed.
        devices: None: all devices of this run.
    """
    devices = jax.devices() if devices is None else devices
    n = len(devices)
    shapes = [(n // columns, columns) for columns in range(1, n + 1) if n % columns == 0]
    rows, columns = min(shapes, key=lambda shape: -(-seeds // shape[0]) * -(-fits // shape[1]))
    return Mesh(np.array(devices).reshape(rows, columns), (SEEDS, FITS))


def is_single_cpu(devices: Sequence[jax.Device] | None = None) -> bool:
    """Whether these devices are one CPU device, whose cores several programs can share; None: all of this run's."""
    devices = jax.devices() if devices is None else devices
    return len(devices) == 1 and devices[0].platform == CPU


@cache
def lane_meshes(lanes: int) -> tuple[Mesh, ...]:
    """A CPU device for each of several programs that run side by side, with its share of the cores to itself.

    JAX's own CPU device divides every product among all cores, and each core then waits for the others. Programs that
    keep to their own cores need not wait. Threads belong to a CPU client, so every lane has a client of its own. The
    function of jaxlib that makes clients is not part of its public interface. Where a version of jaxlib lacks it, all
    lanes share JAX's own device, which is slower and gives equally correct results.
    """
    share = max(1, threads() // lanes)
    meshes = tuple(Mesh(np.array([[_cpu_device(share)]]), (SEEDS, FITS)) for _ in range(lanes))
    _lane_threads.update({mesh: share for mesh in meshes if mesh.devices.flat[0] not in jax.devices()})
    return meshes


def threads_of_lane(mesh: Mesh) -> int | None:
    """The threads of a lane that has a CPU client of its own; None for any other mesh.

    Lanes with equally many threads run the same compiled programs.
    """
    return _lane_threads.get(mesh)


def _cpu_device(n_threads: int) -> jax.Device:
    """A CPU device that computes in this number of threads."""
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
    """Give a lane the arrays of JAX's own devices, without a copy in memory."""
    if set(mesh.devices.flat) <= set(jax.devices()):
        return tree
    return jax.device_put(jax.tree.map(np.asarray, tree), NamedSharding(mesh, EVERYWHERE), may_alias=True)


def copy_program(compiled: jax.stages.Compiled, mesh: Mesh) -> jax.stages.Compiled | None:
    """Copy a program of one lane to the mesh of another. This takes a tenth of a second; compiling takes some seconds.

    Returns:
        The copy, or None where JAX cannot make one. JAX refuses programs that hold arrays of their own. If it has a
        compilation cache on disk, it would copy programs from there only in part (jaxlib 0.10); every lane then finds
        its programs in that cache.
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


def compiler_options(mesh: Mesh, once: bool = False) -> dict[str, str | bool]:
    """How XLA compiles a program for these devices.

    On a CPU, XLA's YNNPACK fusions are left out. With jaxlib 0.10 they make a step 1.02 to 1.2 times as long on large
    tokens (N = 196, D = 384 and 1024; five noisy comparisons) and no shorter on small ones; they also fuse the
    softmax's gradient into one kernel that takes as long as all the rest of the step.

    Args:
        mesh: The devices.
        once: Whether the program runs only once. It then gets LLVM's first level of optimisation instead of its third,
            which halves the time of compilation. `init` draws the same bits at both levels. A level in XLA_FLAGS is
            left as it is.
    """
    if platform_of(mesh) != CPU:
        return {}
    chosen = _LEVEL in os.environ.get("XLA_FLAGS", "")
    level: dict[str, str | bool] = {_LEVEL: "1"} if once and not chosen else {}
    return {"xla_cpu_experimental_ynn_fusion_type": "", **level}


def put(tree: PyTree, mesh: Mesh, spec: PartitionSpec | PyTree) -> PyTree:
    """Host arrays, the same in every process, as arrays over the mesh."""

    def one(leaf: Any, spec: PartitionSpec) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])

    return jax.tree.map(one, tree, jax.tree.broadcast(spec, tree))


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
    texts = [path.read_text().strip() for path in map(Path, _CGROUP_LIMITS) if path.exists()]
    limits = [int(text) for text in texts if text.isdigit()]
    of_job = int(os.environ.get("SLURM_MEM_PER_NODE", 0)) << 20  # in MB; 0: all that the machine has
    total = min([psutil.virtual_memory().total, *limits, *([of_job] if of_job else [])])
    return total // jax.local_device_count()


def threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
