"""Two supports edited at once: a readout trained on single edits must name both.

In: a table of single edits to train on and one of two edits per pair to test on. All cells are observed and Q is the
known grid: this tests superposition at inference time, not discovery. Out: a Result whose arm carries `two_edits`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import comb
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from soopf_jax import align, results, runner, score
from soopf_jax.assignments import FACTORIAL
from soopf_jax.errors import UserError
from soopf_jax.fit import Arm, FitStats, prepare_table
from soopf_jax.grid import Grid
from soopf_jax.objectives import Objective
from soopf_jax.protocol import QUICK, Fits, Protocol, all_cells_observed, pairs_per_batch, split_sizes
from soopf_jax.results import Result
from soopf_jax.train import Session, make_plan, train_arm
from soopf_jax.types import Assignment, FeatureTable, Json, Readout

PAPER = (5, 5, 2000)
"""Seeds, restarts and steps: the paper has five seeds here."""

# ------------------------------------------------------------------------------------------------- scores


class Hits(NamedTuple):
    """Which pairs were read correctly, in four senses."""

    joint: Bool[np.ndarray, " pairs"]
    """The two largest energies are those of the two edited cells."""
    at_least_one: Bool[np.ndarray, " pairs"]
    """At least one of them is."""
    support_pair: Bool[np.ndarray, " pairs"]
    """The two largest support marginals of the energy are those of the edited supports."""
    support_pair_of_top_two: Bool[np.ndarray, " pairs"]
    """The cells with the two largest energies lie in the two edited supports."""


def score_pairs(
    energy: Float[np.ndarray, "pairs cells"], combination: Int[np.ndarray, " pairs"], slots: align.SlotMap, grid: Grid
) -> Hits:
    """Read the energies of one fit, its slots put in the order of the true supports and operations first."""
    by_slot = energy.reshape(-1, grid.n_supports, grid.n_operations)
    aligned = by_slot[:, slots.support][:, :, slots.operation]
    edited = np.array(grid.combinations(2))[combination]
    edited_supports, _ = grid.axes(edited)
    top = top_two(aligned.reshape(energy.shape))
    return Hits(
        joint=(top == edited).all(axis=1),
        at_least_one=(top[:, :, None] == edited[:, None, :]).any(axis=(1, 2)),
        support_pair=(top_two(aligned.sum(axis=2)) == edited_supports).all(axis=1),
        support_pair_of_top_two=(grid.axes(top)[0] == edited_supports).all(axis=1),
    )


def top_two(values: Float[np.ndarray, "pairs values"]) -> Int[np.ndarray, "pairs 2"]:
    """Where the two largest values of each row are, in ascending order; of equal values the first."""
    return np.sort(np.argsort(-values, axis=1, kind="stable")[:, :2], axis=1)


def score_fits(
    energy: Float[np.ndarray, "fits pairs cells"], combination: Int[np.ndarray, " pairs"], stats: FitStats, grid: Grid
) -> dict[str, Float[np.ndarray, "fits combinations"]]:
    """The share of hits in every combination, by the names of Hits; NaN for failed fits."""
    members = np.eye(len(grid.combinations(2)))[combination]
    shares = np.full((len(Hits._fields), len(energy), members.shape[1]), np.nan)
    for fit in np.flatnonzero(~stats.failed):
        slots = align.SlotMap(align.injective(stats.c_sup[fit]), align.injective(stats.c_op[fit]))
        hits = np.stack(score_pairs(energy[fit], combination, slots, grid))
        shares[:, fit] = hits @ members / members.sum(axis=0)
    return dict(zip(Hits._fields, shares, strict=True))


def spread(
    fits: Fits, selected: Bool[np.ndarray, " fits"], shares: Float[np.ndarray, "fits combinations"], grid: Grid
) -> dict[str, Any]:
    """A score over the selected fits, one per seed, as the result file has it."""
    matrix = np.full((len(np.unique(fits.seed)), shares.shape[1]), np.nan)
    matrix[fits.seed[selected]] = shares[selected]
    record = score.spread(matrix, grid.combination_names(2))
    return record | {"per_combination": record.pop("per_cell")}


def chance(grid: Grid) -> dict[str, float]:
    """The scores of two cells drawn uniformly without replacement, and of two supports drawn so."""
    draws = comb(grid.n_cells, 2)
    return {
        "joint": 1 / draws,
        "at_least_one": 1 - comb(grid.n_cells - 2, 2) / draws,
        "support_pair": 1 / comb(grid.n_supports, 2),
        "support_pair_of_top_two": grid.n_operations**2 / draws,
    }


# --------------------------------------------------------------------------------------------- the experiment


def benchmark(
    table: FeatureTable,
    test: FeatureTable,
    readout: str | Readout = "soopf",
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
    protocol: Protocol | None = None,
    config: Json | None = None,
    session: Session | None = None,
    on_arm: Callable[[Json], None] = lambda arm: None,
) -> Result:
    """Train on the single edits of `table`, all cells observed, and read the two edits of every pair of `test`.

    The rest is as in `runner.benchmark`.
    """
    protocol, session = protocol or Protocol(*PAPER), session or Session()
    arm = make_arm(readout, assignments, objective, weights)
    runner.check_table(table, arm)
    check_test(table, test)
    fits = all_cells_observed(protocol)
    begin = time.monotonic()
    prepared, test_prepared = (prepare_table(t, arm.readout, protocol.source_scale) for t in (table, test))
    plan, trainer = make_plan(arm, table, prepared, protocol, fits, session)
    runner.announce(plan, session)
    columns = train_arm(trainer, arm, table, protocol, fits, session, test_prepared)
    seconds = {arm.assignment_name: round(time.monotonic() - begin, 1)}
    stats = runner.stats_of(columns)
    shares = score_fits(columns["energy"], test.cell, stats, table.grid)
    scores = score.score_fits(fits, stats, table.grid, protocol.ties)
    row = runner.arm_record(arm, fits, stats, scores, table, columns)
    for name in ("inj", "non_injective"):
        row[name] |= {"per_cell": {}}  # undefined, as no cell is held out
    row["two_edits"] = {name: spread(fits, scores.selected, share, table.grid) for name, share in shares.items()}
    on_arm(row)
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": label(protocol),
        "config": dict(config or {}) | {"edits": "two", "protocol": asdict(protocol)},
        "provenance": runner.provenance(table, plan, seconds)
        | {
            "effective_batch_size": batch_size(table, protocol),
            "test_features": dict(test.provenance),
            "test_pairs": len(test.cell),
            "chance": chance(table.grid),
        },
        "arms": [row],
        "tests": [],
        "warnings": [
            *(note for pairs in (prepared, test_prepared) for note in runner.unseen_pairs(pairs)),
            *runner.constant_channels(table),
            *runner.trouble(row, row["two_edits"]["joint"]["mean"]),
        ],
    }
    per_fit = {name: share.mean(axis=1) for name, share in shares.items()}
    return Result(document, runner.fit_columns(0, fits, stats, scores, columns) | per_fit)


def make_arm(
    readout: str | Readout,
    assignments: Sequence[str | Assignment] | None,
    objective: str | Objective | None,
    weights: Mapping[str, float] | None,
) -> Arm:
    """The one arm that can be tested here: a readout under the known grid, which does not see the edited support."""
    arms = runner.make_arms(readout, assignments, objective, weights)
    known = [arm for arm in arms if arm.assignment == FACTORIAL]
    if not known or (assignments and known != arms) or "support" in arms[0].sees:
        needs = "two edits are tested under the known grid, by a readout that is not told the edited support"
        raise UserError(f"{needs}; leave --assignment out, or factorial, with --readout soopf, dense or bilinear")
    return known[0]


def check_test(table: FeatureTable, test: FeatureTable) -> None:
    """The test pairs are of the same grid and encoder as the others, and there are some of every combination."""
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


def label(protocol: Protocol) -> str:
    """`full` for PAPER, `quick` for ours, else `custom`."""
    size = (protocol.seeds, protocol.restarts, protocol.steps)
    return {PAPER: "full", QUICK: "quick"}.get(size, "custom")
