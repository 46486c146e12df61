"""Before a run: is it done, can it run here, how long will it take?

In: runs and the tables that need them. Out: for each run, whether it is done, its expected time, or the reason why it
cannot run and the remedy. Data sets and encoders are opened, but nothing is downloaded and no features are computed.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments import results
from soopf_jax.experiments.catalogue import EXPERIMENTS
from soopf_jax.experiments.inputs import substrate_request
from soopf_jax.experiments.options import Bench, command
from soopf_jax.features import remote, store
from soopf_jax.features.table import recipe
from soopf_jax.fitting import devices
from soopf_jax.fitting.protocol import effective_batch_size
from soopf_jax.grid import Grid
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import count
from soopf_jax.studies import cost
from soopf_jax.studies.opening import Openers, missing_weights
from soopf_jax.studies.rows import Obstacle, Places, arm_names, configuration, damaged, folder, placed
from soopf_jax.studies.sheets import Sheet
from soopf_jax.types import Json, SubstrateRequest

SECONDS_PER_PAIR = {"shapes3d-lite": 0.007, "mujoco": 0.04}
"""Seconds to draw a pair on one core, measured on a 2-core machine. Other data sets are read from files."""


# ------------------------------------------------------------------------------------------------ the plan


class Workload(NamedTuple):
    """What decides how much a run costs."""

    cell: Int[np.ndarray, " pairs"]
    grid: Grid
    patches: int
    channels: int
    key: str
    """The key of the features."""
    stored: bool
    """Whether the features have been computed before."""
    seconds_per_image: float | None = None
    """The time of the encoder for one image, measured here; None: not measured."""

    @property
    def table_bytes(self) -> int:
        """What a run holds in memory besides its fits: the source tokens and the normalised changes in float32."""
        return 2 * 4 * len(self.cell) * self.patches * self.channels

    def store_bytes(self, dtype: str) -> int:
        """What the features take on the disk: source tokens, changes, regions and cells."""
        tokens = 2 * np.dtype(dtype).itemsize * self.channels
        return len(self.cell) * (self.patches * (tokens + 4 * self.grid.n_supports) + 4)


class Planned(NamedTuple):
    """A run, the tables that need it, and whether it is done, will run or cannot run."""

    run: Bench
    tables: tuple[str, ...]
    document: Json | None
    """Its result, if it is done."""
    seconds: float
    """The expected time; 0 if the run is done or cannot run."""
    encoding: float
    """The part of it that goes into features."""
    obstacle: Obstacle | None
    """Why it will not run, if it is not done."""
    workload: Workload | None = None
    """None if the data set or the encoder could not be opened."""
    disk: int = 0
    """Bytes that its features will take on the disk, if they are not there and no earlier run makes them."""


class Budget:
    """What is left of time and disk while runs are planned one after another."""

    def __init__(self, places: Places, hours: float, here: bool = True) -> None:
        self.seconds = 3600 * hours
        self.disk = shutil.disk_usage(_existing(store.features_folder(places.cache_dir or None))).free
        self.memory = devices.memory_of_device() if here else math.inf
        self._keys: set[str] = set()
        self._passes: set[tuple[SubstrateRequest, str, str]] = set()

    def features(self, run: Bench, workload: Workload, rate: float) -> tuple[float, int]:
        """Seconds and bytes on the disk for the features of a run. Those that an earlier run makes cost nothing."""
        if workload.stored or workload.key in self._keys:
            return 0.0, 0
        seconds = 0.0 if encoded_with(run) in self._passes else encoding_seconds(run, workload, rate)
        return seconds, workload.store_bytes(run.dtype)

    def obstacle(self, run: Bench, workload: Workload, seconds: float, disk: int, places: Places) -> Obstacle | None:
        """Why the run does not fit into what is left."""
        if workload.table_bytes > self.memory:
            there = f"and there are {size(int(self.memory))}"
            return Obstacle(
                f"needs {size(workload.table_bytes)} of memory, {there}", ("memory: fewer --pairs-per-cell",)
            )
        if disk > self.disk:
            return Obstacle(
                f"needs {size(disk)} of disk, and {size(max(self.disk, 0))} are left",
                ("disk: free some, or choose another --cache-dir",),
            )
        return too_long(run, seconds, places) if seconds > self.seconds else None

    def spend(self, run: Bench, workload: Workload, seconds: float, disk: int) -> None:
        """Take the cost of a run from what is left."""
        self.seconds -= seconds
        self.disk -= disk
        self._keys.add(workload.key)  # the runs that follow share its features
        self._passes.add(encoded_with(run))


def plan(
    wanted: Mapping[Bench, Sequence[str]],
    places: Places,
    rate: float,
    hours: float = math.inf,
    chosen: Callable[[Bench], bool] = lambda run: True,
    openers: Openers | None = None,
    here: bool = True,
) -> list[Planned]:
    """Decide for every run whether it will run.

    Runs are taken in order while there is time. A run that is too long is left out, and the next one is tried.

    Args:
        wanted: The runs, with the tables that need each of them.
        places: The folders of results, data and features.
        rate: Floating-point operations per second of this machine.
        hours: The time for all runs together.
        chosen: Whether the user's options let a run take place.
        openers: What opens data sets and encoders.
        here: Whether the runs take place on this machine. The memory of another one is not known.
    """
    openers, budget = openers or Openers(), Budget(places, hours, here)
    planned = []
    for run, tables in wanted.items():
        workload: Workload | Obstacle = Obstacle("left out by --dataset or --encoder")
        if chosen(run):
            workload = look(placed(run, places), openers)
        document = finished(run, places.runs, None if isinstance(workload, Obstacle) else workload.key)
        if isinstance(document, Obstacle):
            planned.append(Planned(run, tuple(tables), None, 0.0, 0.0, document))
            continue
        if isinstance(workload, Obstacle):
            planned.append(Planned(run, tuple(tables), document, 0.0, 0.0, None if document else workload))
            continue
        seconds, encoding, disk, obstacle = 0.0, 0.0, 0, None
        if document is None:
            encoding, disk = budget.features(run, workload, rate)
            seconds = encoding + training_seconds(run, workload, rate)
            obstacle = budget.obstacle(run, workload, seconds, disk, places)
            if obstacle is None:
                budget.spend(run, workload, seconds, disk)
        planned.append(Planned(run, tuple(tables), document, seconds, encoding, obstacle, workload, disk))
    return planned


def encoded_with(run: Bench) -> tuple[SubstrateRequest, str, str]:
    """Runs that agree in this are encoded together in one pass, whatever their layers are."""
    return substrate_request(run), run.encoder_name, run.dtype


def beside(only: Sequence[str], rows: Sequence[Bench]) -> Callable[[Bench], bool]:
    """What decides whether a row is planned: it is named, or is encoded together with one that is.

    Args:
        only: The names of rows; empty: all.
        rows: The rows of the study.

    Raises:
        UserError: A name is that of no row.
    """
    named = {folder(row): row for row in rows}
    for name in only:
        if name not in named:
            raise unknown_name("row of this study", name, named)
    passes = {encoded_with(named[name]) for name in only}
    return lambda row: not only or encoded_with(row) in passes


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def finished(run: Bench, runs: Path, features_key: str | None) -> Json | Obstacle | None:
    """The finished result of these options and features, or None; an obstacle if it is damaged.

    If the features are not available here (`features_key` is None), the options alone must agree. Tables can then be
    made on a machine without the data, from results that come from elsewhere.
    """
    place = runs / folder(run)
    if not (place / "result.json").exists():
        return None
    config = configuration(run, [features_key] if features_key else [])
    try:
        document = results.load(place).document
    except UserError as error:
        return damaged(place, error)
    return document if config.items() <= document["config"].items() else None


def look(run: Bench, openers: Openers) -> Workload | Obstacle:
    """The sizes of the features of a run, from the tokens of one blank image; or all that is missing."""
    name, substrate = run.encoder_name, openers.dataset(substrate_request(run))
    weights = missing_weights(name)
    if isinstance(substrate, Obstacle) or weights:
        missing = [part for part in (substrate, weights) if isinstance(part, Obstacle)]
        things = " and ".join(part.reason.removeprefix("needs ") for part in missing)
        return Obstacle(f"needs {things}", tuple(remedy for part in missing for remedy in part.remedies))
    encoder = openers.encoder(name, run.layer)
    if isinstance(encoder, Obstacle):
        return encoder
    sizes = openers.sizes(name, None if encoder.layers else run.layer, substrate.image_size)
    try:
        wanted = recipe(substrate, encoder, run.dtype)
    except UserError as error:
        return Obstacle(str(error).partition(";")[0], (str(error),))
    stored = remote.there(wanted, run.cache_dir or None)
    return Workload(substrate.cell, substrate.grid, *sizes[:2], wanted["key"], stored, sizes[2])


# ----------------------------------------------------------------------------------------------- what it takes


def training_seconds(run: Bench, workload: Workload, rate: float) -> float:
    """How long the fits of a run take on a machine of `rate` FLOP/s.

    Every readout counts as SO-OPF, the most expensive one.
    """
    protocol = run.protocol
    work = cost.Work(
        fits=len(EXPERIMENTS[run.edits].make_fits(workload.grid, protocol).seed),
        steps=protocol.steps,
        batch=effective_batch_size(workload.cell, workload.grid, protocol.batch_size),
        patches=workload.patches,
        channels=workload.channels,
        supports=workload.grid.n_supports,
        operations=workload.grid.n_operations,
        hidden=protocol.hidden,
    )
    return len(arm_names(run).assignments) * cost.seconds(work, rate)


def encoding_seconds(run: Bench, workload: Workload, rate: float) -> float:
    """How long it takes to draw and encode the pairs of a run, by the encoder's size or, if unknown, as measured."""
    pairs = len(workload.cell)
    encoding = cost.encode_seconds(run.encoder_name, 2 * pairs, rate)
    if encoding is None:
        encoding = 2 * pairs * (workload.seconds_per_image or 0.0)
    return encoding + pairs * SECONDS_PER_PAIR.get(run.dataset_name, 0.0)


