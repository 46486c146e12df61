"""Grids that are decided before training, from the optimisation pairs of observed cells and their flat labels only.

In: the job of an arm whose assignment has a proposer. Out: the same job with a placement for every fit. A proposer gets
one `ObservedFold` at a time. It has nothing of the held-out cell, no axes, and labels whose numbers tell nothing.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from soopf_jax.fitting import unfinished
from soopf_jax.fitting.prepare import prepare_table
from soopf_jax.fitting.protocol import OPTIMISATION, Fits, flat_labels, roles
from soopf_jax.fitting.train import Job, Session, train_arm
from soopf_jax.fitting.unfinished import Columns, Plan
from soopf_jax.runtime import interrupt
from soopf_jax.runtime.progress import phase
from soopf_jax.types import ObservedFold, Trial

SHORTER = 10
"""The training of a trial has a tenth of the steps of the fits."""
LAST = 5
"""The loss of a trial is its mean over the last fifth of the steps."""
PLACEMENT, FITNESS, FITNESS_OF_TRUTH, TRIED_STEPS = "placement", "fitness", "fitness_of_truth", "tried_steps"
"""Columns of a proposal: the cell of each label, what the proposer maximised, the same for the true grid, and the
fit-steps that were spent on trials."""


class Placed(NamedTuple):
    """A job whose fits know their grids."""

    job: Job
    columns: Columns
    """How good the grids are for the proposer, a row per fit. Empty where there is no proposer."""


def place(job: Job, plan: Plan, session: Session) -> Placed:
    """Decide the grid of every fold. All restarts of a fold have the same grid.

    Args:
        job: The fits of an arm. Without a proposer, they stay as they are.
        plan: How many fits train at once, in trials too.
        session: Where the grids of finished folds are kept.
    """
    proposer = job.arm.assignment.proposer
    if proposer is None:
        return Placed(job, {})
    described = prepare_table(job.table, job.arm.readout._replace(prepare=proposer.describe, sees=())).inputs
    described = jax.tree.map(np.asarray, described)
    folds = np.unique(np.stack([job.fits.seed, job.fits.held_out]), axis=1).T
    name = f"{job.arm.assignment_name}-grid"
    by_fit: Columns = {}
    for number, (seed, held_out) in enumerate(folds.tolist()):
        interrupt.check()
        rows = np.flatnonzero((job.fits.seed == seed) & (job.fits.held_out == held_out))
        path = unfinished.group_file(session.work, name, number)
        columns = unfinished.read_group(path, rows)
        if columns is None:
            with phase(f"deciding grid {number + 1} of {len(folds)} of {job.arm.assignment_name}"):
                columns = Fold(job, plan, seed, held_out).proposed(described)
            unfinished.write_group(path, columns, rows)
        for key, value in columns.items():
            by_fit.setdefault(key, np.zeros((len(job.fits.seed), *value.shape), value.dtype))[rows] = value
    return Placed(job._replace(placements=by_fit.pop(PLACEMENT)), by_fit)


class Fold:
    """One seed and held-out cell, as its proposer meets it."""

    def __init__(self, job: Job, plan: Plan, seed: int, held_out: int) -> None:
        self.job, self.plan, self.seed, self.held_out = job, plan, seed, held_out
        self.labels = flat_labels(job.table.grid, seed, job.arm.assignment.sees)
        """The flat label of each cell."""
        self.tried_steps = 0

    def proposed(self, described: PyTree) -> Columns:
        """The grid of this fold, and how good it is."""
        proposer = self.job.arm.assignment.proposer
        assert proposer is not None
        proposal = proposer.propose(self.observed(described))
        spent = self.tried_steps
        truth = np.argsort(self.labels).astype(np.int32)  # the true cell of each label, for evaluation only
        return {
            PLACEMENT: proposal.placement.astype(np.int32),
            FITNESS: np.array(proposal.fitness(proposal.placement)),
            FITNESS_OF_TRUTH: np.array(proposal.fitness(truth)),
            TRIED_STEPS: np.array(spent),
        }

    def observed(self, described: PyTree) -> ObservedFold:
        """What the proposer may know. Pairs of the held-out cell are left out here."""
        cell, grid = self.job.table.cell, self.job.table.grid
        shown = np.flatnonzero((roles(cell, grid, self.seed) == OPTIMISATION) & (cell != self.held_out))
        return ObservedFold(
            jax.tree.map(lambda column: column[shown], described),
            self.labels[cell[shown]],
            int(self.labels[self.held_out]) if self.held_out >= 0 else -1,
            grid,
            self.seed,
            self.trial,
        )

    def trial(self, placements: Int[np.ndarray, "grids labels"], restart: Int[np.ndarray, " grids"]) -> Trial:
        """Train a fit under each of the placements for a short time."""
        count = len(placements)
        seed, held_out = (np.full(count, value, np.int32) for value in (self.seed, self.held_out))
        fits = Fits(seed, held_out, restart.astype(np.int32))
        protocol = replace(self.job.protocol, steps=max(1, self.job.protocol.steps // SHORTER))
        arm = replace(self.job.arm, assignment=self.job.arm.assignment._replace(proposer=None))
        job = self.job._replace(arm=arm, protocol=protocol, fits=fits, placements=placements, scores_only=True)
        columns = train_arm(job, trial_plan(self.plan, count), Session())
        self.tried_steps += count * protocol.steps
        return Trial(final_loss(columns), columns["validation"])


def final_loss(columns: Columns) -> Float[np.ndarray, " fits"]:
    """The mean training loss over the last fifth of the steps; infinite for failed fits."""
    chunks = columns["loss"].shape[1]
    loss = columns["loss"][:, chunks - max(1, chunks // LAST) :].mean(axis=1)
    return np.where(columns["failed"], np.inf, loss)


def trial_plan(plan: Plan, count: int) -> Plan:
    """Spread the fits of a trial evenly over the lanes, with no more in a program than the plan allows."""
    programs = -(-count // plan.fits_per_program)
    programs = -(-programs // plan.lanes) * plan.lanes
    return plan._replace(fits_per_program=-(-count // programs))
