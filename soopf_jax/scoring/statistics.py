"""How a score varies over seeds, and how two arms are compared.

In: the (seeds x cells) matrix of a score, or of the differences of two arms. Out: intervals, tests and power.

Seeds are paired because equal seeds mean equal splits, minibatches and restarts. Undefined values are None, never NaN.
An interval says how it was made (`METHODS`). docs/statistics.md has the simulated coverage of all of them.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from soopf_jax.runtime.text import interval
from soopf_jax.types import Json

MIN_SEEDS = 3
"""Fewer seeds give no interval and no p-value: two seeds differ by one number, which can be small by accident."""
MIN_BOOTSTRAP_SEEDS = 5
"""Fewer seeds give no bootstrap: resampling a few values shows no other values than these."""
ENOUGH_SEEDS = 10
"""With fewer seeds an interval is approximate: it can miss a kind of fit that is rare, such as a collapsed one."""
DRAWS = 10_000
BOOTSTRAP_SEED = 0
LEVEL = 0.05
"""The level of every two-sided test. Intervals cover 1 - LEVEL."""
POWER = 0.8
LOSS = 0.05
"""The accuracy that a seed may lose under injective scoring before it counts."""

METHODS = {
    "t and score": "each end is that of the t interval or of the score interval over seeds, whichever is farther out",
    "approximate t and score": f"the same, with fewer than {ENOUGH_SEEDS} seeds",
    "approximate counting error": "the same, with the binomial variance of the test pairs, because seeds vary by less",
    "t": "t interval over seeds",
    "approximate t": f"t interval over fewer than {ENOUGH_SEEDS} seeds",
    "approximate bootstrap": "percentiles of resampled experiments",
}
"""How an interval can be made, as a result has it under `ci95_method`. The first word tells the approximate ones."""
INTERVAL_MEANING = (
    "population SD over seeds, and 95% interval of the mean over seeds, inside [0, 1]. ~ marks an approximate "
    f"interval: of fewer than {ENOUGH_SEEDS} seeds, or of seeds that vary less than the counting error of the test "
    f"pairs. There is none below {MIN_SEEDS} seeds"
)
"""What the glossary says about the columns of `spread`."""

_NO_INTERVAL: Json = {"ci95": None, "ci95_method": None}
_TAILS = (LEVEL / 2, 1 - LEVEL / 2)
_ROUNDING = 1e-12
"""Smaller differences of accuracies are rounding, because accuracies are ratios of small integers."""
_MAX_T = 1e4
"""Beyond this t, scipy's noncentral t is NaN. Differences that vary so little have no meaningful effect size."""


def json_number(value: Any) -> float | None:
    """A float for a result file, None for anything that is not finite."""
    return float(value) if math.isfinite(value) else None


def spread(
    matrix: Float[np.ndarray, "seeds cells"], cell_names: Sequence[str], pairs: int | None = None
) -> dict[str, Any]:
    """Mean over cells within a seed, then over seeds, with population SD and interval over seeds.

    Args:
        matrix: A score in [0, 1].
        cell_names: The names of the columns.
        pairs: The test pairs behind the mean of a seed, if the score is a share of pairs.
    """
    per_seed = matrix.mean(axis=1)
    per_cell = {name: json_number(v) for name, v in zip(cell_names, matrix.mean(axis=0), strict=True)}
    return over_seeds(per_seed, score_interval(per_seed, pairs)) | {"per_cell": per_cell}


def over_seeds(per_seed: Float[np.ndarray, " seeds"], interval_of_mean: Json) -> dict[str, Any]:
    """A number of each seed, as the result file has it: mean, population SD and the given interval."""
    return {
        "mean": json_number(per_seed.mean()),
        "sd": json_number(per_seed.std()),
        **interval_of_mean,
        "per_seed": [json_number(v) for v in per_seed],
    }


# ------------------------------------------------------------------------------------------------------- intervals


