"""Every fit of an arm, trained and evaluated group by group: resumable, planned into memory, on one device or many.

In: an arm, its prepared table and its fits. Out: columns of small numbers on the host, a row per fit.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from soopf_jax.fitting import compiled, devices, footprint, schedule, unfinished
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.checkpoint import Checkpoints
from soopf_jax.fitting.group import LAYOUT_OF_GROUP, Group, make_group
from soopf_jax.fitting.kept import columns_to_keep, without_beaten_restarts
from soopf_jax.fitting.lanes import Check, side_by_side
from soopf_jax.fitting.prepare import PreparedTable, dims_of
from soopf_jax.fitting.program import FitState, Training, advance, energies, evaluate, init
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.router_stats import diagnose, has_masks, router_state
from soopf_jax.fitting.selection import NOTHING
from soopf_jax.fitting.unfinished import Columns, Plan
from soopf_jax.runtime import interrupt
from soopf_jax.runtime.progress import Advance, ProgressBar, phase
from soopf_jax.types import FeatureTable, Json

CHUNKS = 100
"""Parts into which the training of a group is cut. After each of them, the loss and the progress are reported, a
checkpoint may be saved and Ctrl-C is noticed."""
WORTH_KEEPING = 5.0
"""Seconds of training that are saved before the evaluation, which may have to be compiled and can be interrupted."""
ROUTER = "router_"
"""Prefix of the names of RouterStats among the columns of a group."""
SCORED = ("validation", "c_sup", "c_op", "q", "test_counts", "failed")
"""The columns of fits whose job asks for scores only."""
START, END = "router_start_", "router_end_"
"""Prefixes of the names of RouterState before and after training."""


class Session(NamedTuple):
    """How a run is carried out. None of it changes a score beyond float32 rounding."""

    work: Path | None = None
    """A folder that keeps finished groups of fits and checkpoints. An interrupted run continues from them."""
    progress: ProgressBar | None = None
    fits_per_program: int | None = None
    """None: chosen for speed, within the device's memory."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between checkpoints of a group."""
    lanes: int | None = None
    """Groups of fits that train side by side; None: what the plan says."""
    on_arm: Callable[[Json], None] = lambda arm: None
    """Gets the record of each arm as soon as its scores are known."""
    config: Json | None = None
    """Recorded in the result as it is."""
    keep: str | None = None
    """What the result keeps of every selected fit: `none`; `predictions`, which is every pair's energy; or `all`, which
    is the parameters too. None: predictions, unless they are large."""


class Job(NamedTuple):
    """The fits of one arm and all that they read."""

    arm: Arm
    table: FeatureTable
    prepared: PreparedTable
    protocol: Protocol
    fits: Fits
    placements: Int[np.ndarray, "fits cells"] | None = None
    """The cell of each label, by fit, where the grid is decided before training."""
    scores_only: bool = False
    """Whether to leave out the diagnostics of routers and what the report's examples show."""

    def group(self, rows: Int[np.ndarray, "seeds fits"]) -> Group:
        """What one call of the program gets for these rows of the fits."""
        return make_group(self.table, self.arm, self.protocol, self.fits, rows, self.placements)

    def training(self, mesh: Mesh) -> Training:
        """What the compiled programs depend on, for these devices."""
        dims = dims_of(self.table, self.protocol)
        return Training(self.arm, self.table.grid, dims, self.protocol.of_programs, mesh)


class Lane(NamedTuple):
    """Devices that train one group at a time, with the table on them."""

    spec: Training
    prepared: PreparedTable


# ------------------------------------------------------------------------------------------------- the plan


def make_plan(job: Job, session: Session, test: PreparedTable | None = None) -> Plan:
    """How many fits train at once, and in how many lanes.

    The number of fits is what was asked for, what an interrupted run chose, or what is fast and fits into memory. The
    plan is kept in the session's work folder.

    Args:
        job: The fits of the run's first arm.
        session: How the run is carried out.
        test: A further table whose energies are asked for.
    """
    plan = unfinished.read_plan(session.work)
    if plan is None or session.fits_per_program not in (None, plan.fits_per_program):
        shared = footprint.nbytes(job.prepared)

        def lanes_at(count: int) -> int:
            return schedule.lanes(len(schedule.groups(job.fits, schedule.shape_of(job.fits, count))), session.lanes)

        def bytes_of(count: int) -> int:
            return max(bytes_of_programs(job, count, lanes_at(count), test).values())

        count = session.fits_per_program or schedule.fits_at_once(job.fits, bytes_of)
        needed = bytes_of(count)
        lanes = session.lanes or schedule.lanes_in_memory(lanes_at(count), needed, shared)
        plan = Plan(count, shared + lanes * (needed - shared), lanes)
        unfinished.write_plan(session.work, plan)
    return plan


