"""Run an experiment: features and parts in, a Result out. The same steps for every experiment."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from soopf_jax.experiments import notes, results
from soopf_jax.experiments.arms import check_regions, check_router
from soopf_jax.experiments.experiment import Data, Experiment, Parts, TrainedArm
from soopf_jax.experiments.hints import hints
from soopf_jax.experiments.keeping import predictions_of
from soopf_jax.experiments.predictions import Kept, Predictions, joined
from soopf_jax.experiments.records import arm_record, fit_columns, readings, router_record, stats_of
from soopf_jax.experiments.results import Result
from soopf_jax.experiments.training import TrainingRun, begin, train
from soopf_jax.features import geometry
from soopf_jax.features.statistics import statistics_of
from soopf_jax.fitting import kept as fitting_kept
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.assignments import FACTORIAL
from soopf_jax.fitting.protocol import OPTIMISATION, VALIDATION, Fits, Protocol, all_cells_observed, roles
from soopf_jax.fitting.train import Session
from soopf_jax.fitting.unfinished import Columns, Plan
from soopf_jax.runtime import progress
from soopf_jax.scoring import metrics, score
from soopf_jax.types import FeatureTable


class FinishedArm(NamedTuple):
    """What a result has of one arm."""

    record: dict[str, Any]
    """Its element of the result's `arms`."""
    columns: Columns
    """Its rows of fits.npz."""
    trained: TrainedArm
    seconds: float
    """How long its fits took to train."""
    predictions: Predictions | None
    """None if nothing is kept."""
    params: dict[str, Any]
    """The parameters of its selected fits under its name; empty if they are not kept."""


def run_experiment(
    experiment: Experiment, data: Data, parts: Parts, protocol: Protocol, session: Session, router: bool = False
) -> Result:
    """Train every arm under the whole protocol and score it.

    Args:
        experiment: What is trained and read.
        data: The features.
        parts: The readout with its assignments and objective.
        protocol: How every fit is trained, selected and aligned.
        session: How the run is carried out, and what it tells while it runs.
        router: Add the diagnostic of fits that have seen all cells.

    Raises:
        UserError: The parts or the features cannot be used.
    """
    arms = experiment.make_arms(parts)
    experiment.check(data)
    check_regions(data.table, arms[0])
    if router:
        check_router(data.table, arms[0])
    fits = experiment.make_fits(data.table.grid, protocol)
    with progress.shown(session.progress is not None):
        training = begin(data, arms, protocol, fits, session)
        done: list[FinishedArm] = []
        of_router = all_cells_observed(protocol)
        sizes = [*(len(fits.seed) for _ in arms), *([len(of_router.seed)] if router else [])]
        with progress.whole_run(sizes) as arm_is_done:
            for number, arm in enumerate(arms):
                done.append(run_arm(experiment, data, training, (number, arm), fits))
                session.on_arm(done[-1].record)
                arm_is_done()
            diagnostic, router_params = router_of_all_cells(arms[0], training, of_router) if router else (None, {})
        rows = [finished.record for finished in done]
        seconds = {row["assignment"]: finished.seconds for row, finished in zip(rows, done, strict=True)}
        with progress.phase("testing differences"):
            tests = experiment.tests(rows)
        with progress.phase("describing the features"):
            origin = provenance(experiment, data, protocol, training.plan, seconds)
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": experiment.label(protocol),
        "config": dict(session.config or {}) | {"edits": experiment.name, "protocol": asdict(protocol)},
        "provenance": origin,
        "arms": rows,
        "tests": tests,
        "warnings": warnings(experiment, arms[0], rows, training),
    }
    if router:
        document["router"] = diagnostic
    document["hints"] = [hint._asdict() for hint in hints(document)]
    params = {name: tree for finished in done for name, tree in finished.params.items()} | router_params
    predictions = [finished.predictions for finished in done if finished.predictions is not None]
    return Result(
        document,
        {name: np.concatenate([finished.columns[name] for finished in done]) for name in done[0].columns},
        readings(data.table, [row["assignment"] for row in rows], [finished.trained for finished in done]),
        Kept(joined(predictions), params or None) if predictions else None,
    )


