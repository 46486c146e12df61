"""What a run would take, without training anything: `soopf run --dry-run`, here or on a GPU that is elsewhere.

In: an opened run. Out: lines of text. The programs are compiled for tables of the right shape, but no features are
computed. One black image is encoded, which tells how many tokens an image has.
"""

from functools import cache

import numpy as np

from soopf_jax.experiments.inputs import Inputs
from soopf_jax.experiments.opened import OpenedRun
from soopf_jax.fitting import schedule, targets
from soopf_jax.fitting.devices import memory_of_device, mesh_for
from soopf_jax.fitting.prepare import prepared_shapes, table_of_zeros
from soopf_jax.fitting.train import Job, Session, bytes_of_programs, make_plan
from soopf_jax.types import FeatureTable

GIGABYTES = (8, 16, 24, 80)
"""Memory sizes of cards for which a plan is shown."""


def describe(run: OpenedRun, target: str | None = None, fits_per_program: int | None = None) -> str:
    """How many fits of a run would train at once, and the memory that they need.

    Args:
        run: The run.
        target: The name of a GPU; None: this machine.
        fits_per_program: How many fits are to train at once; None: chosen for speed, within the memory.

    Raises:
        UserError: The target is unknown, or the compiler for it is not installed.
    """
    among = targets.devices_of(targets.find(target)) if target else None
    arms = run.experiment.make_arms(run.parts)
    mesh = mesh_for(1, 1, among)
    tables = [table_like(inputs, run.config.get("dtype", "float16")) for inputs in run.inputs]
    prepared, *test = [prepared_shapes(table, arms[0].readout, mesh) for table in tables]
    fits = run.experiment.make_fits(tables[0].grid, run.protocol)
    job = Job(arms[0], tables[0], prepared, run.protocol, fits)
    pairs, patches, channels = tables[0].source.shape
    lines = [
        f"dry run: {len(arms)} arms of {len(fits.seed):,} fits, {run.protocol.steps:,} steps each;"
        f" {pairs:,} pairs of {patches} x {channels} tokens"
    ]
    if target is None:
        plan = make_plan(job, Session(fits_per_program=fits_per_program), next(iter(test), None))
        of = f"{plan.bytes_per_device / 1e9:.2f} of {memory_of_device() / 1e9:.1f} GB"
        return "\n".join([*lines, f"on this machine: {plan.fits_per_program} fits at once, {plan.lanes} lanes, {of}"])

    @cache
    def needed(count: int) -> dict[str, int]:
        return bytes_of_programs(job, count, 1, next(iter(test), None), among)

    lines.append(f"on {targets.find(target).name}, compiled and not run:")
    for size in GIGABYTES:
        limit = int(schedule.MEMORY_SHARE * size * 1e9)
        count = fits_per_program or schedule.fits_at_once(fits, lambda n: max(needed(n).values()), limit, among)
        most = max(needed(count), key=lambda name: needed(count)[name])
        peak = needed(count)[most]
        room = f"needs {peak / 1e9:.2f} GB in {most}"
        if peak > limit:
            room = "too small for them" if fits_per_program else "too small even for one fit"
        lines.append(f"  {size:>3} GB: {count:>4} fits at once, {room}")
    return "\n".join(lines)


def table_like(inputs: Inputs, dtype: str) -> FeatureTable:
    """A table of the shape that these features will have. Features that were made elsewhere are themselves."""
    substrate, encoder = inputs.substrate, inputs.encoder
    if substrate is None or encoder is None:
        return inputs.load(None)
    _, patches, channels = encoder.encode(np.zeros((1, *substrate.image_size, 3), np.uint8)).shape
    return table_of_zeros(substrate.cell.astype(np.int32), substrate.grid, patches, channels, dtype)
