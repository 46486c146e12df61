"""`matched`: what its proposer is shown, what it finds on planted grids, and what it cannot find."""

import numpy as np
import pytest

from soopf_jax import Grid, benchmark
from soopf_jax.fitting import assignments, grids, proposals
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import CORE
from soopf_jax.fitting.protocol import OPTIMISATION, Protocol, flat_labels, leave_one_cell_out, roles
from soopf_jax.fitting.train import Job, Session
from soopf_jax.fitting.unfinished import Plan
from soopf_jax.plugins import ASSIGNMENTS, resolve
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.scoring import align, verdict
from soopf_jax.types import FeatureTable, Proposal, Proposer
from tests.planted import GRID, SMALL, planted_table, small_table

PROPOSED = [name for name in ASSIGNMENTS if resolve("assignment", ASSIGNMENTS, name).proposer]
"""The assignments that decide grids before training."""


def job_of(table: FeatureTable, assignment=assignments.MATCHED, seeds: int = 2) -> Job:
    """The fits of an arm, without the prepared table, which only training needs."""
    protocol = Protocol(seeds=seeds, restarts=1, steps=20)
    arm = Arm(READOUT, assignment, CORE, assignment_name="matched")
    return Job(arm, table, None, protocol, leave_one_cell_out(table.grid, protocol))


def placed(job: Job) -> proposals.Placed:
    return proposals.place(job, Plan(1, 0), Session())


def recoveries(job: Job) -> np.ndarray:
    """The recovery of every fold's grid."""
    grid, fits = job.table.grid, job.fits
    found = []
    for seed, held_out, placement in zip(fits.seed, fits.held_out, placed(job).job.placements, strict=True):
        q = np.eye(grid.n_cells)[placement][flat_labels(grid, int(seed), ())]
        found.append(align.recovery(q, np.arange(grid.n_cells) != held_out, grid))
    return np.array(found)


def test_a_planted_grid_is_found_in_every_fold():
    assert recoveries(job_of(small_table())).tolist() == [1.0] * 18


def test_a_grid_that_is_not_square_is_found():
    grid = Grid.of(("a", "b"), ("x", "y", "z", "w"))
    assert recoveries(job_of(planted_table(10, patches=8, grid=grid), seeds=1)).tolist() == [1.0] * 8


def test_labels_shuffled_over_all_pairs_give_chance():
    """Nothing is left to find. Placements are permutations, whose chance level brute force gives: 0.425."""
    table = planted_table(20)
    shuffled = table._replace(cell=np.random.default_rng(0).permutation(table.cell))
    everywhere = [align.recovery(np.eye(9)[p], np.arange(9) != 8, GRID) for p in list(grids.all_grids(GRID))[::20]]
    found = recoveries(job_of(shuffled, seeds=3))
    assert found.mean() == pytest.approx(np.mean(everywhere), abs=4 * np.std(everywhere) / len(found) ** 0.5)


def test_two_operations_with_equal_effect_are_unidentifiable():
    """Their labels can change places without any effect, so some folds miss the grid, and never for lack of search."""
    table = planted_table(10)
    partner = np.where(table.cell % 3 == 1, np.arange(90) - 10, np.arange(90))  # invert has the pairs of hue
    job = job_of(table._replace(source=table.source[partner], delta=table.delta[partner]), seeds=3)
    recovery, columns = recoveries(job), placed(job).columns
    verdicts = {
        verdict.verdict(bool(r == 1), float(f), float(t))
        for r, f, t in zip(recovery, columns["fitness"], columns["fitness_of_truth"], strict=True)
    }
    assert verdicts == {verdict.FOUND, verdict.UNIDENTIFIABLE}


def test_the_verdict_by_hand():
    assert verdict.verdict(True, 0.9, 0.9) == verdict.FOUND
    assert verdict.verdict(False, 0.8, 0.9) == verdict.SEARCH_GAP
    assert verdict.verdict(False, 0.9, 0.8) == verdict.UNIDENTIFIABLE
    summary = verdict.summarise(
        np.array([1.0, 0.5, 0.5, 0.5]), np.array([1.0, 0.8, 0.9, 0.9]), np.array([1.0, 0.9, 0.9, 0.8]), np.full(4, 30)
    )
    assert summary == {"found": 0.25, "search_gap": 0.25, "unidentifiable": 0.5, "tried_steps": 30.0}


# ------------------------------------------------------------------------------ the contract of all such assignments


@pytest.mark.parametrize("name", PROPOSED)
def test_it_sees_flat_labels_only(name):
    assert resolve("assignment", ASSIGNMENTS, name).sees == ()


def test_a_proposer_is_shown_optimisation_pairs_of_observed_cells_under_shuffled_labels():
    table, seen = small_table(), []

    def propose(fold):
        seen.append(fold)
        return Proposal(np.arange(9, dtype=np.int32), lambda placement: 0.0)

    job = job_of(table, assignments.PLACED._replace(proposer=Proposer(lambda pair: pair.delta, propose)))
    placed(job)
    for fold, seed, held_out in zip(seen, job.fits.seed, job.fits.held_out, strict=True):
        shown = (roles(table.cell, GRID, int(seed)) == OPTIMISATION) & (table.cell != held_out)
        labels = flat_labels(GRID, int(seed), ())
        np.testing.assert_allclose(fold.described, table.delta[shown], rtol=1e-6)
        np.testing.assert_array_equal(fold.label, labels[table.cell[shown]])
        assert fold.held_out == labels[held_out]
        assert fold._fields == ("described", "label", "held_out", "grid", "seed", "trial")


def test_other_pairs_and_true_regions_change_nothing():
    """Validation pairs, test pairs and the held-out cell are replaced by noise, and region maps are dropped."""
    table = planted_table(10)
    job = job_of(table, seeds=1)
    before = placed(job).job.placements
    for held_out in range(9):
        other = (roles(table.cell, GRID, 0) != OPTIMISATION) | (table.cell == held_out)
        delta = np.where(other[:, None, None], np.random.default_rng(0).normal(size=table.delta.shape), table.delta)
        changed = table._replace(delta=delta.astype(np.float32), region=None)
        after = placed(job._replace(table=changed)).job.placements
        np.testing.assert_array_equal(after[held_out], before[held_out])


def test_training_leaves_the_proposed_grid_as_it_is_and_reports_it():
    result = benchmark(small_table(), assignments=["matched"], protocol=SMALL)
    (arm,) = result.document["arms"]
    assert set(np.unique(result.fits["Q"]).tolist()) == {0.0, 1.0}
    assert arm["recovery"] == arm["exact_recovery"] == 1.0
    assert arm["sees"] == []
    assert arm["grid_search"] == {"found": 1.0, "search_gap": 0.0, "unidentifiable": 0.0, "tried_steps": 0.0}


def test_grids_of_finished_folds_are_not_searched_again(tmp_path, monkeypatch):
    job, session = job_of(small_table()), Session(tmp_path)
    first = proposals.place(job, Plan(1, 0), session).job.placements
    monkeypatch.setattr(proposals.Fold, "proposed", lambda *_: pytest.fail("searched again"))
    np.testing.assert_array_equal(proposals.place(job, Plan(1, 0), session).job.placements, first)
