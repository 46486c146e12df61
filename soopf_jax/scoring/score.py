"""From the statistics of trained fits to the scores of an arm and the tests between arms.

An undefined value is None in a result, never NaN, because JSON has no NaN.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from soopf_jax.fitting.protocol import ALIGNMENTS, Fits
from soopf_jax.fitting.selection import best_restarts
from soopf_jax.fitting.stats import FitStats
from soopf_jax.grid import Grid
from soopf_jax.scoring import align, metrics, statistics
from soopf_jax.scoring.metric_row import FoldScores


class FitScores(NamedTuple):
    """Scores of every fit, selected or not."""

    inj: Float[np.ndarray, " fits"]
    """Held-out accuracy after injective alignment."""
    non_injective: Float[np.ndarray, " fits"]
    """Held-out accuracy after many-to-one alignment."""
    recovery: Float[np.ndarray, " fits"]
    """NaN where the grid is too large to enumerate."""
    distinct_support: Bool[np.ndarray, " fits"]
    """Whether the many-to-one support map is injective."""
    selected: Bool[np.ndarray, " fits"]
    inj_by_alignment: Mapping[str, Float[np.ndarray, " fits"]]
    """INJ under every alignment that the statistics have."""


def score_fits(fits: Fits, fit_stats: FitStats, grid: Grid, ties: str = "first") -> FitScores:
    """Align every fit on its own optimisation pairs, score it on its held-out cell, and select one restart per fold."""
    rows = [
        _score_fit(jax.tree.map(lambda column, row=row: column[row], fit_stats), held_out, grid)
        for row, held_out in enumerate(fits.held_out.tolist())
    ]
    inj, non_injective, recovered, distinct = map(np.array, zip(*rows, strict=True))
    selected = select_restarts(fits, fit_stats, ties)
    return FitScores(inj, non_injective, recovered, distinct, selected, inj_by_alignment(fits, fit_stats, grid))


def inj_by_alignment(fits: Fits, fit_stats: FitStats, grid: Grid) -> dict[str, Float[np.ndarray, " fits"]]:
    """INJ of every fit under every alignment. No fit has to be trained again for another alignment."""
    c_sup, c_op = fit_stats.c_sup_by_alignment, fit_stats.c_op_by_alignment
    if c_sup is None or c_op is None:
        return {}
    found = {name: np.full(len(fits.held_out), np.nan) for name in ALIGNMENTS}
    for fit in np.flatnonzero(~fit_stats.failed):
        for name, supports, operations in zip(ALIGNMENTS, c_sup[fit], c_op[fit], strict=True):
            slots = align.SlotMap(align.injective(supports), align.injective(operations))
            found[name][fit] = align.held_out_accuracy(fit_stats.test_counts[fit], int(fits.held_out[fit]), slots, grid)
    return found


def _score_fit(fit: FitStats, held_out: int, grid: Grid) -> tuple[float, float, float, bool]:
    """INJ, many-to-one accuracy, recovery and whether the many-to-one supports are distinct, of one fit."""
    if fit.failed:
        return math.nan, math.nan, math.nan, False
    one_to_one = align.SlotMap(align.injective(fit.c_sup), align.injective(fit.c_op))
    shared = align.SlotMap(align.many_to_one(fit.c_sup), align.many_to_one(fit.c_op))
    recovered = align.recovery(fit.q, np.arange(grid.n_cells) != held_out, grid)
    return (
        align.held_out_accuracy(fit.test_counts, held_out, one_to_one, grid),
        align.held_out_accuracy(fit.test_counts, held_out, shared, grid),
        math.nan if recovered is None else recovered,
        len(set(shared.support.tolist())) == grid.n_supports,
    )


def select_restarts(fits: Fits, fit_stats: FitStats, ties: str = "first") -> Bool[np.ndarray, " fits"]:
    """The restart with the best validation accuracy of each fold: the first or last on ties, never a failed one."""
    return best_restarts(fits, fit_stats.validation, fit_stats.failed, ties)


def fold_matrix(fits: Fits, selected: Bool[np.ndarray, " fits"], value: Float[np.ndarray, " fits"]) -> np.ndarray:
    """A value of the selected restarts as a matrix (seeds x held-out cells); NaN where none could be selected."""
    seeds, folds = np.unique(fits.seed), np.unique(fits.held_out)
    matrix = np.full((len(seeds), len(folds)), np.nan)
    rows = np.flatnonzero(selected)
    matrix[np.searchsorted(seeds, fits.seed[rows]), np.searchsorted(folds, fits.held_out[rows])] = value[rows]
    return matrix


def score_arm(fits: Fits, fit_stats: FitStats, scores: FitScores, grid: Grid) -> dict[str, Any]:
    """Every score of one arm, as the result file has it."""

    def by_fold(value: Float[np.ndarray, " fits"]) -> np.ndarray:
        return fold_matrix(fits, scores.selected, value)

    folds = FoldScores(
        inj=by_fold(scores.inj),
        non_injective=by_fold(scores.non_injective),
        recovery=by_fold(scores.recovery),
        distinct_support=by_fold(scores.distinct_support.astype(float)),
        validation=by_fold(fit_stats.validation),
        cell_names=[grid.cell_names[c] for c in np.unique(fits.held_out)],
        inj_by_alignment={name: by_fold(value) for name, value in scores.inj_by_alignment.items()},
        pairs=int(fit_stats.test_counts[scores.selected].sum()) // len(np.unique(fits.seed)),
    )
    return {
        "n_fits": int(np.prod(folds.inj.shape)),
        "failed_fits": int(fit_stats.failed.sum()),
        **{row.key: row.compute(folds) for row in metrics.METRICS[metrics.HELD_OUT]},
    }


def paired_test(a: Sequence[float | None], b: Sequence[float | None]) -> dict[str, Any]:
    """Two-sided paired t-test over seeds; t and p are None where they are undefined (few seeds, equal differences)."""
    if any(v is None for v in (*a, *b)):
        return {"n": len(a), "mean_diff": None, "t": None, "p": None}
    difference = np.array(a, float) - np.array(b, float)
    test = statistics.paired_t(difference)
    return {"n": len(a), "mean_diff": statistics.json_number(difference.mean()), "t": test["t"], "p": test["p"]}


def all_tests(arms: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Paired tests of all pairs of arms on both scores, and of the two alignments of each arm, with Holm's correction.

    Args:
        arms: Names and records of the arms, as `score_arm` makes them.

    Returns:
        The tests as the result file has them.
    """
    tests = [
        {"a": a, "b": b, "score": score, **paired_test(left[score]["per_seed"], right[score]["per_seed"])}
        for score in ("inj", "non_injective")
        for (a, left), (b, right) in itertools.combinations(arms, 2)
    ]
    for name, arm in arms:
        both = paired_test(arm["non_injective"]["per_seed"], arm["inj"]["per_seed"])
        tests.append({"a": f"{name} many-to-one", "b": f"{name} injective", "score": "non_injective", **both})
    for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = adjusted
    return tests


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment over the defined p-values."""
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p))
        adjusted[i] = running
    return adjusted
