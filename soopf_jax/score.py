"""Scores and statistics: pure functions of FitStats and of (seeds x cells) matrices of held-out accuracies.

Whatever is undefined is None, never NaN: a result file can be read by any JSON parser.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from soopf_jax import align
from soopf_jax.fit import FitStats
from soopf_jax.grid import Grid
from soopf_jax.protocol import Fits

COLLAPSE_THRESHOLDS = (0.4, 0.5, 0.6)
SAME_DIFFERENCE = 1e-9
"""Differences between seeds that vary by less are equal up to rounding, and have no t."""


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


def score_fits(fits: Fits, fit_stats: FitStats, grid: Grid, ties: str = "first") -> FitScores:
    """Align every fit on its own optimisation pairs, score it on its held-out cell, and select one restart per fold."""
    rows = [
        _score_fit(jax.tree.map(lambda column, row=row: column[row], fit_stats), held_out, grid)
        for row, held_out in enumerate(fits.held_out.tolist())
    ]
    inj, non_injective, recovered, distinct = map(np.array, zip(*rows, strict=True))
    return FitScores(inj, non_injective, recovered, distinct, select_restarts(fits, fit_stats, ties))


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
    validation = np.where(fit_stats.failed, -np.inf, fit_stats.validation)
    selected = np.zeros(len(validation), bool)
    for fold in np.unique(np.stack([fits.seed, fits.held_out]), axis=1).T:
        rows = np.flatnonzero((fits.seed == fold[0]) & (fits.held_out == fold[1]))
        rows = rows[np.argsort(fits.restart[rows])][:: 1 if ties == "first" else -1]
        best = rows[np.argmax(validation[rows])]
        selected[best] = np.isfinite(validation[best])
    return selected


def fold_matrix(fits: Fits, selected: Bool[np.ndarray, " fits"], value: Float[np.ndarray, " fits"]) -> np.ndarray:
    """(seeds x held-out cells) of a value of the selected restarts; NaN where none could be selected."""
    seeds, folds = np.unique(fits.seed), np.unique(fits.held_out)
    matrix = np.full((len(seeds), len(folds)), np.nan)
    rows = np.flatnonzero(selected)
    matrix[np.searchsorted(seeds, fits.seed[rows]), np.searchsorted(folds, fits.held_out[rows])] = value[rows]
    return matrix


def spread(matrix: Float[np.ndarray, "seeds cells"], cell_names: Sequence[str]) -> dict[str, Any]:
    """Mean over cells within a seed, then over seeds, with population SD and t interval over seeds."""
    per_seed = matrix.mean(axis=1)
    n, mean = len(per_seed), per_seed.mean()
    low = high = math.nan
    if n > 1:
        half = stats.t.ppf(0.975, n - 1) * per_seed.std(ddof=1) / math.sqrt(n)
        low, high = mean - half, mean + half
    return {
        "mean": number(mean),
        "sd": number(per_seed.std()),
        "ci95": [number(low), number(high)] if math.isfinite(low) else None,
        "per_seed": [number(v) for v in per_seed],
        "per_cell": {name: number(v) for name, v in zip(cell_names, matrix.mean(axis=0), strict=True)},
    }


def collapse(matrix: Float[np.ndarray, "seeds cells"], threshold: float) -> float | None:
    """Share of (seed, held-out cell) fits whose accuracy is strictly below the threshold."""
    return number(np.mean(matrix < threshold)) if np.isfinite(matrix).all() else None


def score_arm(fits: Fits, fit_stats: FitStats, scores: FitScores, grid: Grid) -> dict[str, Any]:
    """Every score of one arm, as the result file has it."""
    inj = fold_matrix(fits, scores.selected, scores.inj)
    non_injective = fold_matrix(fits, scores.selected, scores.non_injective)
    recovered = fold_matrix(fits, scores.selected, scores.recovery)
    distinct = fold_matrix(fits, scores.selected, scores.distinct_support.astype(float))
    names = [grid.cell_names[c] for c in np.unique(fits.held_out)]
    inj_spread, non_injective_spread = spread(inj, names), spread(non_injective, names)
    return {
        "n_fits": int(np.prod(inj.shape)),
        "failed_fits": int(fit_stats.failed.sum()),
        "inj": inj_spread,
        "non_injective": non_injective_spread,
        "laundering_gap": number(non_injective.mean(axis=1).mean() - inj.mean(axis=1).mean()),
        "min_cell": number(inj.mean(axis=0).min()),
        "collapse": {str(t): collapse(inj, t) for t in COLLAPSE_THRESHOLDS},
        "recovery": number(recovered.mean()),
        "exact_recovery": number(np.mean(recovered == 1.0)) if np.isfinite(recovered).all() else None,
        "distinct_support_rate": number(distinct.mean()),
        "validation": number(fold_matrix(fits, scores.selected, fit_stats.validation).mean()),
    }


def paired_test(a: Sequence[float | None], b: Sequence[float | None]) -> dict[str, Any]:
    """Two-sided paired t-test over seeds; t and p are None where they are undefined (one seed, equal differences)."""
    result: dict[str, Any] = {"n": len(a), "mean_diff": None, "t": None, "p": None}
    if any(v is None for v in (*a, *b)):
        return result
    difference = np.array(a, float) - np.array(b, float)
    result["mean_diff"] = number(difference.mean())
    if len(difference) > 1 and np.ptp(difference) > SAME_DIFFERENCE:
        test = stats.ttest_rel(np.array(a, float), np.array(b, float))
        result["t"], result["p"] = number(test.statistic), number(test.pvalue)
    return result


def all_tests(arms: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """All pairs of arms on both scores, and the two alignments of each arm; Holm over all of them."""
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


def number(value: Any) -> float | None:
    """A float for the result file, None for anything that is not finite."""
    return float(value) if math.isfinite(value) else None
