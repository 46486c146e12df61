"""Measures the assignment `matched` before any training, for docs/assignments.md. No readout is trained.

    python -m benchmarks.matching                              # all parts; features are encoded if they are not stored
    python -m benchmarks.matching --parts placement --pairs shapes3d-lite/pixels mujoco/pixels

`placement` says how often `matched` finds the grid, with every held-out cell. `statistics` compares ways to recognise
an operation (`matching_ways.py`), on development data only: triples of operations and a data seed that no evaluation
uses. `search` compares searches on means whose grid is known (`grid_search.py`). Each part writes PART.json into --out.
"""

import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Int

sys.path.insert(0, str(Path(__file__).parent))  # `python -m` and the tests need this to find the modules beside this

import grid_search
from assignments import PAIRS
from matching_ways import WAYS, Criterion, criterion_of, proposer_of

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments import results
from soopf_jax.experiments.inputs import open_inputs
from soopf_jax.experiments.options import Bench, check
from soopf_jax.fitting import assignments, grids, matching, proposals
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.grids import Fitness, Placement
from soopf_jax.fitting.objectives import CORE
from soopf_jax.fitting.protocol import Protocol, flat_labels, leave_one_cell_out
from soopf_jax.fitting.train import Job, Session
from soopf_jax.fitting.unfinished import Plan
from soopf_jax.grid import Grid
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runtime import atomic, cli, progress
from soopf_jax.scoring import align, verdict
from soopf_jax.types import FeatureTable, Json, ObservedFold, Proposal, Proposer

SEEDS = 10
"""Seeds of the evaluation, as in the paper. Its data sets have their own number of pairs, the paper's 350 per cell."""
DATASET, ENCODER, DATA_SEED, DEVELOPMENT_SEEDS, DEVELOPMENT_PAIRS = "shapes3d-lite", "pixels", 1, 3, 100
"""The development data. Evaluations have data seed 0."""
OPERATIONS, EVALUATED = ("hue", "invert", "pattern", "brightness", "blur"), ("hue", "invert", "pattern")
"""The operations of development grids, and the triple of the evaluation, which is none of them."""
TRIALS = 20
"""Problems of every size in `search`."""


@dataclass(frozen=True)
class Options:
    """Measure what `matched` finds, how its statistics were chosen, and how good its search is."""

    out: str = "runs/matching"
    """The folder for placement.json, statistics.json and search.json."""
    parts: tuple[str, ...] = ("placement", "statistics", "search")
    """What to measure."""
    pairs: tuple[str, ...] = PAIRS
    """Pairs DATASET/ENCODER for placement, named as in soopf_jax.bench."""
    cache_dir: str | None = None
    """Where features are kept. Default: the user's cache folder."""


def main(args: Sequence[str] | None = None) -> None:
    """Measure each part and write its file."""
    options = cli.parse(Options, "benchmarks.matching", args, Options())
    measures: Mapping[str, Callable[[], Json]] = {
        "placement": lambda: placement(options.pairs, options.cache_dir),
        "statistics": lambda: statistics(options.cache_dir),
        "search": lambda: grid_search.compare(TRIALS),
    }
    for part in options.parts:
        if part not in measures:
            raise unknown_name("part", part, measures)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        document = {"part": part, **measures[part](), "environment": results.environment()}
        atomic.write_bytes(Path(options.out) / f"{part}.json", (json.dumps(document, indent=1) + "\n").encode())


# ------------------------------------------------------------------------------------------ folds and their scores


class Comparison(NamedTuple):
    """What was decided in one fold, beside all grids that there are. Which of them is true does not matter."""

    lead: float
    """The fitness of the decided grid minus the mean over all grids, in SDs."""
    best_of_all: bool
    """Whether no grid has a better fitness."""


def features(bench: Bench) -> tuple[str, FeatureTable]:
    """The key and the tokens of the features that a run with these options reads."""
    (opened,) = open_inputs(check(bench))
    return opened.key, opened.load(partial(progress.bar, unit="images"))


def decided(table: FeatureTable, proposer: Proposer, criterion: Criterion, seeds: int) -> Json:
    """Let a proposer decide the grid of every fold, as in a run, and score it.

    Args:
        table: The features.
        proposer: That of `matched`, or another.
        criterion: What it maximises.
        seeds: Seeds 0 to N-1.

    Returns:
        The recovery, the share of folds with the exact grid and those with each verdict, the mean lead, and the share
        of folds with the best of all grids.
    """
    seen: list[Comparison] = []

    def propose(fold: ObservedFold) -> Proposal:
        proposal = proposer.propose(fold)
        seen.append(compared(proposal, criterion(fold), fold.grid))
        return proposal

    assignment = assignments.PLACED._replace(proposer=Proposer(proposer.describe, propose))
    protocol, not_trained = Protocol(seeds=seeds, restarts=1), cast(Any, None)
    fits = leave_one_cell_out(table.grid, protocol)
    job = Job(Arm(READOUT, assignment, CORE), table, not_trained, protocol, fits)
    placed = proposals.place(job, Plan(1, 0), Session())
    assert placed.job.placements is not None
    recovery = np.array([
        recovery_of(placement, int(seed), int(held_out), table.grid)
        for placement, seed, held_out in zip(placed.job.placements, fits.seed, fits.held_out, strict=True)
    ])  # fmt: skip
    names = (proposals.FITNESS, proposals.FITNESS_OF_TRUTH, proposals.TRIED_STEPS)
    shares = verdict.summarise(recovery, *(placed.columns[name] for name in names))
    return {
        "folds": len(recovery),
        "recovery": float(recovery.mean()),
        "recovery_per_seed": recovery.reshape(seeds, -1).mean(axis=1).tolist(),
        "exact": float(np.mean(recovery == 1)),
        "unidentifiable": shares["unidentifiable"],
        "search_gap": shares["search_gap"],
        "lead": float(np.mean([fold.lead for fold in seen])),
        "best_of_all": float(np.mean([fold.best_of_all for fold in seen])),
    }


