"""Why a grid that was decided before training is wrong: the search failed, or a wrong grid fits better.

The true grid is used here for evaluation only, after the grids were decided.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.scoring.statistics import json_number

FOUND = "found"
SEARCH_GAP = "search gap"
UNIDENTIFIABLE = "unidentifiable: a wrong grid fits better"
EQUAL = 1e-6
"""Two grids whose fitness differs by no more than this fit equally well."""


def verdict(exact: bool, fitness: float, fitness_of_truth: float) -> str:
    """What can be said about one grid.

    Args:
        exact: Whether it is the true grid, up to permutations of the axes.
        fitness: What the search maximised, for the grid that it found.
        fitness_of_truth: The same for the true grid.
    """
    if exact:
        return FOUND
    return SEARCH_GAP if fitness_of_truth > fitness + EQUAL else UNIDENTIFIABLE


def summarise(
    recovery: Float[np.ndarray, " folds"],
    fitness: Float[np.ndarray, " folds"],
    fitness_of_truth: Float[np.ndarray, " folds"],
    tried_steps: Int[np.ndarray, " folds"],
) -> dict[str, Any]:
    """The shares of folds with each verdict, and the mean number of fit-steps that a fold's search took."""
    verdicts = [
        verdict(bool(r == 1.0), float(f), float(t)) for r, f, t in zip(recovery, fitness, fitness_of_truth, strict=True)
    ]
    known = bool(np.isfinite(recovery).all()) and len(verdicts) > 0
    names = {"found": FOUND, "search_gap": SEARCH_GAP, "unidentifiable": UNIDENTIFIABLE}
    shares = {
        key: json_number(np.mean([v == name for v in verdicts])) if known else None for key, name in names.items()
    }
    return shares | {"tried_steps": json_number(tried_steps.mean()) if len(verdicts) else None}
