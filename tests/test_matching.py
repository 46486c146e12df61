"""benchmarks/matching.py: what it measures on planted grids, whose answers are known."""

import itertools
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.fitting import grids, matching
from soopf_jax.fitting.protocol import flat_labels
from soopf_jax.types import ObservedFold, Proposal
from tests.planted import GRID, planted_table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import grid_search as searches  # noqa: E402
import matching as bench  # noqa: E402
import matching_ways as ways  # noqa: E402

MATCHED = "both second moments of the change, as in `matched`"


def fold_of(held_out: int = 8, seed: int = 0) -> ObservedFold:
    """Random statistics of 40 pairs, none of them of the held-out label."""
    stream = np.random.default_rng(seed)
    label = np.repeat([number for number in range(9) if number != held_out], 5).astype(np.int32)
    described = ways.Statistics(
        *(stream.random((len(label), width)).astype(np.float32) for width in (7, 4, 16, 16, 12))
    )
    return ObservedFold(described, label, held_out, GRID, seed, trial=lambda *_: pytest.fail("trained"))


def as_matched_sees_it(fold: ObservedFold) -> ObservedFold:
    described = fold.described
    return fold._replace(described=matching.Description(described.where, described.change, described.contrast))


# ---------------------------------------------------------------------------------------------------------- placement


def test_the_decided_grids_of_a_planted_table_are_right_and_the_best_of_all():
    found = bench.decided(planted_table(10), matching.PROPOSER, bench.matched_criterion, seeds=2)
    assert found["folds"] == 18
    assert (found["recovery"], found["exact"], found["best_of_all"]) == (1, 1, 1)
    assert (found["unidentifiable"], found["search_gap"]) == (0, 0)
    assert found["recovery_per_seed"] == [1, 1]


def test_shares_of_wrong_grids_and_of_failed_searches():
    """A proposer that knows the labels puts two operations of one support at each other's place in every fold: two of
    eight labels are wrong, or one where the held-out cell is one of both. It says that the true grid fits better."""

    def propose(fold):
        truth = np.argsort(flat_labels(GRID, fold.seed, ())).astype(np.int32)
        exchanged = np.array([1, 0, *range(2, 9)], np.int32)[truth]
        return Proposal(exchanged, lambda placement: float(np.array_equal(placement, truth)))

    proposer = matching.PROPOSER._replace(propose=propose)
    found = bench.decided(planted_table(10), proposer, bench.matched_criterion, seeds=1)
    assert found["recovery"] == pytest.approx((7 * 6 / 8 + 2 * 7 / 8) / 9)
    assert (found["exact"], found["search_gap"], found["unidentifiable"], found["best_of_all"]) == (0, 1, 0, 0)


def test_a_proposal_beside_all_grids_is_what_brute_force_says():
    fold = fold_of()
    criterion = ways.criterion_of(ways.WAYS[MATCHED])(fold)
    by_hand = np.array([criterion.of(grids.without(placement, 8, GRID)) for placement in grids.all_grids(GRID)])
    proposal = ways.proposer_of(lambda _: criterion).propose(fold)
    compared = bench.compared(proposal, criterion, GRID)
    assert compared.best_of_all
    assert compared.lead == pytest.approx((by_hand.max() - by_hand.mean()) / by_hand.std(), rel=1e-5)
    worst = np.argmin(by_hand)
    listed = list(grids.all_grids(GRID))
    assert not bench.compared(proposal._replace(placement=listed[worst]), criterion, GRID).best_of_all


def test_every_grid_of_eight_labels_is_listed_once():
    listed = {tuple(placement.tolist()) for placement in bench.every_grid(GRID)}
    assert len(listed) == len(bench.every_grid(GRID)) == 10_080
    assert all(sorted(placement) == list(range(8)) for placement in listed)


def test_a_random_grid_has_what_brute_force_over_all_permutations_says():
    cells = np.arange(9).reshape(3, 3)
    orders = list(itertools.permutations(range(3)))
    placements = np.array(list(itertools.permutations(range(9))), np.int8)[:, :8]
    shares = (
        (placements == cells[np.ix_(rows, columns)].ravel()[:8]).mean(axis=1) for rows in orders for columns in orders
    )
    best = np.max(list(shares), axis=0)
    chance = bench.of_random_grid(GRID)
    assert chance["recovery"] == pytest.approx(best.mean())
    assert chance["exact"] == pytest.approx(np.mean(best == 1)) == pytest.approx(1 / 10_080)


# --------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("held_out", [0, 4, 8])
def test_the_way_of_matched_is_its_fitness_and_decides_as_it_does(held_out):
    fold = fold_of(held_out)
    criterion = ways.criterion_of(ways.WAYS[MATCHED])
    wanted = bench.matched_criterion(as_matched_sees_it(fold))
    for given, matrices in zip(criterion(fold), wanted, strict=True):
        np.testing.assert_allclose(given, matrices, rtol=1e-6, atol=1e-7)
    proposal, by_matched = ways.proposer_of(criterion).propose(fold), matching.propose(as_matched_sees_it(fold))
    np.testing.assert_array_equal(proposal.placement, by_matched.placement)
    truth = np.random.default_rng(1).permutation(9).astype(np.int32)
    assert proposal.fitness(truth) == pytest.approx(by_matched.fitness(truth))


