"""Two supports edited at once: a readout trained on single edits must name both.

In: a table of single edits to train on and one of two edits per pair to test on. All cells are observed and Q is the
known grid: this tests superposition at inference time, not discovery. Out: a Result whose arm carries `two_edits`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from soopf_jax.errors import UserError
from soopf_jax.experiments.arms import make_arms
from soopf_jax.experiments.experiment import Data, Experiment, Parts, TrainedArm
from soopf_jax.experiments.options import PAPER_SIZES
from soopf_jax.experiments.results import Result
from soopf_jax.experiments.run import run_experiment
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.assignments import FACTORIAL
from soopf_jax.fitting.objectives import Objective
from soopf_jax.fitting.protocol import (
    Fits,
    Protocol,
    all_cells_observed,
    check_cells,
    pairs_per_batch,
    split_sizes,
)
from soopf_jax.fitting.stats import FitStats
from soopf_jax.fitting.train import Session
from soopf_jax.fitting.unfinished import Columns
from soopf_jax.grid import Grid
from soopf_jax.scoring import align, metrics, statistics
from soopf_jax.scoring.metric_row import TwoEditReading
from soopf_jax.types import Assignment, FeatureTable, Json, Readout

# ------------------------------------------------------------------------------------------------- scores


def score_pairs(
    energy: Float[np.ndarray, "pairs cells"], combination: Int[np.ndarray, " pairs"], slots: align.SlotMap, grid: Grid
) -> dict[str, Bool[np.ndarray, " pairs"]]:
    """Which pairs one fit reads correctly, by metric. Its slots are first put in the order of the true axes."""
    by_slot = energy.reshape(-1, grid.n_supports, grid.n_operations)
    aligned = by_slot[:, slots.support][:, :, slots.operation]
    edited = np.array(grid.combinations(2))[combination]
    edited_supports, _ = grid.axes(edited)
    top = top_two(aligned.reshape(energy.shape))
    reading = TwoEditReading(
        edited=edited,
        edited_supports=edited_supports,
        top=top,
        supports_of_top=grid.axes(top)[0],
        top_supports=top_two(aligned.sum(axis=2)),
    )
    return {row.key: row.compute(reading) for row in metrics.METRICS[metrics.TWO_EDITS]}


def top_two(values: Float[np.ndarray, "pairs values"]) -> Int[np.ndarray, "pairs 2"]:
    """The positions of the two largest values of each row, in ascending order. Of equal values, the first counts."""
    return np.sort(np.argsort(-values, axis=1, kind="stable")[:, :2], axis=1)


def score_fits(
    energy: Float[np.ndarray, "fits pairs cells"], combination: Int[np.ndarray, " pairs"], stats: FitStats, grid: Grid
) -> dict[str, Float[np.ndarray, "fits combinations"]]:
    """The share of pairs of every combination that are read correctly, by metric; NaN for failed fits."""
    members = np.eye(len(grid.combinations(2)))[combination]
    keys = [row.key for row in metrics.METRICS[metrics.TWO_EDITS]]
    shares = np.full((len(keys), len(energy), members.shape[1]), np.nan)
    for fit in np.flatnonzero(~stats.failed):
        slots = align.SlotMap(align.injective(stats.c_sup[fit]), align.injective(stats.c_op[fit]))
        hits = np.stack(list(score_pairs(energy[fit], combination, slots, grid).values()))
        shares[:, fit] = hits @ members / members.sum(axis=0)
    return dict(zip(keys, shares, strict=True))


def spread(
    fits: Fits,
    selected: Bool[np.ndarray, " fits"],
    shares: Float[np.ndarray, "fits combinations"],
    grid: Grid,
    pairs: int | None = None,
) -> dict[str, Any]:
    """A score over the selected fits, one per seed, as the result file has it; `pairs` is the number of test pairs."""
    matrix = np.full((len(np.unique(fits.seed)), shares.shape[1]), np.nan)
    matrix[fits.seed[selected]] = shares[selected]
    record = statistics.spread(matrix, grid.combination_names(2), pairs)
    return record | {"per_combination": record.pop("per_cell")}


# --------------------------------------------------------------------------------------------- the experiment


def benchmark(
    table: FeatureTable,
    test: FeatureTable,
    readout: str | Readout = "soopf",
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
    protocol: Protocol | None = None,
    session: Session | None = None,
) -> Result:
    """Train on the single edits of `table`, all cells observed, and read the two edits of every pair of `test`.

    The other arguments are those of `held_out.benchmark`.

    Raises:
        UserError: A name is unknown, or the parts or the features cannot be used.
    """
    parts = Parts(readout, assignments, objective, weights)
    protocol = protocol or Protocol(*TWO_EDITS.paper_size)
    return run_experiment(TWO_EDITS, Data(table, test), parts, protocol, session or Session())


def make_arm(parts: Parts) -> Arm:
    """The only kind of arm that can be tested here: the grid is known, and the readout does not see the edited support.

    Raises:
        UserError: Another arm is asked for.
    """
    arms = make_arms(*parts)
    known = [arm for arm in arms if arm.assignment == FACTORIAL]
    if not known or (parts.assignments and known != arms) or "support" in arms[0].sees:
        needs = "two edits are tested under the known grid, by a readout that is not told the edited support"
        raise UserError(f"{needs}; leave --assignment out, or factorial, with --readout soopf, dense or bilinear")
    return known[0]


def check(data: Data) -> None:
    """Check that test pairs have the grid, patches and channels of the others, and that no combination is missing.

    Raises:
        UserError: The pairs cannot be used together.
    """
    table, test = data
    check_cells(table.cell, table.grid)
    if test is None:
        raise UserError("two edits are tested on a table of their own; give one")
    if test.grid != table.grid or test.source.shape[1:] != table.source.shape[1:]:
        raise UserError("single edits and two edits differ in grid, patches or channels; make both in the same way")
    names = table.grid.combination_names(2)
    counts = np.bincount(test.cell, minlength=len(names))
    if len(counts) > len(names) or counts.min() < 1:
        missing = names[int(np.argmin(counts[: len(names)]))]
        raise UserError(f"two edits need pairs of all {len(names)} combinations, such as {missing}; add them")


def batch_size(table: FeatureTable, protocol: Protocol) -> int:
    """Pairs that a fit counts in a step: those of all cells."""
    if protocol.batch_size:
        return pairs_per_batch(table.grid, protocol.batch_size) * table.grid.n_cells
    return sum(split_sizes(n)[0] for n in np.bincount(table.cell).tolist())


def score_arm(record: dict[str, Any], trained: TrainedArm, data: Data) -> tuple[dict[str, Any], Columns]:
    """An arm's record with its scores of two edits, and each fit's means for fits.npz."""
    if data.test is None:
        raise ValueError("the experiment has no test pairs")
    fits, columns, stats, scores = trained
    grid = data.table.grid
    shares = score_fits(columns["energy"], data.test.cell, stats, grid)
    undefined = {name: record[name] | {"per_cell": {}} for name in ("inj", "non_injective")}  # no cell is held out
    read = {name: spread(fits, scores.selected, share, grid, len(data.test.cell)) for name, share in shares.items()}
    return record | undefined | {"two_edits": read}, {name: share.mean(axis=1) for name, share in shares.items()}


def _joint(record: Json) -> float | None:
    mean: float | None = record["two_edits"]["joint"]["mean"]
    return mean


TWO_EDITS = Experiment(
    name=metrics.TWO_EDITS,
    paper_size=PAPER_SIZES[metrics.TWO_EDITS],
    test_edits=2,
    make_arms=lambda parts: [make_arm(parts)],
    check=check,
    make_fits=lambda grid, protocol: all_cells_observed(protocol),
    batch_size=batch_size,
    score_arm=score_arm,
    main_score=_joint,
    tests=lambda records: [],
)
"""Train on single edits of all cells, then read two edits at once."""
