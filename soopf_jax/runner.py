"""The benchmark as a function: a feature table and the names (or values) of the parts in, a Result out.

from soopf_jax import benchmark, load_features
result = benchmark(load_features("tokens.npz"), readout=my_readout, assignments=["factorial"])
result.document["arms"][0]["inj"]["mean"]
"""

import itertools
import re
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from soopf_jax import align, atomic, plugins, results, score
from soopf_jax.errors import UserError
from soopf_jax.fit import (
    EVALUATION_BLOCK,
    Arm,
    FitStats,
    Group,
    PreparedTable,
    Program,
    dims_of,
    make_group,
    make_program,
    prepare_table,
)
from soopf_jax.objectives import with_weights
from soopf_jax.protocol import Fits, Protocol, check_cells, effective_batch_size, leave_one_cell_out
from soopf_jax.results import Result
from soopf_jax.types import Assignment, FeatureTable, Json, Readout

CHUNKS = 20
"""Progress reports per group of fits."""

Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""(description, total fit-steps) -> context manager that gives a function to call with fit-steps done."""
Columns = dict[str, np.ndarray]
"""Values of some fits by name, a row per fit."""


def make_arms(
    readout: str | Readout,
    assignments: Sequence[str | Assignment] | None = None,
    objective: str | Mapping[str, float] | None = None,
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
    if isinstance(objective, str):
        terms = plugins.resolve("objective", plugins.OBJECTIVES, objective)
    else:
        terms = with_weights({}, objective)
    terms = with_weights(terms, weights or {})
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
    objective: str | Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    protocol: Protocol | None = None,
    config: Json | None = None,
    work: Path | None = None,
    progress: Progress | None = None,
    on_arm: Callable[[Json], None] = lambda arm: None,
) -> Result:
    """Run the whole protocol for every assignment.

    `config` is recorded as it is; `work` is a folder that keeps finished groups of fits, so that an interrupted run
    goes on there; `on_arm` gets each arm's scores as soon as they are known.
    """
    protocol = protocol or Protocol()
    arms = make_arms(readout, assignments, objective, weights)
    check_table(table, arms[0])
    fits = leave_one_cell_out(table.grid, protocol)
    prepared = prepare_table(table, arms[0].readout)
    per_program = seeds_per_program(protocol)
    rows: list[dict[str, Any]] = []
    columns: list[Columns] = []
    seconds = {}
    for index, arm in enumerate(arms):
        begin = time.monotonic()
        stats = FitStats(**run_arm(arm, table, prepared, protocol, fits, per_program, work, progress))
        seconds[arm.assignment_name] = round(time.monotonic() - begin, 1)
        scores = score.score_fits(fits, stats, table.grid)
        rows.append(arm_record(arm, fits, stats, scores, table))
        columns.append(fit_columns(index, fits, stats, scores))
        on_arm(rows[-1])
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": protocol.label,
        "config": dict(config or {}) | {"protocol": asdict(protocol)},
        "provenance": provenance(table, per_program * len(fits.seed) // protocol.seeds, seconds)
        | {
            "effective_batch_size": effective_batch_size(table.cell, table.grid, protocol.batch_size),
            "chance": {"inj": 1 / table.grid.n_cells, "recovery": align.chance_recovery(table.grid)},
        },
        "arms": rows,
        "tests": score.all_tests([(row["assignment"], row) for row in rows]),
        "warnings": [*unseen_pairs(table), *(note for row in rows for note in trouble(row, row["inj"]["mean"]))],
    }
    return Result(document, {name: np.concatenate([c[name] for c in columns]) for name in columns[0]})


def check_table(table: FeatureTable, arm: Arm) -> None:
    """Every cell has enough pairs, and the features have what the readout asks for."""
    check_cells(table.cell, table.grid)
    if "region" in arm.readout.sees and table.region is None:
        raise UserError(f"readout {arm.readout_name} needs region maps, which these features lack; add `region`")


def provenance(table: FeatureTable, fits_per_program: int, seconds: Mapping[str, float]) -> dict[str, Any]:
    """What any result says about the features and the machine that it comes from."""
    return {
        "features": dict(table.provenance),
        "environment": results.environment(),
        "grid": {"supports": list(table.grid.supports), "operations": list(table.grid.operations)},
        "pairs": len(table.cell),
        "patches": table.source.shape[1],
        "channels": table.source.shape[2],
        "fits_per_program": fits_per_program,
        "seconds": dict(seconds),
    }


def seeds_per_program(protocol: Protocol) -> int:
    """Seeds trained together: one on a CPU, where its fits just fill the caches; all of them elsewhere."""
    return 1 if jax.default_backend() == "cpu" else protocol.seeds


def run_arm(
    arm: Arm,
    table: FeatureTable,
    prepared: PreparedTable,
    protocol: Protocol,
    fits: Fits,
    per_program: int,
    work: Path | None = None,
    progress: Progress | None = None,
    test: PreparedTable | None = None,
) -> Columns:
    """Train and evaluate every fit of an arm, group by group; rows in the order of `fits`.

    The fields of FitStats and, where there is a `test` table, `energy`: that of its pairs, normalised.
    """
    program = make_program(arm, table.grid, dims_of(table, protocol), protocol)
    per_seed = len(fits.seed) // protocol.seeds
    description = f"{arm.readout_name} {arm.assignment_name}"
    bar = progress(description, len(fits.seed) * protocol.steps) if progress else nullcontext(lambda done: None)
    groups = []
    with bar as advance:
        for first in range(0, protocol.seeds, per_program):
            # The last group is filled up with copies of the last seed, so that one compiled program serves all.
            seeds = np.minimum(np.arange(first, first + per_program), protocol.seeds - 1)
            real = per_seed * min(per_program, protocol.seeds - first)
            saved = work / f"{re.sub('[^A-Za-z0-9.-]', '-', arm.assignment_name)}-{first}.npz" if work else None
            columns = _read_group(saved)
            if columns is not None:
                advance(real * protocol.steps)
            else:
                group = make_group(table, arm, protocol, fits, seeds)
                columns = _train_group(program, prepared, group, protocol.steps, real, advance, test)
                if saved:
                    atomic.write_bytes(saved, results.npz_bytes(columns))
            groups.append({name: column[:real] for name, column in columns.items()})
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


def _read_group(path: Path | None) -> Columns | None:
    """What an earlier run saved of a group; None where there is nothing, or nothing that can be read."""
    try:
        return results.read_npz(path.read_bytes()) if path else None
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _train_group(
    program: Program,
    prepared: PreparedTable,
    group: Group,
    steps: int,
    n_fits: int,
    advance: Advance,
    test: PreparedTable | None,
) -> Columns:
    """Train the fits of a group to the end and evaluate them; `advance` hears of every chunk of fit-steps."""
    state = program.init(group)
    bounds = np.unique(np.linspace(0, steps, CHUNKS + 1).astype(int)).tolist()
    for start, stop in itertools.pairwise(bounds):
        state, losses = program.advance(state, prepared, group, start, stop)
        losses.block_until_ready()
        advance(n_fits * (stop - start))
    columns = program.evaluate(state, prepared, group)._asdict()
    if test is not None:
        columns["energy"] = program.energies(state, test)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.device_get(columns))


def arm_record(arm: Arm, fits: Fits, stats: FitStats, scores: score.FitScores, table: FeatureTable) -> dict[str, Any]:
    """One element of the result's `arms`."""
    record = {
        "assignment": arm.assignment_name,
        "readout": arm.readout_name,
        "objective": arm.objective_name,
        "selector": arm.assignment.selector,
        "weights": dict(arm.objective),
        "sees": list(arm.sees),
        **score.score_arm(fits, stats, scores, table.grid),
    }
    if not jax.tree.leaves(arm.assignment.init(jax.random.key(0), table.grid)):
        record |= {"recovery": None, "exact_recovery": None}  # nothing was learned, so nothing was recovered
    return record


def fit_columns(arm: int, fits: Fits, stats: FitStats, scores: score.FitScores) -> Columns:
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
    }


def unseen_pairs(table: FeatureTable) -> list[str]:
    """A warning if the encoder does not see some edit at all."""
    blocks = (table.delta[i : i + EVALUATION_BLOCK] for i in range(0, len(table.cell), EVALUATION_BLOCK))
    unchanged = sum(int(np.sum(~np.any(block, axis=(1, 2)))) for block in blocks)
    if not unchanged:
        return []
    return [f"{unchanged} of {len(table.cell)} pairs have zero delta: the encoder does not see their edit"]


def trouble(row: Json, mean: float | None) -> list[str]:
    """What a reader of an arm should know; `mean` is its main score."""
    found = []
    if row["failed_fits"]:
        found.append(f"{row['assignment']}: {row['failed_fits']} fits failed with a non-finite loss or gradient")
    if mean is None:
        found.append(f"{row['assignment']}: incomplete, some fold has no restart that could be selected")
    return found