@pytest.mark.parametrize("n_cells", [8, 9])
def test_effects_of_the_operation_alone_are_those_of_least_squares(n_cells):
    values = np.random.default_rng(n_cells).normal(size=(n_cells, 5))
    dummies = np.eye(3)[np.arange(n_cells) % 3]
    fitted = dummies @ np.linalg.lstsq(dummies, values, rcond=None)[0]
    np.testing.assert_allclose(ways.operation_effects(GRID, n_cells) @ values, fitted - values.mean(axis=0), atol=1e-6)


def test_pooled_changes_are_weighted_means_and_their_products():
    table = planted_table(1)
    pair = ways.PairView(jnp.asarray(table.source[0]), jnp.asarray(table.delta[0]), None, None)
    found = ways.describe(pair)
    delta = table.delta[0].astype(np.float64)
    weight = (delta**2).sum(axis=1) / (delta**2).sum()
    change = (delta - delta.mean(axis=1, keepdims=True)) / delta.std(axis=1, keepdims=True)
    np.testing.assert_allclose(found.pooled, weight @ change, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.pooled_moment, np.outer(found.pooled, found.pooled).ravel(), rtol=1e-5)
    of_matched = matching.describe(pair)
    np.testing.assert_array_equal(found.change, of_matched.change)
    np.testing.assert_array_equal(found.contrast, of_matched.contrast)


def test_every_way_but_one_finds_a_planted_grid():
    """Operations are directions of the change. Its product with the source is a direction of the support times that of
    the operation, which no sum of effects explains."""
    for name, way in ways.WAYS.items():
        criterion = ways.criterion_of(way)
        found = bench.decided(planted_table(10), ways.proposer_of(criterion), criterion, seeds=1)
        assert (found["exact"] == 1) == (way.statistics != ("contrast",)), name


def test_development_data_are_not_those_of_the_evaluation():
    triples = bench.development_triples()
    assert len(set(triples)) == 9
    assert not any(set(triple) == {"hue", "invert", "pattern"} for triple in triples)
    assert bench.Bench().data_seed != bench.DATA_SEED


# ------------------------------------------------------------------------------------------------------------- search


@pytest.mark.parametrize("name", [name for name in searches.METHODS if "softmax" not in name])
def test_every_method_finds_means_that_are_almost_additive(name):
    for seed in range(3):
        given = searches.problem(3, 16, seed, noise=0.05)
        assert searches.judged(searches.METHODS[name](given, seed), given) == searches.verdict.FOUND


def test_a_softmax_per_row_climbs_but_two_labels_end_in_one_cell():
    given = searches.problem(3, 16, 0, noise=0.05)
    assert searches.softmax_rows(given, 0) is None
    ((similarity,), (closeness,)) = given.fitness
    logits = np.asarray(searches._climbed(*searches._matrices(given.fitness), searches._starts(given, 0)))
    rows = logits.argmax(axis=2)
    climbed = [float(np.sum(similarity * closeness[row][:, row])) for row in rows]
    assert min(climbed) > given.fitness.of(given.truth)  # the crowded cells fit better than the true grid


def test_the_verdicts_of_a_problem():
    given = searches.problem(3, 16, 0, noise=0.05)
    assert searches.judged(given.truth, given) == searches.verdict.FOUND
    wrong = given.truth.copy()
    wrong[[0, 1]] = wrong[[1, 0]]
    assert searches.judged(wrong, given) == searches.verdict.SEARCH_GAP


def test_one_grid_is_told_from_another_whatever_the_order_of_its_axes():
    """Against all pairs of permutations, and on a square grid the exchange of the axes."""
    given = searches.problem(3, 4, 0)
    cells = np.arange(9).reshape(3, 3)
    forms = {
        tuple(form[np.ix_(rows, columns)].ravel()[given.truth].tolist())
        for form in (cells, cells.T)
        for rows in itertools.permutations(range(3))
        for columns in itertools.permutations(range(3))
    }
    assert len(forms) == 72
    assert all(searches.same_grid(np.array(form, np.int32), given.truth, given.grid) for form in forms)
    others = grids.random_placements(300, 9, np.random.default_rng(0))
    assert all((tuple(p.tolist()) in forms) == searches.same_grid(p, given.truth, given.grid) for p in others)


def test_the_comparison_counts_every_trial():
    document = searches.compare(2, sides=(2,), channels=(4,))
    assert [row["method"] for row in document["rows"]] == list(searches.METHODS)
    for row in document["rows"]:
        assert row["found"] + row["search_gap"] + row["unidentifiable"] + row["collapsed"] == row["trials"] == 2