def recovery_of(placement: Placement, seed: int, held_out: int, grid: Grid) -> float:
    """The recovery of one fold's grid, from where it puts the flat labels of the seed."""
    q = np.eye(grid.n_cells)[placement][flat_labels(grid, seed, ())]
    found = align.recovery(q, np.arange(grid.n_cells) != held_out, grid)
    assert found is not None
    return found


def compared(proposal: Proposal, criterion: Fitness, grid: Grid) -> Comparison:
    """A proposal beside all grids."""
    of_all = np.zeros(len(every_grid(grid)))
    rows, columns = every_grid(grid)[:, :, None], every_grid(grid)[:, None, :]
    for similarity, closeness in zip(*(matrices.astype(np.float64) for matrices in criterion), strict=True):
        of_all += closeness[rows, columns].reshape(len(of_all), -1) @ similarity.ravel()
    fitness = proposal.fitness(proposal.placement)
    return Comparison(float((fitness - of_all.mean()) / of_all.std()), bool(fitness > of_all.max() - verdict.EQUAL))


@cache
def every_grid(grid: Grid) -> Int[np.ndarray, "grids observed"]:
    """Every grid of one label less than there are cells. The last cell is empty."""
    return np.stack([grids.without(placement, grid.n_cells - 1, grid) for placement in grids.all_grids(grid)])


def of_random_grid(grid: Grid) -> Json:
    """What a grid that is drawn at random has: the mean recovery of all grids, and the share of them that is exact."""
    found = np.array([recovery_of(placement, 0, grid.n_cells - 1, grid) for placement in grids.all_grids(grid)])
    return {"recovery": float(found.mean()), "exact": float(np.mean(found == 1))}


# --------------------------------------------------------------------------------------------------------- placement


def placement(pairs: Sequence[str], cache_dir: str | None) -> Json:
    """`matched` on pairs of data set and encoder, as in a run with the paper's seeds and pairs.

    Raises:
        UserError: A pair has not the form DATASET/ENCODER.
    """
    rows = []
    for pair in pairs:
        dataset, _, encoder = pair.partition("/")
        if not (dataset and encoder):
            raise UserError(f"a pair is DATASET/ENCODER, not '{pair}'; for example {PAIRS[0]}")
        key, table = features(Bench(dataset, encoder, cache_dir=cache_dir))
        found = decided(table, matching.PROPOSER, matched_criterion, SEEDS)
        per_cell = int(np.bincount(table.cell).min())
        rows.append({"dataset": dataset, "encoder": encoder, "features": key, "pairs_per_cell": per_cell, **found})
    return {
        "choices": {"seeds": SEEDS, "held_out": "every cell", "readout": None},
        "chance": of_random_grid(table.grid),
        "rows": rows,
    }


def matched_criterion(fold: ObservedFold) -> Fitness:
    """What `matched` maximises."""
    return matching.fitness(matching.label_means(fold), fold.grid)


# -------------------------------------------------------------------------------------------------------- statistics


def development_triples() -> list[tuple[str, ...]]:
    """The triples of operations of development data. That of the evaluation is not among them."""
    return [triple for triple in itertools.combinations(OPERATIONS, 3) if triple != EVALUATED]


def statistics(cache_dir: str | None) -> Json:
    """Every way to recognise an operation, on development data."""
    tables = {}
    for triple in development_triples():
        development = Bench(
            *(DATASET, ENCODER),
            operations=triple,
            pairs_per_cell=DEVELOPMENT_PAIRS,
            data_seed=DATA_SEED,
            cache_dir=cache_dir,
        )
        tables["+".join(triple)] = features(development)[1]
    return {
        "choices": {
            "dataset": DATASET, "encoder": ENCODER, "data_seed": DATA_SEED, "pairs_per_cell": DEVELOPMENT_PAIRS,
            "seeds": DEVELOPMENT_SEEDS, "held_out": "every cell", "operations": development_triples(),
        },
        "rows": [{"way": name, **mean_over(tables, criterion_of(way))} for name, way in WAYS.items()],
    }  # fmt: skip


def mean_over(tables: Mapping[str, FeatureTable], criterion: Criterion) -> Json:
    """The means over tables of what one way has decided, and its recovery for each of them."""
    found = {
        name: decided(table, proposer_of(criterion), criterion, DEVELOPMENT_SEEDS) for name, table in tables.items()
    }
    keys = ("recovery", "exact", "unidentifiable", "search_gap", "lead", "best_of_all")
    means = {key: float(np.mean([scores[key] for scores in found.values()])) for key in keys}
    recoveries = {name: scores["recovery"] for name, scores in found.items()}
    return {"folds": sum(scores["folds"] for scores in found.values()), **means, "recovery_by_triple": recoveries}


if __name__ == "__main__":
    sys.exit(cli.run(main))
