"""Every fit of an arm, trained and evaluated group by group: resumable, planned into memory, on one device or many.

In: an arm, its prepared table and its fits. Out: columns of small numbers on the host, a row per fit.
"""

import itertools
import json
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from soopf_jax import atomic, devices, results, schedule
from soopf_jax.checkpoint import Checkpoints
from soopf_jax.errors import UserError
from soopf_jax.fit import (
    GROUP_SPECS,
    Arm,
    FitState,
    Group,
    PreparedTable,
    Program,
    dims_of,
    make_group,
    make_program,
)
from soopf_jax.lanes import Check, once, side_by_side
from soopf_jax.progress import Advance, ProgressBar
from soopf_jax.protocol import Fits, Protocol
from soopf_jax.router_diagnostic import Diagnose, has_masks, make_diagnose
from soopf_jax.types import FeatureTable

CHUNKS = 100
"""Progress reports, losses, chances for a checkpoint and moments for Ctrl-C, per group of fits."""

PLAN, DIGEST = "plan.json", "digest"
ROW = "row"
"""The column of a saved group that says which rows of `Fits` it holds."""
ROUTER = "router_"
"""In front of the names of RouterStats, among those of FitStats."""

Columns = dict[str, np.ndarray]
"""Values of some fits by name, a row per fit."""


class Session(NamedTuple):
    """How a run is carried out. None of it changes a score beyond float32 rounding."""

    work: Path | None = None
    """A folder that keeps finished groups of fits and checkpoints, so that an interrupted run goes on there."""
    progress: ProgressBar | None = None
    fits_per_program: int | None = None
    """None: as many as pay and fit into the device's memory."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between checkpoints of a group."""
    lanes: int | None = None
    """Groups of fits that train side by side; None: what the plan says."""


class Plan(NamedTuple):
    """What was chosen for a run, kept with its unfinished work because rounding depends on it."""

    fits_per_program: int
    bytes_per_device: int
    """What training holds at once on each device, the table included, and all lanes."""
    lanes: int = 1
    """Groups that train side by side."""


class Lane(NamedTuple):
    """The program with the devices that it runs on."""

    program: Program
    advance: Callable[[], Any]
    """Gives `program.advance`, compiled at the first call, for all lanes: work that is already done needs none."""
    prepared: PreparedTable
    mesh: Mesh


class Trainer(NamedTuple):
    """The groups of fits of an arm, and the lanes that they may train in."""

    groups: list[schedule.Rows]
    lanes: list[Lane]
    diagnose: Diagnose | None
    """The router diagnostic, where the readout has masks and the regions are known."""


def make_plan(
    arm: Arm, table: FeatureTable, prepared: PreparedTable, protocol: Protocol, fits: Fits, session: Session
) -> tuple[Plan, Trainer]:
    """As many fits at once as were asked for, as an interrupted run chose, or as fit into memory; and their trainer."""
    trainer_of = cache(partial(make_trainer, arm, table, prepared, protocol, fits))
    shared = sum(leaf.nbytes for leaf in jax.tree.leaves(prepared))

    def lanes_at(count: int) -> int:
        return schedule.lanes(len(schedule.groups(fits, schedule.shape_of(fits, count))), session.lanes)

    def bytes_of(count: int) -> int:
        return schedule.bytes_needed(trainer_of(count, lanes_at(count)).lanes[0].advance())

    place = session.work / PLAN if session.work else None
    plan = _read_plan(place)
    if plan is None or session.fits_per_program not in (None, plan.fits_per_program):
        count = session.fits_per_program or schedule.fits_at_once(fits, bytes_of)
        needed = bytes_of(count)
        lanes = session.lanes or schedule.lanes_in_memory(lanes_at(count), needed, shared)
        plan = Plan(count, shared + lanes * (needed - shared), lanes)
        if place and devices.is_main():
            atomic.write_bytes(place, json.dumps({**plan._asdict(), DIGEST: results.digest(plan._asdict())}).encode())
    return plan, trainer_of(plan.fits_per_program, plan.lanes)


def make_trainer(
    arm: Arm,
    table: FeatureTable,
    prepared: PreparedTable,
    protocol: Protocol,
    fits: Fits,
    fits_per_program: int,
    lanes: int = 1,
) -> Trainer:
    """The arm, for groups of about `fits_per_program` fits; a lane alone has all devices."""
    shape = schedule.shape_of(fits, fits_per_program)
    dims = dims_of(table, protocol)
    lanes = schedule.lanes(len(schedule.groups(fits, shape)), lanes)
    meshes = devices.lane_meshes(lanes) if lanes > 1 else (devices.mesh_for(*shape),)
    groups = schedule.groups(fits, shape, meshes[0].devices.shape)

    def make_lane(mesh: Mesh, first: Lane | None = None) -> Lane:
        program = make_program(arm, table.grid, dims, protocol, mesh)
        here = devices.share(prepared, mesh)

        @once
        def advance() -> Any:
            copy = devices.copied(first.advance(), mesh) if first else None
            if copy is not None:
                return copy
            group = devices.put(make_group(table, arm, protocol, fits, groups[0].row), mesh, GROUP_SPECS)
            steps = np.int32(0), np.int32(0)
            return program.advance.lower(program.init(group), here, group, *steps).compile()  # type: ignore[attr-defined]

        return Lane(program, advance, here, mesh)

    diagnosed = table.region is not None and has_masks(arm.readout, prepared, dims)
    diagnose = make_diagnose(arm, table.grid, protocol) if diagnosed else None
    first = make_lane(meshes[0])
    return Trainer(groups, [first, *(make_lane(mesh, first) for mesh in meshes[1:])], diagnose)


