"""The benchmark as a function: a feature table and the names (or values) of the parts in, a Result out.

from soopf_jax import benchmark, load_features
result = benchmark(load_features("tokens.npz"), readout=my_readout, assignments=["factorial"])
result.document["arms"][0]["inj"]["mean"]
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from soopf_jax import align, devices, plugins, results, router_diagnostic, score
from soopf_jax.assignments import FACTORIAL
from soopf_jax.errors import UserError
from soopf_jax.fit import Arm, FitStats, PreparedTable, dims_of, prepare_table
from soopf_jax.objectives import Objective, weights_of, with_weights
from soopf_jax.protocol import (
    Fits,
    Protocol,
    all_cells_observed,
    check_cells,
    effective_batch_size,
    leave_one_cell_out,
)
from soopf_jax.results import Readings, Result
from soopf_jax.router_diagnostic import has_masks
from soopf_jax.train import ROUTER, Columns, Plan, Session, make_plan, make_trainer, train_arm
from soopf_jax.types import Assignment, FeatureTable, Json, Readout

PAIRS_AT_ONCE = 32
"""Pairs of a table that are looked at together; a constant channel is rare, so that the first few decide."""


def make_arms(
    readout: str | Readout,
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
) -> list[Arm]:
    """One arm per assignment, from names, `package.module:attr` or values.

    By default the paper's three assignments under the core objective; for a probe, native axis labels.
    """
    part = plugins.resolve("readout", plugins.READOUTS, readout) if isinstance(readout, str) else readout
    probe = part.labels == "native"
    assignments = assignments or (("native",) if probe else ("factorial", "learned", "compressed"))
    objective = objective or ("native" if probe else "core")
    if probe and (list(assignments) != ["native"] or objective != "native"):
        raise UserError("a probe is trained on native axis labels; leave --assignment and --objective out, or native")
    terms = plugins.resolve("objective", plugins.OBJECTIVES, objective) if isinstance(objective, str) else objective
    terms = with_weights(with_weights({}, terms), weights or {})
    return [
        Arm(
            part,
            plugins.resolve("assignment", plugins.ASSIGNMENTS, a) if isinstance(a, str) else a,
            terms,
            readout if isinstance(readout, str) else "custom",
            a if isinstance(a, str) else f"custom-{index}",
            objective if isinstance(objective, str) else "custom",
        )
        for index, a in enumerate(assignments)
    ]


def benchmark(
    table: FeatureTable,
    readout: str | Readout = "soopf",
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Objective | None = None,
    weights: Mapping[str, float] | None = None,
    protocol: Protocol | None = None,
    config: Json | None = None,
    session: Session | None = None,
    on_arm: Callable[[Json], None] = lambda arm: None,
    router: bool = False,
) -> Result:
    """Run the whole protocol for every assignment.

    `config` is recorded as it is; `session` says how the run is carried out; `on_arm` gets each arm's scores as soon
    as they are known; `router` adds the diagnostic of fits that have seen all cells.
    """
    protocol, session = protocol or Protocol(), session or Session()
    arms = make_arms(readout, assignments, objective, weights)
    check_table(table, arms[0])
    if router:
        check_router(table, arms[0].readout)
    fits = leave_one_cell_out(table.grid, protocol)
    prepared = prepare_table(table, arms[0].readout, protocol.source_scale)
    plan, trainer = make_plan(arms[0], table, prepared, protocol, fits, session)
    announce(plan, session)
    rows: list[dict[str, Any]] = []
    columns: list[Columns] = []
    examples: list[tuple[Any, Any]] = []
    seconds = {}
    for index, arm in enumerate(arms):
        begin = time.monotonic()
        if index:
            trainer = make_trainer(arm, table, prepared, protocol, fits, plan.fits_per_program, plan.lanes)
        trained = train_arm(trainer, arm, table, protocol, fits, session)
        seconds[arm.assignment_name] = round(time.monotonic() - begin, 1)
        stats = stats_of(trained)
        scores = score.score_fits(fits, stats, table.grid, protocol.ties)
        rows.append(arm_record(arm, fits, stats, scores, table, trained))
        columns.append(fit_columns(index, fits, stats, scores, trained))
        examples.append((stats.example_energy, stats.example_masks))
        on_arm(rows[-1])
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": protocol.label,
        "config": dict(config or {}) | {"protocol": asdict(protocol)},
        "provenance": provenance(table, plan, seconds)
        | {
            "effective_batch_size": effective_batch_size(table.cell, table.grid, protocol.batch_size),
            "chance": {"inj": 1 / table.grid.n_cells, "recovery": align.chance_recovery(table.grid)},
        },
        "arms": rows,
        "tests": score.all_tests([(row["assignment"], row) for row in rows]),
        "warnings": [
            *unseen_pairs(prepared),
            *constant_channels(table),
            *maskless(arms[0], table, prepared, protocol),
            *(note for row in rows for note in trouble(row, row["inj"]["mean"])),
        ],
    }
    if router:
        document["router"] = router_of_all_cells(arms[0], table, prepared, protocol, plan, session)
    return Result(
        document,
        {name: np.concatenate([c[name] for c in columns]) for name in columns[0]},
        readings(table, [row["assignment"] for row in rows], columns, examples),
    )


def check_table(table: FeatureTable, arm: Arm) -> None:
    """Every cell has enough pairs, and the features have what the readout asks for."""
    check_cells(table.cell, table.grid)
    if "region" in arm.readout.sees and table.region is None:
        raise UserError(f"readout {arm.readout_name} needs region maps, which these features lack; add `region`")


def check_router(table: FeatureTable, readout: Readout) -> None:
    """There are region maps to compare masks with."""
    if table.region is None:
        raise UserError("the router diagnostic needs region maps, which these features lack; leave --router out")
    if readout.labels == "native":
        raise UserError("a probe has no router; leave --router out")


def announce(plan: Plan, session: Session) -> None:
    """Tell who waits what was chosen."""
    if session.progress:
        shared = f" over {jax.device_count()} devices" if jax.device_count() > 1 else ""
        needed, there = plan.bytes_per_device / 1e9, devices.memory_of_device() / 1e9
        beside = f", {plan.lanes} programs side by side" if plan.lanes > 1 else ""
        print(
            f"{plan.fits_per_program} fits per program{shared}: {needed:.2f} of {there:.1f} GB{beside}", file=sys.stderr
        )


def provenance(table: FeatureTable, plan: Plan, seconds: Mapping[str, float]) -> dict[str, Any]:
    """What any result says about the features and the machine that it comes from."""
    return {
        "features": dict(table.provenance),
        "environment": results.environment(),
        "grid": {"supports": list(table.grid.supports), "operations": list(table.grid.operations)},
        "pairs": len(table.cell),
        "patches": table.source.shape[1],
        "channels": table.source.shape[2],
        **plan._asdict(),
        "seconds": dict(seconds),
    }


def stats_of(columns: Columns) -> FitStats:
    """The columns of training that scores are made of."""
    return FitStats(*(columns.get(name) for name in FitStats._fields))


def arm_record(
    arm: Arm, fits: Fits, stats: FitStats, scores: score.FitScores, table: FeatureTable, columns: Columns
) -> dict[str, Any]:
    """One element of the result's `arms`."""
    record = {
        "assignment": arm.assignment_name,
        "readout": arm.readout_name,
        "objective": arm.objective_name,
        "selector": arm.assignment.selector,
        "weights": weights_of(arm.objective),
        "sees": list(arm.sees),
        **score.score_arm(fits, stats, scores, table.grid),
        "router": router_record(fits, stats, scores.selected, columns),
    }
    if not jax.tree.leaves(arm.assignment.init(jax.random.key(0), table.grid)):
        record |= {"recovery": None, "exact_recovery": None}  # nothing was learned, so nothing was recovered
    return record


