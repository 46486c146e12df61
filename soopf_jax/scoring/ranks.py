"""Where the true grid ranks among all grids of a census, and which wrong grids fit better.

The first grid of a census is the true one.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from soopf_jax.grid import Grid
from soopf_jax.scoring.statistics import BOOTSTRAP_SEED, DRAWS, LEVEL, json_number

WINNERS = 3
"""The wrong grids that are named of every fold."""
CRITERIA = {"loss": 1, "validation": -1}
"""What grids are ranked by, and the sign that makes small values good."""


def rank_of_first(values: Float[np.ndarray, " grids"]) -> int:
    """1 + the number of grids with a smaller value than the first one."""
    return 1 + int(np.sum(values < values[0]))


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
    wrong = np.flatnonzero(np.arange(len(loss)) > 0)
    best = wrong[np.argsort(loss[wrong], kind="stable")]
    return {
        "rank": {name: rank_of_first(sign * values[name]) for name, sign in CRITERIA.items()},
        "loss_of_truth": json_number(loss[0]),
        "inj_of_truth": json_number(values["inj"][0]),
        "best_wrong_loss": json_number(loss[best[0]]),
        "landscape": {
            str(count): {
                "grids": int(np.sum(in_place == count)),
                "mean": json_number(loss[in_place == count].mean()),
                "least": json_number(loss[in_place == count].min()),
            }
            for count in np.unique(in_place).tolist()
        },
        "winners": [
            {
                "loss": json_number(loss[number]),
                "inj": json_number(values["inj"][number]),
                "in_place": int(in_place[number]),
                "moved": moved(columns["placement"][number], grid),
            }
            for number in best[:WINNERS]
        ],
    }


def moved(placement: Int[np.ndarray, " labels"], grid: Grid) -> str:
    """Which labels are not in their place, after the permutation of the axes that leaves the fewest: `a -> b, ...`."""
    support, operation = grid.axes(placement)
    cells = np.arange(grid.n_cells)
    found = [
        np.array(rows)[support] * grid.n_operations + np.array(columns)[operation]
        for rows in itertools.permutations(range(grid.n_supports))
        for columns in itertools.permutations(range(grid.n_operations))
    ]
    best = min(found, key=lambda cell: int(np.sum(cell != cells)))
    names = grid.cell_names
    return ", ".join(f"{names[label]} -> {names[best[label]]}" for label in cells if best[label] != label)


def summarise(ranks: Sequence[int], n_grids: int) -> dict[str, Any]:
    """The share of folds in which the true grid ranks first, and its mean reciprocal rank, with 95 % intervals."""
    first = sum(rank == 1 for rank in ranks)
    reciprocal = 1 / np.array(ranks, float)
    stream = np.random.Generator(np.random.Philox(BOOTSTRAP_SEED))
    means = reciprocal[stream.integers(len(ranks), size=(DRAWS, len(ranks)))].mean(axis=1)
    return {
        "folds": len(ranks),
        "first": first / len(ranks),
        "first_ci95": wilson(first, len(ranks)),
        "mean_reciprocal_rank": float(reciprocal.mean()),
        "mean_reciprocal_rank_ci95": [float(q) for q in np.quantile(means, (LEVEL / 2, 1 - LEVEL / 2))],
        "median_rank": float(np.median(ranks)),
        "chance_mean_reciprocal_rank": sum(1 / rank for rank in range(1, n_grids + 1)) / n_grids,
    }


def wilson(successes: int, n: int) -> list[float]:
    """Wilson's 95 % interval of a share."""
    z = scipy.stats.norm.ppf(1 - LEVEL / 2)
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return [max(0.0, centre - half), min(1.0, centre + half)]
