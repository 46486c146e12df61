"""Router diagnostic: how well the router's slots, matched to the supports once per fit, follow the true regions.

In: the sums of each fit over pairs (`fitting.router_stats`). Out: mean mask IoU and assignment agreement.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from soopf_jax.fitting.protocol import Fits
from soopf_jax.fitting.router_stats import MAJORITY, RouterStats
from soopf_jax.scoring import align, score, statistics

UNBOUNDED = ("spread",)
"""The scores that can be above 1."""


def iou(
    masks: Float[np.ndarray, "supports patches"], region: Float[np.ndarray, "patches supports"]
) -> Float[np.ndarray, " supports"]:
    """Intersection over union of each support's hard mask and its region, for one pair whose slots are matched.

    The definition is that of `pair_stats`: a patch belongs to the slot that has most of it, the first on ties, and
    to the support that covers more than MAJORITY of it. Patches without such a support are not counted. The value is
    NaN where the support is absent.
    """
    counted = region.max(axis=1) > MAJORITY
    supports = np.arange(region.shape[1])[:, None]
    found, true = (values[counted].argmax(axis=1) == supports for values in (masks.T, region))
    union = (found | true).sum(axis=1)
    present = true.any(axis=1)
    return np.where(present, (found & true).sum(axis=1) / np.maximum(union, 1), np.nan)


def score_fit(stats: RouterStats) -> dict[str, float]:
    """The scores of one fit, its slots matched to supports one to one by the largest total overlap.

    `iou`: mean over scored pairs of the mean over supports present; `iou_edited`: of the edited support alone;
    `agreement`: share of counted patches whose slot is matched to their support. NaN where there is nothing to score.
    """
    match = np.arange(len(stats.overlap)), align.injective(stats.overlap)
    return {
        "iou": _ratio(float(stats.iou[match].sum()), int(stats.pairs)),
        "iou_edited": _ratio(float(stats.iou_edited[match].sum()), int(stats.pairs_edited)),
        "agreement": _ratio(float(stats.patches[match].sum()), int(stats.patches.sum())),
    }


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else math.nan


def score_fits(stats: RouterStats, failed: Bool[np.ndarray, " fits"]) -> dict[str, Float[np.ndarray, " fits"]]:
    """The scores of every fit by the names of `score_fit`; NaN for failed fits."""
    scored = np.flatnonzero(~failed & np.isfinite(stats.overlap).all(axis=(1, 2)))
    scores = {name: np.full(len(failed), np.nan) for name in ("iou", "iou_edited", "agreement")}
    for fit in scored:
        for name, value in score_fit(RouterStats(*(column[fit] for column in stats))).items():
            scores[name][fit] = value
    return scores


def summarise(
    fits: Fits, selected: Bool[np.ndarray, " fits"], scores: Mapping[str, Float[np.ndarray, " fits"]]
) -> dict[str, dict[str, Any]]:
    """Every score as the result file has it: mean over the selected fits of a seed, then over seeds, with SD."""
    summary = {}
    for name, value in scores.items():
        per_seed = score.fold_matrix(fits, selected, value).mean(axis=1)
        bounded = name not in UNBOUNDED
        interval = statistics.score_interval(per_seed) if bounded else statistics.t_interval(per_seed, low=0.0)
        summary[name] = statistics.over_seeds(per_seed, interval)
    return summary
