"""Ranks under a paired bootstrap over seeds, against matrices worked out by hand and all resamples by brute force."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy

from soopf_jax.scoring.ranking import ranking, ranks_of, resamples


def by_brute_force(rows):
    """The exact share of first places and the exact mean ranks over all n^n resamples, of integer scores."""
    seeds = len(rows[0])
    first, ranks = [Fraction(0)] * len(rows), [Fraction(0)] * len(rows)
    sums = Counter(
        tuple(sum(row[seed] for seed in drawn) for row in rows)
        for drawn in itertools.product(range(seeds), repeat=seeds)
    )
    for totals, times in sums.items():
        for i, total in enumerate(totals):
            better, as_good = sum(other > total for other in totals), totals.count(total)
            ranks[i] += times * (1 + better + Fraction(as_good - 1, 2))
            first[i] += Fraction(times, as_good) if better == 0 else 0
    return [share / seeds**seeds for share in first], [rank / seeds**seeds for rank in ranks]


def test_a_row_that_is_best_in_every_seed_is_always_first():
    found = ranking(np.array([[0.2, 0.3, 0.1], [0.9, 0.8, 0.7], [0.1, 0.2, 0.05]]))
    assert found.first.tolist() == [0.0, 1.0, 0.0]
    assert [found.mean_rank.tolist(), found.low.tolist(), found.high.tolist()] == [[2.0, 1.0, 3.0]] * 3


def test_equal_rows_share_the_first_place_and_their_rank():
    found = ranking(np.array([[0.5, 0.1], [0.5, 0.1], [0.0, 0.0]]))
    assert found.first.tolist() == [0.5, 0.5, 0.0]
    assert found.mean_rank.tolist() == [1.5, 1.5, 3.0]


def test_two_seeds_by_hand():
    """a: 0.6 and 0, b: 0.2 and 0.2. Of the four resamples, (0, 0) and both mixed ones are a's, and (1, 1) is b's."""
    found = ranking(np.array([[0.6, 0.0], [0.2, 0.2]]))
    assert found.first.tolist() == [0.75, 0.25]
    assert found.mean_rank.tolist() == [1.25, 1.75]
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_seeds_are_drawn_for_all_rows_together():
    """b is a plus 0.01 in every seed. Unpaired draws would let a win nearly half of the time."""
    a = np.array([0.1, 0.9, 0.4, 0.6, 0.2, 0.8])
    assert ranking(np.stack([a, a + 0.01])).first.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_few_seeds_have_the_exact_share_of_all_resamples(seeds):
    scores = np.random.default_rng(seeds).integers(0, 5, (4, seeds))  # eighths: with ties, and exact in binary
    first, ranks = by_brute_force(scores.tolist())
    found = ranking(scores / 8)
    assert found.first == pytest.approx([float(share) for share in first], abs=1e-12)
    assert found.mean_rank == pytest.approx([float(rank) for rank in ranks], abs=1e-12)
    assert len(resamples(seeds)) == seeds**seeds


def test_many_seeds_are_drawn_at_random_and_come_near_the_exact_share():
    """Six seeds have 6^6 = 46,656 resamples, more than are drawn. The standard error of a share is at most 0.005."""
    scores = np.random.default_rng(0).integers(0, 9, (3, 6))
    first, ranks = by_brute_force(scores.tolist())
    found = ranking(scores / 8)
    assert len(resamples(6)) == 10_000
    assert found.first == pytest.approx([float(share) for share in first], abs=0.02)
    assert found.mean_rank == pytest.approx([float(rank) for rank in ranks], abs=0.03)
    assert (ranking(scores / 8).first == found.first).all(), "the draws have a fixed seed"


def test_the_interval_holds_at_least_95_per_cent_of_the_ranks():
    scores = np.random.default_rng(1).random((5, 4))
    found = ranking(scores)
    ranks = ranks_of(scores[:, resamples(4)].mean(axis=2).T)
    for row in range(5):
        counts = Counter(ranks[:, row].tolist())
        inside = sum(count for rank, count in counts.items() if found.low[row] <= rank <= found.high[row])
        assert inside / len(ranks) >= 0.95
        assert counts[found.low[row]] > 0
        assert counts[found.high[row]] > 0


def test_ranks_agree_with_scipy():
    means = np.random.default_rng(2).integers(0, 4, (50, 6)) / 4
    assert (ranks_of(means) == scipy.stats.rankdata(-means, axis=1)).all()
