"""Where the true grid ranks among all grids of a census, and which wrong grids fit better.

The first grid of a census is the true one. A grid whose fit failed is worse than any other, and a fold in which the
true grid's fit failed has no rank.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from soopf_jax.grid import Grid
from soopf_jax.scoring import align
from soopf_jax.scoring.statistics import BOOTSTRAP_SEED, DRAWS, LEVEL, MIN_BOOTSTRAP_SEEDS, json_number

WINNERS = 3
"""The wrong grids that are named of every fold."""
UNKNOWN = -1
"""Stands for a number of labels that is not known."""
CRITERIA = {"loss": 1, "validation": -1}
"""What grids are ranked by, and the sign that makes small values good."""


def rank_of_first(values: Float[np.ndarray, " grids"]) -> int | None:
    """1 + the number of grids with a smaller value than the first one; None if that one is not finite."""
    return 1 + int(np.sum(values < values[0])) if np.isfinite(values[0]) else None


def record(columns: Mapping[str, np.ndarray], held_out: Sequence[int], grid: Grid) -> dict[str, Any]:
    """The folds and the summary of a census, as its document has them."""
    n_seeds = len(columns["loss"])
    folds = [
        fold_record({name: columns[name][seed, place] for name in ("loss", "validation", "inj")}, columns, place, grid)
        | {"seed": seed, "held_out": grid.cell_names[cell]}
        for seed in range(n_seeds)
        for place, cell in enumerate(held_out)
    ]
    summary = {
        name: summarise([fold["rank"][name] for fold in folds], columns["placement"].shape[0]) for name in CRITERIA
    }
    return {"folds": folds, "summary": summary}


def fold_record(
    values: Mapping[str, Float[np.ndarray, " grids"]], columns: Mapping[str, np.ndarray], place: int, grid: Grid
) -> dict[str, Any]:
    """The ranks of the true grid in one fold, the losses around it, and the best wrong grids."""
    loss, in_place = values["loss"], columns["in_place"][place]
    trained = np.isfinite(loss)
    wrong = np.flatnonzero(trained & (np.arange(len(loss)) > 0))
    best = wrong[np.argsort(loss[wrong], kind="stable")]
    return {
        "rank": {name: rank_of_first(sign * values[name]) for name, sign in CRITERIA.items()},
        "loss_of_truth": json_number(loss[0]),
        "inj_of_truth": json_number(values["inj"][0]),
        "best_wrong_loss": json_number(loss[best[0]]) if len(best) else None,
        "failed_grids": int(np.sum(~trained)),
        "landscape": {
            str(count): {
                "grids": int(np.sum(in_place == count)),
                "mean": json_number(loss[trained & (in_place == count)].mean()),
                "least": json_number(loss[trained & (in_place == count)].min()),
            }
            for count in np.unique(in_place[trained & (in_place != UNKNOWN)]).tolist()
        },
        "winners": [
            {
                "loss": json_number(loss[number]),
                "inj": json_number(values["inj"][number]),
                "in_place": None if in_place[number] == UNKNOWN else int(in_place[number]),
                "moved": moved(columns["placement"][number], grid),
            }
            for number in best[:WINNERS]
        ],
    }


def labels_in_place(
    placements: Int[np.ndarray, "grids labels"], held_out: int, grid: Grid
) -> Int[np.ndarray, " grids"]:
    """How many observed labels each grid has in their place, best over permutations of the axes; UNKNOWN on a grid
    whose permutations cannot be enumerated."""
    observed = np.flatnonzero(np.arange(grid.n_cells) != held_out)
    found = (align.best_axes(observed, placement[observed], grid) for placement in placements)
    return np.array([UNKNOWN if axes is None else axes.agreeing for axes in found])


def moved(placement: Int[np.ndarray, " labels"], grid: Grid) -> str | None:
    """Which labels are not in their place, after the permutation of the axes that leaves the fewest: `a -> b, ...`.

    None on a grid whose permutations cannot be enumerated.
    """
    cells, names = np.arange(grid.n_cells), grid.cell_names
    axes = align.best_axes(placement, cells, grid)
    if axes is None:
        return None
    at = [axes.slots.slot(cell, grid) for cell in placement.tolist()]
    return ", ".join(f"{names[label]} -> {names[at[label]]}" for label in cells.tolist() if at[label] != label)


def summarise(ranks: Sequence[int | None], n_grids: int) -> dict[str, Any]:
    """The share of folds in which the true grid ranks first, and its mean reciprocal rank, with 95 % intervals.

    Folds without a rank are left out. Without any rank, all numbers but that of chance are None. The bootstrap of few
    folds is too sure, so their mean reciprocal rank has no interval.
    """
    known = [rank for rank in ranks if rank is not None]
    found: dict[str, Any] = {"folds": len(known), "left_out": len(ranks) - len(known)}
    names = ("first", "first_ci95", "mean_reciprocal_rank", "mean_reciprocal_rank_ci95", "median_rank")
    found |= dict.fromkeys(names)
    if known:
        first = sum(rank == 1 for rank in known)
        reciprocal = 1 / np.array(known, float)
        stream = np.random.Generator(np.random.Philox(BOOTSTRAP_SEED))
        means = reciprocal[stream.integers(len(known), size=(DRAWS, len(known)))].mean(axis=1)
        found |= {
            "first": first / len(known),
            "first_ci95": wilson(first, len(known)),
            "mean_reciprocal_rank": float(reciprocal.mean()),
            "median_rank": float(np.median(known)),
        }
        if len(known) >= MIN_BOOTSTRAP_SEEDS:
            found["mean_reciprocal_rank_ci95"] = [float(q) for q in np.quantile(means, (LEVEL / 2, 1 - LEVEL / 2))]
    return found | {"chance_mean_reciprocal_rank": sum(1 / rank for rank in range(1, n_grids + 1)) / n_grids}


def wilson(successes: int, n: int) -> list[float]:
    """Wilson's 95 % interval of a share."""
    z = scipy.stats.norm.ppf(1 - LEVEL / 2)
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return [max(0.0, centre - half), min(1.0, centre + half)]
