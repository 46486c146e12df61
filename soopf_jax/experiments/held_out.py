"""The benchmark as a function: a feature table and the names (or values) of the parts in, a Result out.

from soopf_jax import benchmark, load_features
result = benchmark(load_features("tokens.npz"), readout=my_readout, assignments=["factorial"])
result.document["arms"][0]["inj"]["mean"]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from soopf_jax.experiments.arms import make_arms
from soopf_jax.experiments.experiment import Data, Experiment, Parts, TrainedArm
from soopf_jax.experiments.options import PAPER_SIZES
from soopf_jax.experiments.results import Result
from soopf_jax.experiments.run import run_experiment
from soopf_jax.fitting.objectives import Objective
from soopf_jax.fitting.protocol import Protocol, check_cells, effective_batch_size, leave_one_cell_out
from soopf_jax.fitting.train import Session
from soopf_jax.fitting.unfinished import Columns
from soopf_jax.scoring import metrics, score
from soopf_jax.types import Assignment, FeatureTable, Json, Readout


def benchmark(
    table: FeatureTable,
    readout: str | Readout = "soopf",
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
    protocol: Protocol | None = None,
    session: Session | None = None,
    router: bool = False,
) -> Result:
    """Run the whole leave-one-cell-out protocol for every assignment.

    Args:
        table: The features of every pair.
        readout: What is trained: a name, an address `package.module:attr` or a Readout.
        assignments: One arm each. By default those of the paper; for a probe `native`.
        objective: The loss. By default `core`; for a probe `native`.
        weights: Other weights for terms of the objective.
        protocol: How every fit is trained, selected and aligned. By default the paper's.
        session: How the run is carried out, and what it tells while it runs.
        router: Add the diagnostic of fits that have seen all cells.

    Raises:
        UserError: A name is unknown, or the parts or the features cannot be used.
    """
    parts = Parts(readout, assignments, objective, weights)
    return run_experiment(HELD_OUT, Data(table), parts, protocol or Protocol(), session or Session(), router)


def _check(data: Data) -> None:
    check_cells(data.table.cell, data.table.grid)


def _batch_size(table: FeatureTable, protocol: Protocol) -> int:
    return effective_batch_size(table.cell, table.grid, protocol.batch_size)


def _as_it_is(record: dict[str, Any], trained: TrainedArm, data: Data) -> tuple[dict[str, Any], Columns]:
    del trained, data
    return record, {}


def _inj(record: Json) -> float | None:
    mean: float | None = record["inj"]["mean"]
    return mean


def _tests(records: Sequence[Json]) -> list[dict[str, Any]]:
    return score.all_tests([(record["assignment"], record) for record in records])


HELD_OUT = Experiment(
    name=metrics.HELD_OUT,
    paper_size=PAPER_SIZES[metrics.HELD_OUT],
    test_edits=None,
    make_arms=lambda parts: make_arms(*parts),
    check=_check,
    make_fits=leave_one_cell_out,
    batch_size=_batch_size,
    score_arm=_as_it_is,
    main_score=_inj,
    tests=_tests,
)
"""Leave one cell out: how well is an edit read that a fit has never seen?"""
