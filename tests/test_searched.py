"""`searched` with trials whose outcome is known, and once with real training on a planted grid."""

import numpy as np
import pytest

from soopf_jax.fitting import assignments, grids, matching, proposals, searching
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import CORE
from soopf_jax.fitting.prepare import prepare_table
from soopf_jax.fitting.protocol import OPTIMISATION, Fits, Protocol, flat_labels, roles
from soopf_jax.fitting.train import Job, Session
from soopf_jax.fitting.unfinished import Plan
from soopf_jax.grid import Grid
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.types import FeatureTable, ObservedFold, Trial
from tests.planted import GRID, planted_table, small_table


def fold_of(table: FeatureTable, held_out: int, trial) -> ObservedFold:
    """A fold of seed 0."""
    shown = np.flatnonzero((roles(table.cell, table.grid, 0) == OPTIMISATION) & (table.cell != held_out))
    described = prepare_table(table, READOUT._replace(prepare=matching.describe)).inputs
    columns = matching.Description(*(np.asarray(column)[shown] for column in described))
    labels = flat_labels(table.grid, 0, ())
    return ObservedFold(columns, labels[table.cell[shown]], int(labels[held_out]), table.grid, 0, trial)


class Landscape:
    """Trials whose loss is the number of labels that a grid has in other cells than the wanted grid, plus noise."""

    def __init__(self, wanted: np.ndarray, grid: Grid) -> None:
        self.grid, self.wanted, self.fits = grid, self.rows_and_columns(wanted, grid), []

    @staticmethod
    def rows_and_columns(placement: np.ndarray, grid: Grid) -> np.ndarray:
        """Which pairs of labels share a support, and which an operation: the same for all placements of a grid."""
        support, operation = grid.axes(placement)
        return np.stack([axis[:, None] == axis[None] for axis in (support, operation)])

    def trial(self, placements: np.ndarray, restart: np.ndarray) -> Trial:
        self.fits.append(len(placements))
        wrong = [np.mean(self.rows_and_columns(p, self.grid) != self.wanted) for p in placements]
        loss = np.array(wrong) + 0.001 * np.cos(7.0 * restart)
        return Trial(loss, 1 - loss)


def test_the_grid_with_the_least_loss_wins_even_if_another_one_matches_better():
    fold = fold_of(small_table(), 2, trial=None)
    truth = np.argsort(flat_labels(GRID, 0, ())).astype(np.int32)
    matches = searching.Competition(fold).best_matches()
    assert matches[0] == tuple(grids.canonical(truth, GRID).tolist())
    wanted = np.array(matches[10], np.int32)
    landscape = Landscape(wanted, GRID)
    proposal = searching.propose(fold._replace(trial=landscape.trial))
    np.testing.assert_array_equal(proposal.placement, wanted)
    assert landscape.fits == [searching.POPULATION] * 3, "three rounds of one size"
    assert proposal.fitness(wanted) > proposal.fitness(truth)
    assert proposal.fitness(wanted) == pytest.approx(-0.001 * np.mean(np.cos(7.0 * np.arange(searching.COMPARED))))


def test_a_grid_of_which_there_are_only_six():
    grid = Grid.of(("a", "b"), ("x", "y"))
    truth = np.argsort(flat_labels(grid, 0, ())).astype(np.int32)
    landscape = Landscape(truth, grid)
    proposal = searching.propose(fold_of(planted_table(10, patches=4, channels=8, grid=grid), 1, landscape.trial))
    np.testing.assert_array_equal(proposal.placement, grids.canonical(truth, grid))


@pytest.mark.usefixtures("optimised")
def test_short_training_finds_a_planted_grid():
    """Two folds, with trials of 100 steps, as the benchmark runs them."""
    table, protocol = planted_table(10), Protocol(seeds=1, restarts=1, steps=1000)
    fits = Fits(np.zeros(2, np.int32), np.array([0, 4], np.int32), np.zeros(2, np.int32))
    arm = Arm(READOUT, assignments.SEARCHED, CORE, assignment_name="searched")
    job = Job(arm, table, prepare_table(table, READOUT), protocol, fits)
    placed, columns = proposals.place(job, Plan(16, 0, 2), Session())
    truth = np.argsort(flat_labels(GRID, 0, ())).astype(np.int32)
    for placement in placed.placements:
        np.testing.assert_array_equal(placement, grids.canonical(truth, GRID))
    assert columns["tried_steps"].tolist() == [3 * searching.POPULATION * 100] * 2
    np.testing.assert_array_equal(columns["fitness"], columns["fitness_of_truth"])