def groups_and_meshes(
    fits: Fits, fits_per_program: int, lanes: int, among: Sequence[jax.Device] | None = None
) -> tuple[list[schedule.Rows], tuple[Mesh, ...]]:
    """Groups of about `fits_per_program` fits, and a mesh for each of the lanes that they train in.

    If there is only one lane, it has all devices: those of `among`, or by default those of this run.
    """
    shape = schedule.shape_of(fits, fits_per_program)
    lanes = schedule.lanes(len(schedule.groups(fits, shape)), lanes, among)
    meshes = devices.lane_meshes(lanes) if lanes > 1 else (devices.mesh_for(*shape, among),)
    return schedule.groups(fits, shape, meshes[0].devices.shape), meshes


def bytes_of_programs(
    job: Job,
    fits_per_program: int,
    lanes: int = 1,
    test: PreparedTable | None = None,
    among: Sequence[jax.Device] | None = None,
) -> dict[str, int]:
    """What each of one lane's programs holds on a device at once, by XLA's own analysis."""
    groups, meshes = groups_and_meshes(job.fits, fits_per_program, lanes, among)
    spec = job.training(meshes[0])
    group = jax.eval_shape(lambda: job.group(groups[0].row))
    region = None if job.table.region is None else job.table.region.shape
    return footprint.bytes_of_calls(footprint.calls(spec, job.prepared, group, region, test))


# --------------------------------------------------------------------------------------------------- the fits