def router_record(fits: Fits, stats: FitStats, selected: np.ndarray, columns: Columns) -> dict[str, Any] | None:
    """Mean mask IoU and agreement of the selected fits; None where there are no masks or no regions."""
    fields = router_diagnostic.RouterStats._fields
    if ROUTER + fields[0] not in columns:
        return None
    sums = router_diagnostic.RouterStats(*(columns[ROUTER + name] for name in fields))
    return router_diagnostic.summarise(fits, selected, router_diagnostic.score_fits(sums, stats.failed))


def router_of_all_cells(
    arm: Arm, table: FeatureTable, prepared: PreparedTable, protocol: Protocol, plan: Plan, session: Session
) -> dict[str, Any] | None:
    """The paper's diagnostic: factorial fits on all cells, scored on the pairs that no seed's split has used."""
    arm = arm._replace(assignment=FACTORIAL, assignment_name="router")
    fits = all_cells_observed(protocol)
    trainer = make_trainer(arm, table, prepared, protocol, fits, plan.fits_per_program, plan.lanes)
    columns = train_arm(trainer, arm, table, protocol, fits, session)
    stats = stats_of(columns)
    return router_record(fits, stats, score.select_restarts(fits, stats, protocol.ties), columns)


def fit_columns(arm: int, fits: Fits, stats: FitStats, scores: score.FitScores, trained: Columns) -> Columns:
    """The rows of `fits.npz` for one arm."""
    return {
        "arm": np.full(len(fits.seed), arm, np.int32),
        "seed": fits.seed,
        "held_out": fits.held_out,
        "restart": fits.restart,
        "selected": scores.selected,
        "validation": stats.validation,
        "inj": scores.inj,
        "non_injective": scores.non_injective,
        "C_sup": stats.c_sup,
        "C_op": stats.c_op,
        "Q": stats.q,
        "test_counts": stats.test_counts,
        "failed": stats.failed,
        "loss": trained["loss"],
    }