def too_long(run: Bench, seconds: float, places: Places) -> Obstacle:
    """Why a run that could take place does not, and its command."""
    cost_here = f"about {duration(seconds)} here"
    return Obstacle(cost_here, (f"{cost_here}: {command(placed(run, places))}",))


def plan_sheet(planned: Sequence[Planned]) -> Sheet:
    """What each run will cost, or why it will not take place; what is done and what is missing."""
    with_tables = any(p.tables for p in planned)
    rows = []
    for p in planned:
        fate = "done" if p.document else f"about {duration(p.seconds)}"
        sizes = [size(p.workload.table_bytes), size(p.disk) if p.disk else "-"] if p.workload else ["-", "-"]
        words = [folder(p.run), *sizes, f"not run: {p.obstacle.reason}" if p.obstacle else fate]
        rows.append(tuple([*words, " ".join(p.tables)] if with_tables else words))
    to_run = [p for p in planned if not p.obstacle]
    costs = f"about {duration(float(sum(p.seconds for p in to_run)))}, {size(sum(p.disk for p in to_run))} of disk"
    done = sum(p.document is not None for p in planned)
    title = f"Plan: {count(len(planned), 'run')}, {done} done, {len(planned) - len(to_run)} cannot run; {costs}"
    header = ("run", "memory", "disk", "time here", *(("for tables",) if with_tables else ()))
    missing = dict.fromkeys(remedy for p in planned if p.obstacle for remedy in p.obstacle.remedies)
    return Sheet("plan", Table(title, header, rows), () if with_tables else tuple(missing))


def size(n_bytes: int) -> str:
    """`3 MB`, `1.2 GB`."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