def train_arm(job: Job, plan: Plan, session: Session, test: PreparedTable | None = None) -> Columns:
    """Train and evaluate every fit of an arm.

    Args:
        job: The fits.
        plan: How many of them train at once.
        session: Where finished groups are kept, and who is told of progress.
        test: A further table. The energies of its pairs are returned too.

    Returns:
        Columns with the rows in the order of the job's fits: the fields of FitStats, `loss` by chunk, those of
        RouterState (as `router_start_...` and `router_end_...`) where there are masks, those of RouterStats (as
        `router_...`) where there are regions too, the normalised `energy` of the pairs of `test`, and what the session
        keeps, which is zero for restarts that are not selected.
    """
    compiled.make_room()
    groups, meshes = groups_and_meshes(job.fits, plan.fits_per_program, plan.lanes)
    lanes: SimpleQueue[Lane] = SimpleQueue()
    for mesh in meshes:
        lanes.put(Lane(job.training(mesh), devices.share(job.prepared, mesh)))
    bar = session.progress or (lambda description, total: nullcontext(lambda done: None))
    name, steps, keep = job.arm.assignment_name, job.protocol.steps, session.keep or NOTHING
    kept = unfinished.KeptSteps(name, len(job.fits.seed), steps)

    def read_or_train(numbered: tuple[int, schedule.Rows], check: Check) -> Columns:
        number, rows = numbered
        n_fits = int(rows.real.sum())
        path = unfinished.group_file(session.work, name, number)
        columns = unfinished.read_group(path, rows.row[rows.real], keep)
        if columns is not None:
            progress(n_fits * steps)
            kept.note(number, n_fits, steps)
            return columns
        lane = lanes.get_nowait()
        try:
            fits = GroupOfFits(job, rows, lane, test, keep)
            checkpoints = None
            if path:
                folder, on_written = unfinished.checkpoint_folder(path), partial(kept.note, number, n_fits)
                checkpoints = Checkpoints(folder, session.checkpoint_seconds, on_written)
            columns = fits.train_and_evaluate(checkpoints, progress, check)
        finally:
            lanes.put(lane)
        columns = {name: column[rows.real] for name, column in columns.items()}
        own = Fits(*(column[rows.row[rows.real]] for column in job.fits))
        columns = without_beaten_restarts(columns, own, job.protocol.ties)
        unfinished.write_group(path, columns, rows.row[rows.real], keep)
        if path:
            kept.note(number, n_fits, steps)
        return columns

    with bar(f"training {name}", len(job.fits.seed) * steps) as progress:
        parts = side_by_side(read_or_train, list(enumerate(groups)), len(meshes))
    order = np.argsort(np.concatenate([rows.row[rows.real] for rows in groups]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


class GroupOfFits:
    """One group of fits on one lane, from initial values to columns on the host."""

    def __init__(
        self, job: Job, rows: schedule.Rows, lane: Lane, test: PreparedTable | None, keep: str = NOTHING
    ) -> None:
        self.job, self.lane, self.test, self.keep = job, lane, test, keep
        self.n_fits = int(rows.real.sum())
        host = job.group(rows.row)
        self.group: Group = devices.put(host, lane.spec.mesh, LAYOUT_OF_GROUP)

    @cached_property
    def bounds(self) -> list[int]:
        """The steps at which chunks begin and end."""
        return np.unique(np.linspace(0, self.job.protocol.steps, CHUNKS + 1).astype(int)).tolist()

    def train_and_evaluate(self, checkpoints: Checkpoints | None, progress: Advance, check: Check) -> Columns:
        """All that is kept of the fits, on the host."""
        with checkpoints or nullcontext():
            state, losses = self.train(checkpoints, progress, check)
            with phase(f"evaluating {self.job.arm.assignment_name}"):
                return self.evaluate(state) | {"loss": devices.to_host(losses)}

    def train(
        self, checkpoints: Checkpoints | None, progress: Advance, check: Check
    ) -> tuple[FitState, Float[jax.Array, "seeds fits chunks"]]:
        """Train to the end, from the newest checkpoint if there is one; also the mean loss in every chunk.

        If `check` raises, what was trained is kept in a checkpoint.
        """
        spec, prepared = self.lane
        state, losses = self.start(checkpoints)
        if losses:
            progress(self.n_fits * self.bounds[len(losses)])
        advance.compiled(spec, state, prepared, self.group, np.int32(0), np.int32(0))  # Ctrl-C does not wait for it

        def check_and_keep() -> None:
            try:
                check()
            except BaseException:
                if checkpoints and losses:
                    checkpoints.keep(self.bounds[len(losses)], (state, self.all_losses(losses)))
                raise

        with interrupt.keeping() if checkpoints else nullcontext():
            for start, stop in itertools.pairwise(self.bounds[len(losses) :]):
                check_and_keep()
                state, loss = advance(spec, state, prepared, self.group, np.int32(start), np.int32(stop))
                losses.append(loss.block_until_ready())
                progress(self.n_fits * (stop - start))
                if checkpoints and checkpoints.due(None if stop < self.bounds[-1] else WORTH_KEEPING):
                    checkpoints.save(stop, (state, self.all_losses(losses)))
            check_and_keep()
        return state, self.all_losses(losses)

    def start(self, checkpoints: Checkpoints | None) -> tuple[FitState, list[jax.Array]]:
        """The state to train from, and the losses of the chunks that were trained before it."""
        state = init(self.lane.spec, self.group.at_rest)
        step = checkpoints.newest_step() if checkpoints else None
        if checkpoints is None or step is None or step not in self.bounds:
            return state, []
        saved = checkpoints.restore(step, (state, self.all_losses([])))
        if saved is None:
            return state, []
        state, losses = saved
        return state, [losses[..., chunk] for chunk in range(self.bounds.index(step))]

    def all_losses(self, losses: list[jax.Array]) -> Float[jax.Array, "seeds fits chunks"]:
        """The losses of all chunks, zero for those to come: checkpoints of one group have one shape."""
        none = jnp.zeros_like(self.group.held_out, jnp.float32)
        return jnp.stack([*losses, *[none] * (len(self.bounds) - 1 - len(losses))], axis=-1)

    def evaluate(self, state: FitState) -> Columns:
        """The statistics of trained fits, on the host."""
        spec, prepared = self.lane
        table, group = self.job.table, self.group.at_rest
        columns: dict[str, Any] = evaluate(spec, state, prepared, group)._asdict()
        if self.job.scores_only:
            return devices.to_host({name: columns[name] for name in SCORED})
        columns = columns_to_keep(columns, state.params, self.keep)
        if has_masks(self.job.arm.readout, prepared, spec.dims):
            moments = {START: init(spec, group), END: state}
            for moment, fits in moments.items():
                found = router_state(spec, fits, prepared)
                columns |= {f"{moment}{name}": column for name, column in found._asdict().items()}
            if table.region is not None:
                stats = diagnose(spec, state, prepared, table.region, group)
                columns |= {f"{ROUTER}{name}": column for name, column in stats._asdict().items()}
        if self.test is not None:
            columns["energy"] = energies(spec, state, devices.share(self.test, spec.mesh))
        return devices.to_host({name: column for name, column in columns.items() if column is not None})