def readings(
    table: FeatureTable,
    assignments: Sequence[str],
    columns: Sequence[Columns],
    examples: Sequence[tuple[Any, Any]],
) -> Readings | None:
    """What the report's examples show; None if seed 0 has a fold without a selected fit."""
    grid = table.grid
    pair = np.array([int(np.argmax(table.cell == cell)) for cell in range(grid.n_cells)])
    masks, energy = {}, {}
    for name, fits, (energies, router) in zip(assignments, columns, examples, strict=True):
        chosen = np.flatnonzero((fits["seed"] == 0) & fits["selected"])
        if len(chosen) < grid.n_cells:
            return None
        supports = [align.injective(c) for c in fits["C_sup"][chosen]]
        operations = [align.injective(c) for c in fits["C_op"][chosen]]
        by_slot = energies[chosen].reshape(-1, grid.n_supports, grid.n_operations)
        energy[name] = np.stack([e[s][:, o].ravel() for e, s, o in zip(by_slot, supports, operations, strict=True)])
        if router is not None:
            masks[name] = np.stack([m[s] for m, s in zip(router[chosen], supports, strict=True)])
    return Readings(pair, table.region[:][pair] if table.region is not None else None, masks, energy)


def unseen_pairs(table: PreparedTable) -> list[str]:
    """A warning if the encoder does not see some edit at all."""
    changed = devices.to_host(table.changed)
    if changed.all():
        return []
    unchanged = int((~changed).sum())
    return [f"{unchanged} of {len(changed)} pairs have zero delta: the encoder does not see their edit"]


def constant_channels(table: FeatureTable) -> list[str]:
    """A warning if some channels have one value in every patch of every image, and so tell nothing."""
    suspects, rows = np.arange(table.source.shape[2]), slice(0, PAIRS_AT_ONCE)
    first = [tokens[rows][0, 0] for tokens in (table.source, table.delta)]
    while len(suspects) and rows.start < len(table.cell):
        for tokens, value in zip((table.source, table.delta), first, strict=True):
            suspects = suspects[(tokens[rows][:, :, suspects] == value[suspects]).all(axis=(0, 1))]
        rows = slice(rows.stop, rows.stop + PAIRS_AT_ONCE)
    if not len(suspects):
        return []
    return [f"{len(suspects)} of {table.source.shape[2]} channels are constant over all images: they tell nothing"]


def maskless(arm: Arm, table: FeatureTable, prepared: PreparedTable, protocol: Protocol) -> list[str]:
    """A note if the objective has a mask term, but the readout no masks."""
    if not weights_of(arm.objective).get("mask") or has_masks(arm.readout, prepared, dims_of(table, protocol)):
        return []
    return [f"readout {arm.readout_name} has no masks, so that the loss term mask is 0"]


def trouble(row: Json, mean: float | None) -> list[str]:
    """What a reader of an arm should know; `mean` is its main score."""
    found = []
    if row["failed_fits"]:
        found.append(f"{row['assignment']}: {row['failed_fits']} fits failed with a non-finite loss or gradient")
    if mean is None:
        found.append(f"{row['assignment']}: incomplete, some fold has no restart that could be selected")
    return found
