"""A short training on an accelerator and on this machine's CPU, compared: what a user with a GPU should run first.

In: a device. Out: a Report, which says how far the energies of both are apart, how long a step took and how long it
must take at least. The fits are those of one seed of the paper's protocol on random tokens of the size of DINOv3's.
"""

import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from soopf_jax.fitting import kernels, targets
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.assignments import LEARNED
from soopf_jax.fitting.devices import mesh_for, put, to_host
from soopf_jax.fitting.group import LAYOUT_OF_GROUP, make_group
from soopf_jax.fitting.objectives import CORE
from soopf_jax.fitting.prepare import dims_of, prepare_table
from soopf_jax.fitting.program import Training, advance, energies, init
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.grid import Grid
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runtime.platforms import CPU
from soopf_jax.types import FeatureTable

STEPS = 20
BEFORE, AFTER = 1e-4, 1e-2
"""How far energy shares may be apart: at the same parameters, and after STEPS steps, in which rounding grows."""
ARM = Arm(READOUT, LEARNED, CORE, assignment_name="learned")


class Trained(NamedTuple):
    """A short training on one device."""

    before: Float[np.ndarray, "seeds fits pairs cells"]
    """Energy shares at the initial parameters."""
    after: Float[np.ndarray, "seeds fits pairs cells"]
    seconds: float
    """The time of a step, without compilation."""
    hlo: str
    """The compiled training program."""


class Report(NamedTuple):
    """What was found; it is meant to be sent back to us."""

    device: str
    platform: str
    jax: str
    fits: int
    patches: int
    channels: int
    steps: int
    difference_before: float
    """The largest difference of an energy share from the CPU's, before training."""
    difference_after: float
    agrees: bool
    """Whether both are within BEFORE and AFTER."""
    seconds_per_step: float
    seconds_per_step_cpu: float
    kernels: int | None
    gflop: float | None
    gigabytes: float | None
    roofline_seconds: float | None
    """The least time of a step by the vendor's figures; None for a device without figures here."""


def random_table(patches: int = 196, channels: int = 1024, pairs_per_cell: int = 10) -> FeatureTable:
    """Random half-precision tokens, in which every cell moves its own channels."""
    grid = Grid.of(["floor", "wall", "object"], ["hue", "invert", "pattern"])
    cell = np.repeat(np.arange(grid.n_cells, dtype=np.int32), pairs_per_cell)
    stream = np.random.default_rng(0)
    source = stream.standard_normal((len(cell), patches, channels), dtype=np.float32)
    change = stream.standard_normal((grid.n_cells, patches, channels), dtype=np.float32)
    delta = change[cell] + stream.standard_normal(source.shape, dtype=np.float32)
    return FeatureTable(source.astype(np.float16), delta.astype(np.float16), None, cell, grid, {})


def train_briefly(table: FeatureTable, device: jax.Device, protocol: Protocol) -> Trained:
    """Train the fits of one seed on one device."""
    mesh = mesh_for(1, 1, [device])
    fits = leave_one_cell_out(table.grid, protocol)
    spec = Training(ARM, table.grid, dims_of(table, protocol), protocol, mesh)
    prepared = prepare_table(table, READOUT, mesh=mesh)
    rows = np.arange(len(fits.seed))[None]
    on_host = make_group(table, ARM, protocol, fits, rows)
    group: Any = put(on_host, mesh, LAYOUT_OF_GROUP)
    state = init(spec, group.at_rest)
    before = to_host(energies(spec, state, prepared))
    half = np.int32(protocol.steps // 2)
    state, _ = advance(spec, state, prepared, group, np.int32(0), half)  # the first call compiles
    start = time.perf_counter()
    state, loss = advance(spec, jax.block_until_ready(state), prepared, group, half, np.int32(protocol.steps))
    loss.block_until_ready()
    seconds = (time.perf_counter() - start) / (protocol.steps - int(half))
    program = advance.compiled(spec, state, prepared, group, half, half)
    return Trained(before, to_host(energies(spec, state, prepared)), seconds, program.as_text() or "")


def compare(table: FeatureTable, device: jax.Device, restarts: int = 5) -> Report:
    """Train on a device and on the CPU of this machine, and say how they differ."""
    protocol = Protocol(seeds=1, restarts=restarts, steps=STEPS)
    found = train_briefly(table, device, protocol)
    expected = train_briefly(table, jax.devices(CPU)[0], protocol)
    before, after = (float(np.abs(a - b).max()) for a, b in zip(found[:2], expected[:2], strict=True))
    target = next((t for t in targets.TARGETS.values() if t.name == device.device_kind), None)
    on_gpu = device.platform != CPU
    counted = kernels.kernels_of(kernels.parse(found.hlo), per_step=True) if on_gpu else []
    least = kernels.roofline(counted, target or targets.TARGETS["h100"])
    return Report(
        device=device.device_kind,
        platform=device.platform,
        jax=jax.__version__,
        fits=found.before.shape[1],
        patches=table.source.shape[1],
        channels=table.source.shape[2],
        steps=STEPS,
        difference_before=before,
        difference_after=after,
        agrees=before <= BEFORE and after <= AFTER,
        seconds_per_step=found.seconds,
        seconds_per_step_cpu=expected.seconds,
        kernels=least.kernels if on_gpu else None,
        gflop=least.flops / 1e9 if on_gpu else None,
        gigabytes=least.bytes / 1e9 if on_gpu else None,
        roofline_seconds=least.seconds if on_gpu and target else None,
    )
