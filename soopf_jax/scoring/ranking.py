"""Which of several rows is best, and how sure the seeds make us of it.

In: a (rows x seeds) matrix of a score, where larger is better and a column is the same seed for every row. Out: how
often each row comes first among resampled seeds, and its mean rank with an interval. Resampling is paired: a draw takes
the same seeds of every row, because equal seeds mean equal splits, minibatches and restarts.
"""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.scoring.statistics import BOOTSTRAP_SEED, DRAWS, LEVEL

TIE = 1e-9
"""Rows whose means differ by no more than this share their rank. Accuracies are ratios of small integers."""
AT_ONCE = 250
"""Draws that are ranked at a time."""


class Ranking(NamedTuple):
    """What resampled seeds say about the order of the rows. Rank 1 is the best."""

    first: Float[np.ndarray, " rows"]
    """The share of draws in which a row is first. Rows that share the first place count as an equal part each."""
    mean_rank: Float[np.ndarray, " rows"]
    """The mean rank over draws. Rows with equal scores have the mean of the ranks that they take together."""
    low: Float[np.ndarray, " rows"]
    """The ends of the central 95 % of the ranks."""
    high: Float[np.ndarray, " rows"]


def ranking(scores: Float[np.ndarray, "rows seeds"], draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> Ranking:
    """Rank the means of resampled seeds.

    All resamples are taken once if there are no more than `draws` of them, which is so up to five seeds. Otherwise
    `draws` of them are drawn at random.

    Args:
        scores: Finite scores.
        draws: The most resamples.
        seed: The seed of the draws.
    """
    drawn = resamples(scores.shape[1], draws, seed)
    ranks, first = np.empty((len(drawn), len(scores))), np.zeros(len(scores))
    for start in range(0, len(drawn), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        ranks[part] = ranks_of(scores[:, drawn[part]].mean(axis=2).T)
        best = ranks[part] == ranks[part].min(axis=1, keepdims=True)
        first += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    # Ends are ranks that occur: the interval holds at least 95 % of the draws.
    low = np.quantile(ranks, LEVEL / 2, axis=0, method="lower")
    high = np.quantile(ranks, 1 - LEVEL / 2, axis=0, method="higher")
    return Ranking(first / len(drawn), ranks.mean(axis=0), low, high)


def resamples(n_seeds: int, draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> Int[np.ndarray, "resamples seeds"]:
    """Indices of seeds drawn with replacement: every possible draw once, or `draws` random ones if there are more."""
    if n_seeds**n_seeds <= draws:
        return np.array(list(itertools.product(range(n_seeds), repeat=n_seeds)))
    return np.random.Generator(np.random.Philox(seed)).integers(n_seeds, size=(draws, n_seeds))


def ranks_of(means: Float[np.ndarray, "draws rows"]) -> Float[np.ndarray, "draws rows"]:
    """The rank of every row in each draw: 1 + the rows that are better + half the other rows that are as good."""
    difference = means[:, None, :] - means[:, :, None]  # of another row (last axis) and this row
    better = (difference > TIE).sum(axis=2)
    as_good = (np.abs(difference) <= TIE).sum(axis=2) - 1
    return 1 + better + as_good / 2