def run_arm(
    experiment: Experiment, data: Data, training: TrainingRun, numbered: tuple[int, Arm], fits: Fits
) -> FinishedArm:
    """Train and score one arm, which comes with its number."""
    number, arm = numbered
    start = time.monotonic()
    found, kept = fitting_kept.split(train(training, arm, fits))
    seconds = round(time.monotonic() - start, 1)
    with progress.phase(f"scoring {arm.assignment_name}"):
        stats = stats_of(found)
        scores = score.score_fits(fits, stats, data.table.grid, training.protocol.ties)
        trained = TrainedArm(fits, found, stats, scores)
        record, own = experiment.score_arm(arm_record(arm, trained, data.table), trained, data)
    return FinishedArm(
        record,
        fit_columns(number, trained) | own,
        trained,
        seconds,
        predictions_of(number, arm, trained, kept, data) if kept else None,
        _params(arm, kept, scores.selected),
    )


def provenance(
    experiment: Experiment, data: Data, protocol: Protocol, plan: Plan, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The features and the machine that a result comes from, and what guessing would score."""
    table, test = data
    of_test = (
        {}
        if test is None
        else {"test_features": features(test, experiment.test_edits or 1), "test_pairs": len(test.cell)}
    )
    return {
        "features": features(table) | {"geometry": geometry_of(table)},
        "environment": results.environment(),
        "grid": {"supports": list(table.grid.supports), "operations": list(table.grid.operations)},
        "pairs": len(table.cell),
        "patches": table.source.shape[1],
        "channels": table.source.shape[2],
        **plan._asdict(),
        "seconds": dict(seconds),
        "effective_batch_size": experiment.batch_size(table, protocol),
        **of_test,
        "chance": metrics.chance(experiment.name, table.grid),
    }


def features(table: FeatureTable, n_edits: int = 1) -> dict[str, Any]:
    """Where the features of a table come from, and what they are like."""
    return {**table.provenance, "statistics": statistics_of(table, n_edits)}


def geometry_of(table: FeatureTable) -> dict[str, Any]:
    """The geometry of a table with one edit per pair, on the first seed's optimisation and validation pairs."""
    role = roles(table.cell, table.grid, seed=0)
    return geometry.measure(table, role == OPTIMISATION, role == VALIDATION)._asdict()


def warnings(experiment: Experiment, arm: Arm, rows: list[dict[str, Any]], training: TrainingRun) -> list[str]:
    """What a reader of the result should know."""
    prepared = [training.prepared] if training.test is None else [training.prepared, training.test]
    return [
        *(note for pairs in prepared for note in notes.unseen_pairs(pairs)),
        *notes.constant_channels(training.table),
        *notes.maskless(arm, training),
        *notes.uncertain_form(arm),
        *(note for row in rows for note in notes.trouble(row, experiment.main_score(row))),
    ]


def router_of_all_cells(arm: Arm, training: TrainingRun, fits: Fits) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The paper's diagnostic: factorial fits on all cells, scored on the pairs that no seed's split has used.

    Returns:
        The scores, and the parameters of the selected fits if they are kept.
    """
    arm = replace(arm, assignment=FACTORIAL, assignment_name="router")
    columns, kept = fitting_kept.split(train(training, arm, fits))
    stats = stats_of(columns)
    selected = score.select_restarts(fits, stats, training.protocol.ties)
    return router_record(fits, stats, selected, columns), _params(arm, kept, selected)


def _params(arm: Arm, kept: Columns, selected: Bool[np.ndarray, " fits"]) -> dict[str, Any]:
    """The parameters of an arm's selected fits under its name; empty where none were kept."""
    tree = fitting_kept.params_of(kept, selected)
    return {arm.assignment_name: tree} if tree else {}
