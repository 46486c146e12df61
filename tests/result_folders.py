"""Result folders whose scores are given, so that no test needs to train anything."""

from dataclasses import asdict

import numpy as np

from soopf_jax.experiments import results
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.scoring import metrics, statistics
from tests.planted import GRID

PAIRS_PER_CELL = 20
STORE = {
    "kind": "store",
    "inputs": {
        "cells": "c0ffee",
        "substrate": {"name": "shapes3d-lite", "version": "1", "data_seed": 0},
        "encoder": {"name": "pixels"},
    },
}


def save_run(folder, arms, grid=GRID, features=STORE, pairs_per_cell=PAIRS_PER_CELL, config=None, **protocol):
    """Save a run with `arms` = {assignment: (inj, non_injective)}, each (seeds x cells). Returns its folder as text.

    Of the two restarts of every fold the second is selected; the first scores 0.
    """
    seeds = len(next(iter(arms.values()))[0])
    chosen = Protocol(**{"seeds": seeds, "restarts": 2, "steps": 3} | protocol)
    records = [arm_record(name, *map(np.asarray, scores), grid) for name, scores in arms.items()]
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": chosen.label,
        "config": {"dataset": "shapes3d-lite", "encoder": "pixels", "data_seed": 0, "weight": []}
        | (config or {})
        | {"protocol": asdict(chosen)},
        "provenance": {
            "features": features,
            "grid": {"supports": list(grid.supports), "operations": list(grid.operations)},
            "pairs": pairs_per_cell * grid.n_cells,
            "chance": {"inj": 1 / grid.n_cells, "recovery": None},
        },
        "arms": records,
        "tests": [],
        "warnings": [],
    }
    columns = [fit_columns(i, *map(np.asarray, scores), pairs_per_cell) for i, scores in enumerate(arms.values())]
    fits = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
    results.save(results.Result(document, fits), folder, {}, replace=False)
    return str(folder)


def arm_record(name, inj, non_injective, grid):
    return {
        "assignment": name,
        "readout": "soopf",
        "objective": "core",
        "selector": "flat-cell",
        "weights": {"cell": 1.0, "mask": 1.0},
        "sees": [],
        "n_fits": inj.size,
        "failed_fits": int(np.isnan(inj).sum()),
        "inj": statistics.spread(inj, grid.cell_names),
        "non_injective": statistics.spread(non_injective, grid.cell_names),
        "laundering_gap": statistics.json_number(non_injective.mean() - inj.mean()),
        "min_cell": statistics.json_number(inj.mean(axis=0).min()),
        "collapse": {str(t): metrics.collapse(inj, t) for t in metrics.COLLAPSE_THRESHOLDS},
        "recovery": None,
        "exact_recovery": None,
        "distinct_support_rate": 1.0,
        "validation": 0.5,
    }


def fit_columns(arm, inj, non_injective, pairs_per_cell):
    seed, held_out = (index.ravel().repeat(2).astype(np.int32) for index in np.indices(inj.shape))
    second = np.tile([False, True], inj.size)
    counts = np.zeros((len(seed), inj.shape[1]), np.int32)
    counts[:, 0] = pairs_per_cell
    return {
        "arm": np.full(len(seed), arm, np.int32),
        "seed": seed,
        "held_out": held_out,
        "restart": second.astype(np.int32),
        "selected": second & np.isfinite(inj).ravel().repeat(2),
        "inj": np.where(second, inj.ravel().repeat(2), 0.0),
        "non_injective": np.where(second, non_injective.ravel().repeat(2), 0.0),
        "test_counts": counts,
    }
