"""An arm after training as a result holds it: its record in result.json, its rows of fits.npz, its example readings."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from soopf_jax.experiments.experiment import TrainedArm
from soopf_jax.experiments.results import Readings
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import weights_of
from soopf_jax.fitting.proposals import FITNESS, FITNESS_OF_TRUTH, TRIED_STEPS
from soopf_jax.fitting.protocol import Fits
from soopf_jax.fitting.router_stats import RouterState, RouterStats
from soopf_jax.fitting.stats import FitStats
from soopf_jax.fitting.train import END, ROUTER, START
from soopf_jax.fitting.unfinished import Columns
from soopf_jax.scoring import align, router_diagnostic, score, verdict
from soopf_jax.types import FeatureTable


def stats_of(columns: Columns) -> FitStats:
    """The columns of training that scores are made of."""
    return FitStats(*(columns.get(name) for name in FitStats._fields))


def arm_record(arm: Arm, trained: TrainedArm, table: FeatureTable) -> dict[str, Any]:
    """One element of the result's `arms`."""
    fits, columns, stats, scores = trained
    record = {
        "assignment": arm.assignment_name,
        "readout": arm.readout_name,
        "objective": arm.objective_name,
        "selector": arm.assignment.selector,
        "weights": weights_of(arm.objective),
        "sees": list(arm.sees),
        **score.score_arm(fits, stats, scores, table.grid),
        "router": router_record(fits, stats, scores.selected, columns),
        "router_state": router_state_record(fits, scores.selected, columns),
        "grid_search": grid_search_record(trained),
    }
    if not jax.tree.leaves(jax.eval_shape(lambda: arm.assignment.init(jax.random.key(0), table.grid))):
        record |= {"recovery": None, "exact_recovery": None}  # nothing was learned, so nothing was recovered
    return record


def router_record(fits: Fits, stats: FitStats, selected: np.ndarray, columns: Columns) -> dict[str, Any] | None:
    """Mean mask IoU and agreement of the selected fits; None where there are no masks or no regions."""
    fields = RouterStats._fields
    if ROUTER + fields[0] not in columns:
        return None
    sums = RouterStats(*(columns[ROUTER + name] for name in fields))
    return router_diagnostic.summarise(fits, selected, router_diagnostic.score_fits(sums, stats.failed))


def router_state_record(fits: Fits, selected: np.ndarray, columns: Columns) -> dict[str, Any] | None:
    """How decided the routers of the selected fits are before and after training; None where there are no masks."""
    moments = {"start": START, "end": END}
    if START + RouterState._fields[0] not in columns:
        return None
    return {
        name: {
            moment: router_diagnostic.summarise(fits, selected, {name: columns[prefix + name]})[name]
            for moment, prefix in moments.items()
        }
        for name in RouterState._fields
    }


def grid_search_record(trained: TrainedArm) -> dict[str, Any] | None:
    """The verdicts on the grids of all folds; None where no grid was decided before training."""
    _, columns, _, scores = trained
    if FITNESS not in columns:
        return None
    names = (FITNESS, FITNESS_OF_TRUTH, TRIED_STEPS)
    return verdict.summarise(scores.recovery[scores.selected], *(columns[name][scores.selected] for name in names))


def fit_columns(number: int, trained: TrainedArm) -> Columns:
    """The rows of `fits.npz` for the arm with this number."""
    fits, columns, stats, scores = trained
    return {
        "arm": np.full(len(fits.seed), number, np.int32),
        "seed": fits.seed,
        "held_out": fits.held_out,
        "restart": fits.restart,
        "selected": scores.selected,
        "validation": stats.validation,
        "inj": scores.inj,
        "non_injective": scores.non_injective,
        "C_sup": stats.c_sup,
        "C_op": stats.c_op,
        "C_sup_by_alignment": stats.c_sup_by_alignment,
        "C_op_by_alignment": stats.c_op_by_alignment,
        "Q": stats.q,
        "test_counts": stats.test_counts,
        "failed": stats.failed,
        "loss": columns["loss"],
    }


def readings(table: FeatureTable, assignments: Sequence[str], trained: Sequence[TrainedArm]) -> Readings | None:
    """What the report's examples show; None unless seed 0 has a selected fit for every held-out cell."""
    grid = table.grid
    pair = np.array([int(np.argmax(table.cell == cell)) for cell in range(grid.n_cells)])
    masks, energy = {}, {}
    for name, (fits, _, stats, scores) in zip(assignments, trained, strict=True):
        chosen = np.flatnonzero((fits.seed == 0) & scores.selected)
        if len(chosen) < grid.n_cells:
            return None
        supports = [align.injective(c) for c in stats.c_sup[chosen]]
        operations = [align.injective(c) for c in stats.c_op[chosen]]
        examples: Any = stats.example_energy
        by_slot = examples[chosen].reshape(-1, grid.n_supports, grid.n_operations)
        energy[name] = np.stack([e[s][:, o].ravel() for e, s, o in zip(by_slot, supports, operations, strict=True)])
        if stats.example_masks is not None:
            masks[name] = np.stack([m[s] for m, s in zip(stats.example_masks[chosen], supports, strict=True)])
    return Readings(pair, table.region[:][pair] if table.region is not None else None, masks, energy)