def train_arm(
    trainer: Trainer,
    arm: Arm,
    table: FeatureTable,
    protocol: Protocol,
    fits: Fits,
    session: Session,
    test: PreparedTable | None = None,
) -> Columns:
    """Train and evaluate every fit; rows in the order of `fits`.

    The fields of FitStats, `loss` by chunk, those of RouterStats (as `router_...`) where there are masks and regions,
    and with a `test` table the normalised `energy` of its pairs.
    """
    bar = session.progress or (lambda description, total: nullcontext(lambda done: None))
    free: SimpleQueue[Lane] = SimpleQueue()
    for lane in trainer.lanes:
        free.put(lane)

    def read_or_train(numbered: tuple[int, schedule.Rows], check: Check) -> Columns:
        number, rows = numbered
        place = session.work / f"{_slug(arm.assignment_name)}-{number}.npz" if session.work else None
        columns = _read_group(place, rows.row[rows.real])
        if columns is not None:
            advance(int(rows.real.sum()) * protocol.steps)
            return columns
        lane = free.get_nowait()
        try:
            columns = train_group(lane, rows, place, check)
        finally:
            free.put(lane)
        columns = {name: column[rows.real] for name, column in columns.items()}
        _write_group(place, columns, rows.row[rows.real])
        return columns

    def train_group(lane: Lane, rows: schedule.Rows, place: Path | None, check: Check) -> Columns:
        group = devices.put(make_group(table, arm, protocol, fits, rows.row), lane.mesh, GROUP_SPECS)
        checkpoints = Checkpoints(_checkpoint(place), session.checkpoint_seconds) if place else None
        state = lane.program.init(group)
        state, losses = _train(lane, state, group, protocol.steps, rows, advance, checkpoints, check)
        return _evaluate(lane, trainer.diagnose, state, group, table, test) | {"loss": losses}

    with bar(f"{arm.readout_name} {arm.assignment_name}", len(fits.seed) * protocol.steps) as advance:
        parts = side_by_side(read_or_train, list(enumerate(trainer.groups)), len(trainer.lanes))
    order = np.argsort(np.concatenate([rows.row[rows.real] for rows in trainer.groups]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _train(
    lane: Lane,
    state: FitState,
    group: Group,
    steps: int,
    rows: schedule.Rows,
    advance: Advance,
    checkpoints: Checkpoints | None,
    check: Check,
) -> tuple[FitState, np.ndarray]:
    """Train a group to the end, from its newest checkpoint if there is one; also the mean loss in every chunk."""
    n_fits = int(rows.real.sum())
    bounds = np.unique(np.linspace(0, steps, CHUNKS + 1).astype(int)).tolist()
    losses: list[jax.Array] = []
    with checkpoints or nullcontext():
        step = checkpoints.newest_step() if checkpoints else None
        if checkpoints and step is not None and step in bounds:
            zeros = jax.tree.map(jnp.zeros_like, [state.alive.astype(jnp.float32)] * bounds.index(step))
            state, losses = checkpoints.restore(step, (state, zeros)) or (state, losses)
            advance(n_fits * bounds[len(losses)])
        for start, stop in itertools.pairwise(bounds[len(losses) :]):
            check()
            state, loss = lane.advance()(state, lane.prepared, group, np.int32(start), np.int32(stop))
            losses.append(loss.block_until_ready())
            advance(n_fits * (stop - start))
            if checkpoints and stop < steps:
                checkpoints.offer(stop, (state, losses))
    return state, np.stack(devices.to_host(losses), axis=-1)


def _evaluate(
    lane: Lane,
    diagnose: Diagnose | None,
    state: FitState,
    group: Group,
    table: FeatureTable,
    test: PreparedTable | None,
) -> Columns:
    """All that is kept of the trained fits of a group, on the host."""
    columns = lane.program.evaluate(state, lane.prepared, group)._asdict()
    if diagnose:
        stats = diagnose(state, lane.prepared, table.region, group)
        columns |= {f"{ROUTER}{name}": column for name, column in stats._asdict().items()}
    if test is not None:
        columns["energy"] = lane.program.energies(state, devices.share(test, lane.mesh))
    return devices.to_host({name: column for name, column in columns.items() if column is not None})


def _slug(name: str) -> str:
    return re.sub("[^A-Za-z0-9.-]", "-", name)


def _read_plan(path: Path | None) -> Plan | None:
    """What an interrupted run chose; None where there is none, or none that can be read."""
    try:
        saved = json.loads(path.read_bytes()) if path else {}
        whole = saved.pop(DIGEST, "") == results.digest(saved)
        return Plan(**saved) if whole else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _read_group(path: Path | None, rows: np.ndarray) -> Columns | None:
    """What an earlier run saved of these fits; None where there is nothing, or nothing that can be read.

    Other fits may be there: those that this group had while another number of fits ran at once.
    """
    columns: Columns = {}
    with suppress(OSError, ValueError):
        columns = results.read_npz(path.read_bytes()) if path else {}
    found = np.array_equal(columns.pop(ROW, np.empty(0)), rows)
    if not devices.agreed(found):
        return None
    if not found:
        raise UserError(f"{path} is not visible to every process; choose an --out on a file system that all share")
    return columns


def _write_group(path: Path | None, columns: Columns, rows: np.ndarray) -> None:
    """Keep a finished group; its checkpoints are of no more use."""
    if path and devices.is_main():
        atomic.write_bytes(path, results.npz_bytes({ROW: rows, **columns}))
        shutil.rmtree(_checkpoint(path), ignore_errors=True)


def _checkpoint(path: Path) -> Path:
    """Where the checkpoints of a group lie, while it is not finished."""
    return path.with_suffix(".checkpoint")