def score_interval(scores: Float[np.ndarray, " seeds"], pairs: int | None = None) -> dict[str, Any]:
    """The interval of the mean of a score in [0, 1], and how it was made.

    Each end is that of the t interval or of the score interval, whichever is farther out, cut at 0 and 1. The score
    interval holds every mu with (mean - mu)^2 <= t^2 phi mu (1 - mu) / n, where phi is estimated by
    variance / (mean (1 - mean)). It is Wilson's interval of a proportion with the variance between seeds in place of
    the binomial one, and it is lopsided near 0 and 1, as such scores are. The variance is at least that of counting the
    test pairs, so seeds that coincide do not give an interval of width 0.

    Args:
        scores: One score of each seed.
        pairs: The test pairs behind each of them. None: not a share of pairs, and coinciding seeds have no interval.
    """
    n, scores = len(scores), np.clip(scores, 0.0, 1.0)  # a mean of shares in float32 can be 1.0000001
    if n < MIN_SEEDS or not np.isfinite(scores).all() or (_constant(scores) and not pairs):
        return dict(_NO_INTERVAL)
    mean = scores.mean()
    binomial = max(0.0, mean * (1 - mean))
    counting = 1 / pairs if pairs else 0.0
    between = 0.0 if _constant(scores) else scores.var(ddof=1) / binomial
    k = t_quantile(n - 1) ** 2 * max(between, counting) / n
    half_t, half_score = math.sqrt(k * binomial), math.sqrt(k * binomial + k**2 / 4)
    low = min(mean - half_t, (mean + k / 2 - half_score) / (1 + k))
    high = max(mean + half_t, (mean + k / 2 + half_score) / (1 + k))
    method = "approximate counting error" if between < counting else _by_seeds("t and score", n)
    return {"ci95": [max(0.0, float(low)), min(1.0, float(high))], "ci95_method": method}


