"""GPUs for which programs can be compiled on a machine that has none.

XLA's compiler for CUDA needs a description of the chip, but not the chip. It comes with the extra `cuda12`. In: the
name of a target. Out: devices for a mesh. A program that is compiled for them cannot run here, but its memory analysis
and its kernels are those of the real device, apart from choices that XLA makes by measuring on it (autotuning).
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import jax

from soopf_jax.errors import MissingPackage, unknown_name


class Chip(NamedTuple):
    """What XLA asks about a GPU. Sizes that are the same for all targets are in `_CONFIG`."""

    capability: tuple[int, int]
    """The CUDA compute capability."""
    cores: int
    """Streaming multiprocessors."""
    fpus_per_core: int
    """Float32 units of each of them."""
    threads_per_core: int
    shared_memory_per_core: int
    shared_memory_per_block: int
    """The most shared memory that a block can ask for."""
    l2_bytes: int
    clock_ghz: float
    features: str = ""
    """`ACCELERATED_FEATURES` where the compiler may use instructions of this capability alone."""


class Target(NamedTuple):
    """A GPU by its vendor's figures."""

    name: str
    rates: Mapping[str, float]
    """Dense floating-point operations per second by precision of the products, without sparsity."""
    bandwidth: float
    """Bytes per second of its memory."""
    memory: float
    """Bytes."""
    chip: Chip | None = None
    """None: programs cannot be compiled for it."""


TARGETS: Mapping[str, Target] = {
    "h100": Target(
        "NVIDIA H100 80GB HBM3", {"float32": 67e12, "tf32": 495e12}, 3.35e12, 80e9,
        Chip((9, 0), 132, 128, 2048, 233472, 232448, 52428800, 1.98, "ACCELERATED_FEATURES"),
    ),
    "a100": Target(
        "NVIDIA A100-SXM4-80GB", {"float32": 19.5e12, "tf32": 156e12}, 2.04e12, 80e9,
        Chip((8, 0), 108, 64, 2048, 167936, 166912, 41943040, 1.41),
    ),
    "rtx4060": Target(
        "NVIDIA GeForce RTX 4060", {"float32": 15.1e12, "tf32": 15.1e12}, 272e9, 8e9,
        Chip((8, 9), 24, 128, 1536, 102400, 101376, 25165824, 2.46),
    ),
}  # fmt: skip
"""The targets by their names on the command line. The figures are the vendor's."""

_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {chip.shared_memory_per_core}
  threads_per_core_limit: {chip.threads_per_core}
  core_count: {chip.cores}
  fpus_per_core: {chip.fpus_per_core}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f}
  l2_cache_size: {chip.l2_bytes}
  clock_rate_ghz: {chip.clock_ghz}
  device_memory_size: {memory:.0f}
  shared_memory_per_block_optin: {chip.shared_memory_per_block}
  cuda_compute_capability {{ {capability} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 9 patch: 0 }}
device_description_str: "{name}"
"""


def find(name: str) -> Target:
    """The target of that name.

    Raises:
        UserError: There is none.
    """
    if name not in TARGETS:
        raise unknown_name("target", name, TARGETS)
    return TARGETS[name]


def devices_of(target: Target, count: int = 1, hosts: int = 1) -> Sequence[jax.Device]:
    """Devices to compile for, the same number on each host.

    Raises:
        MissingPackage: The compiler for CUDA is not installed.
    """
    if find_spec("jax_cuda12_plugin") is None:
        raise MissingPackage(
            f"compiling for {target.name} needs JAX's CUDA packages, though no GPU; pip install 'soopf_jax[cuda12]'"
        )
    from jax.experimental import topologies

    topology = f"1x{hosts}x{count // hosts}"
    return topologies.get_topology_desc("", "cuda", target_config=config(target), topology=topology).devices


def config(target: Target) -> str:
    """The target as XLA reads it, a protocol buffer in text form."""
    chip = target.chip
    assert chip is not None, f"{target.name} has no description of its chip"
    (major, minor), features = chip.capability, chip.features
    capability = f"major: {major} minor: {minor}" + (f" feature_extension: {features}" if features else "")
    return _CONFIG.format(
        chip=chip, name=target.name, bandwidth=target.bandwidth, memory=target.memory, capability=capability
    )
