"""The census: a readout is trained under every grid that flat labels could have. Where does the true grid rank?

In: features and a short protocol. Out: loss, flat validation accuracy and INJ of a fit per grid and fold, and a
document with the ranks. A census is a diagnostic: it knows which grid is the true one, and nothing is selected by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.arms import make_arms
from soopf_jax.experiments.records import stats_of
from soopf_jax.experiments.training import announce
from soopf_jax.fitting import grids, schedule
from soopf_jax.fitting.assignments import PLACED
from soopf_jax.fitting.prepare import prepare_table, source_transform
from soopf_jax.fitting.proposals import final_loss
from soopf_jax.fitting.protocol import Fits, Protocol, check_cells
from soopf_jax.fitting.train import Job, Session, bytes_of_programs, make_plan, train_arm
from soopf_jax.fitting.unfinished import Columns, Plan
from soopf_jax.grid import Grid
from soopf_jax.scoring import ranks, score
from soopf_jax.types import FeatureTable

MOST_GRIDS = 20_000
"""A census of more grids than this is a sample, unless another number is asked for."""
SAMPLE = 1000
"""Random grids of such a sample."""
AT_ONCE = {"cpu": 64}
"""Fits of one program on a CPU, which just fill the caches. Elsewhere there are MOST_AT_ONCE."""
MOST_AT_ONCE = 4096
TRUE_GRID = PLACED._replace(sees=("axes",))
"""Labels are cell numbers, so the placement 0, 1, 2, ... is the true grid."""


@dataclass(frozen=True)
class Extent:
    """Which grids and folds a census covers."""

    sample: int = 0
    """Random grids beside the true one and its neighbours; 0: all grids, or SAMPLE where there are too many."""
    held_out: tuple[int, ...] = ()
    """The held-out cells; none given: every cell."""


class Census(NamedTuple):
    """The outcome of a census."""

    document: dict[str, Any]
    """Configuration, provenance, folds and summary: plain JSON."""
    columns: Columns
    """`placement` of every grid, and `loss`, `validation`, `inj` by (seed, held-out cell, grid), means over
    restarts. Where one of the restarts failed, the loss is infinite and the others are NaN."""


def grids_of(grid: Grid, sample: int) -> Int[np.ndarray, "grids labels"]:
    """The grids of a census, the true one first: all of them, or its neighbours by one swap and random ones."""
    if grids.n_grids(grid) <= (sample or MOST_GRIDS):
        return np.stack(list(grids.all_grids(grid)))
    truth = np.arange(grid.n_cells, dtype=np.int32)
    stream = np.random.Generator(np.random.Philox(0))
    drawn = grids.random_placements(sample or SAMPLE, grid.n_cells, stream)
    return np.stack(grids.distinct([truth, *grids.swapped(truth, grid), *drawn], grid))


def take_census(
    table: FeatureTable,
    protocol: Protocol,
    extent: Extent | None = None,
    readout: str = "soopf",
    objective: str | None = None,
    session: Session | None = None,
) -> Census:
    """Train a fit under every grid, in every fold and restart.

    Args:
        table: The features.
        protocol: How every fit is trained. Its steps should be few.
        extent: Which grids and folds.
        readout: The name of the readout.
        objective: The name of the objective; by default `core`.
        session: How the census is carried out.

    Raises:
        UserError: A name is unknown, or the features cannot be used.
    """
    session, extent = session or Session(), extent or Extent()
    check_cells(table.cell, table.grid)
    check_no_probe(readout)
    (arm,) = make_arms(readout, [TRUE_GRID], objective)
    placements = grids_of(table.grid, extent.sample)
    held_out = extent.held_out or tuple(range(table.grid.n_cells))
    fits, by_fit = fits_of(protocol, held_out, placements)
    prepared = prepare_table(table, arm.readout, source_transform(table, protocol))
    job = Job(replace(arm, assignment_name="census"), table, prepared, protocol, fits, by_fit, scores_only=True)
    plan = plan_of(job, session)
    announce(plan, session)
    trained = train_arm(job, plan, session)
    scores = score.score_fits(fits, stats_of(trained), table.grid)
    shape = (protocol.seeds, len(held_out), protocol.restarts, len(placements))
    validation = np.where(trained["failed"], np.nan, trained["validation"])
    columns = {
        name: values.reshape(shape).mean(axis=2)
        for name, values in (("loss", final_loss(trained)), ("validation", validation), ("inj", scores.inj))
    }
    in_place = np.stack([ranks.labels_in_place(placements, cell, table.grid) for cell in held_out])
    columns |= {"placement": placements, "in_place": in_place}
    document = {
        "config": dict(session.config or {}),
        "provenance": {
            "features": dict(table.provenance),
            "environment": results.environment(),
            "grid": {"supports": list(table.grid.supports), "operations": list(table.grid.operations)},
            **plan._asdict(),
            "fit_steps": len(fits.seed) * protocol.steps,
        },
        "grids": len(placements),
        "all_grids": grids.n_grids(table.grid),
        "failed_fits": int(trained["failed"].sum()),
        **ranks.record(columns, held_out, table.grid),
    }
    return Census(document, columns)


def check_no_probe(readout: str) -> None:
    """Check that the readout learns from flat labels, whose grid is not known.

    Raises:
        UserError: It is a probe, or there is no such readout.
    """
    if plugins.resolve("readout", plugins.READOUTS, readout).labels == "native":
        raise UserError(f"readout {readout} is a probe: it is told the axes, so it has no grid to find; choose another")


def fits_of(
    protocol: Protocol, held_out: Sequence[int], placements: Int[np.ndarray, "grids labels"]
) -> tuple[Fits, Int[np.ndarray, "fits labels"]]:
    """Every (seed, held-out cell, restart, grid), and the placement of each. A fold's grids share initial values."""
    sizes = np.arange(protocol.seeds), np.array(held_out), np.arange(protocol.restarts), np.arange(len(placements))
    seed, cell, restart, number = (axis.ravel().astype(np.int32) for axis in np.meshgrid(*sizes, indexing="ij"))
    return Fits(seed, cell, restart), placements[number]


def plan_of(job: Job, session: Session) -> Plan:
    """How many fits train at once: as many as are fast, and as memory allows."""
    if session.fits_per_program is None:
        per_seed = len(job.fits.seed) // job.protocol.seeds
        width = min(per_seed, AT_ONCE.get(jax.default_backend(), MOST_AT_ONCE))
        first = np.concatenate([np.arange(width) + seed * per_seed for seed in range(job.protocol.seeds)])
        some = Fits(*(column[first] for column in job.fits))
        count = schedule.fits_at_once(
            some, lambda count: max(bytes_of_programs(job, count, schedule.lanes(len(first))).values())
        )
        session = session._replace(fits_per_program=count)
    return make_plan(job, session)