def t_interval(values: Float[np.ndarray, " seeds"], low: float = -math.inf, high: float = math.inf) -> dict[str, Any]:
    """The t interval of the mean of numbers that lie between `low` and `high`, and how it was made."""
    if not _varies(values):
        return dict(_NO_INTERVAL)
    n, mean = len(values), float(values.mean())
    half = t_quantile(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return {"ci95": [max(low, mean - half), min(high, mean + half)], "ci95_method": _by_seeds("t", n)}


@cache
def t_quantile(df: int) -> float:
    """How many standard errors an interval of this many degrees of freedom reaches to each side."""
    return float(scipy.stats.t.ppf(_TAILS[1], df))


def _by_seeds(method: str, n_seeds: int) -> str:
    return method if n_seeds >= ENOUGH_SEEDS else f"approximate {method}"


def is_approximate(record: Json) -> bool:
    """Whether an interval's coverage can be far from 95 %. Results of earlier versions do not say how it was made."""
    return str(record.get("ci95_method")).startswith("approximate")


def shown_interval(record: Json, digits: int = 3) -> str:
    """`[0.861, 0.887]`, with a `~` before an approximate interval, or a dash where there is none."""
    mark = "~" if record["ci95"] and is_approximate(record) else ""
    return mark + interval(record["ci95"], digits)


# ----------------------------------------------------------------------------------------------------------- tests


def why_undefined(difference: Float[np.ndarray, "seeds cells"]) -> str | None:
    """Why some test of these differences has no p-value; None where all have one."""
    if not np.isfinite(difference).all():
        return "a fold has no restart that could be selected"
    if np.abs(difference).max() <= _ROUNDING:
        return "equal scores in every seed and cell"
    if len(difference) < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds show too little of the variation between seeds"
    if _constant(difference.mean(axis=1)):
        return "the same difference in every seed"
    if len(difference) < MIN_BOOTSTRAP_SEEDS:
        return f"no bootstrap with fewer than {MIN_BOOTSTRAP_SEEDS} seeds"
    return None


def paired_t(difference: Float[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Two-sided paired t-test over seeds, as `scipy.stats.ttest_rel`, and the t interval of the mean difference.

    The interval is cut at -1 and 1, between which differences of accuracies lie. It excludes 0 just where p < LEVEL.
    """
    if not _varies(difference):
        return {"t": None, "p": None, **_NO_INTERVAL}
    test = scipy.stats.ttest_1samp(difference, 0.0)
    found = {"t": json_number(test.statistic), "p": json_number(test.pvalue)}
    return found | t_interval(difference, -1.0, 1.0)


def bootstrap_means(
    difference: Float[np.ndarray, "seeds cells"], draws: int = DRAWS, seed: int = BOOTSTRAP_SEED
) -> Float[np.ndarray, " draws"]:
    """Mean differences of resampled experiments: seeds with replacement and, within each, cells with replacement."""
    n_seeds, n_cells = difference.shape
    stream = np.random.Generator(np.random.Philox(seed))
    total = np.zeros(draws)
    for _ in range(n_seeds):  # one drawn seed of every experiment at a time, so that memory stays draws x cells
        drawn = stream.integers(n_seeds, size=(draws, 1))
        total += difference[drawn, stream.integers(n_cells, size=(draws, n_cells))].mean(axis=1)
    return total / n_seeds


def paired_bootstrap(difference: Float[np.ndarray, "seeds cells"], draws: int = DRAWS) -> dict[str, Any]:
    """Percentile interval of the mean difference, and the two-sided p-value that inverts it.

    p is twice the share of resampled means on the other side of 0. The data count as one of the draws, so p is never
    below 2 / (draws + 1). p is too small where whole seeds differ: in simulations without a true difference, up to 10 %
    of p-values were below 0.05 with 10 seeds. It is conservative where the same cells differ in every seed, because
    cells are resampled too.
    """
    if len(difference) < MIN_BOOTSTRAP_SEEDS or not np.isfinite(difference).all() or _constant(difference):
        return {"p": None, **_NO_INTERVAL}
    means = bootstrap_means(difference, draws)
    tail = min(np.count_nonzero(means <= _ROUNDING), np.count_nonzero(means >= -_ROUNDING))
    return {
        "p": min(1.0, 2 * (1 + tail) / (1 + draws)),
        "ci95": np.quantile(means, _TAILS).tolist(),
        "ci95_method": "approximate bootstrap",
    }


# ------------------------------------------------------------------------------------------- effect size and power


def effect_size(difference: Float[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Cohen's d_z (mean difference / sample SD), with the interval that inverts the noncentral t distribution."""
    if not _varies(difference):
        return {"d_z": None, "ci95": None}
    n = len(difference)
    d_z = difference.mean() / difference.std(ddof=1)
    ends = noncentrality_interval(d_z * math.sqrt(n), n - 1)
    return {"d_z": float(d_z), "ci95": [end / math.sqrt(n) for end in ends] if ends else None}


def noncentrality_interval(t: float, df: int) -> tuple[float, float] | None:
    """The noncentralities under which an observed t lies just in the upper or the lower tail of its distribution."""
    if abs(t) > _MAX_T:
        return None
    size = abs(t)

    def excess(noncentrality: float, share: float) -> float:
        return scipy.stats.nct.cdf(size, df, noncentrality) - share

    # Each bracket contains its root for every df. Wider brackets would reach values where scipy's function is NaN.
    low = scipy.optimize.brentq(excess, -2, size + 2, args=(_TAILS[1],))
    high = scipy.optimize.brentq(excess, size, 3 * size + 4, args=(_TAILS[0],))
    return (low, high) if t >= 0 else (-high, -low)


def power(d_z: float, n_seeds: int) -> float:
    """The probability that the paired t-test finds an effect of this size."""
    df, noncentrality = n_seeds - 1, d_z * math.sqrt(n_seeds)
    critical = t_quantile(df)
    # The lower tail is computed as a mirrored upper tail, because scipy's cdf is NaN where it vanishes.
    return float(scipy.stats.nct.sf(critical, df, noncentrality) + scipy.stats.nct.sf(critical, df, -noncentrality))


def detectable_effect(n_seeds: int) -> float | None:
    """The smallest d_z that the paired t-test finds with probability POWER; None for one seed."""
    if n_seeds < 2:
        return None
    largest = (2 * t_quantile(n_seeds - 1) + 4) / math.sqrt(n_seeds)
    return float(scipy.optimize.brentq(lambda d_z: power(d_z, n_seeds) - POWER, 0, largest))


def detectable(difference: Float[np.ndarray, " seeds"]) -> dict[str, Any]:
    """The smallest effect that this number of seeds can show: as d_z, and as a mean difference at the SD of these."""
    d_z = detectable_effect(len(difference))
    sd = difference.std(ddof=1) if _varies(difference) else None
    return {"d_z": d_z, "difference": float(d_z * sd) if d_z is not None and sd is not None else None}


def seeds_that_lose(
    inj: Float[np.ndarray, "seeds cells"], non_injective: Float[np.ndarray, "seeds cells"]
) -> int | None:
    """How many seeds lose more than LOSS of their mean accuracy under injective scoring."""
    loss = non_injective.mean(axis=1) - inj.mean(axis=1)
    return int(np.count_nonzero(loss > LOSS + _ROUNDING)) if np.isfinite(loss).all() else None


def _varies(values: Float[np.ndarray, " seeds"]) -> bool:
    return len(values) >= MIN_SEEDS and bool(np.isfinite(values).all()) and not _constant(values)


def _constant(values: Float[np.ndarray, "..."]) -> bool:
    return bool(np.ptp(values) <= _ROUNDING)
