"""Rows of a study with given scores, so that no test of what comes out of a study needs to train anything."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from soopf_jax.experiments.naming import RunName
from soopf_jax.grid import Grid
from soopf_jax.scoring import statistics
from soopf_jax.studies.outcome import Errors, Outcome

GRID = Grid(("floor", "wall", "object"), ("hue", "invert", "pattern"))
TEST_PAIRS = 90
FEATURES = {"source_rms": 1.0, "delta_rms": 0.2, "change_inside": 0.8, "effective_rank": 5.0}


def outcome(
    encoder: str = "vit",
    layer: int | None = None,
    inj: Sequence[float | None] = (0.4, 0.5, 0.6),
    **changes: Any,
) -> Outcome:
    """A row whose INJ is given per seed; the same in all cells. The encoder has 12 blocks."""
    given = np.array(inj, float)
    cells = np.repeat(given[:, None], GRID.n_cells, axis=1)
    spread = statistics.spread(cells, GRID.cell_names, TEST_PAIRS)
    arm = {"assignment": "learned", "inj": spread, "non_injective": spread, "validation": 0.5}
    arm |= {name: changes.pop(name) for name in ("assignment", "validation") if name in changes}
    name = {
        "substrate": changes.get("dataset", "lite"),
        "grid": "3 x 3",
        "pairs": "540",
        "encoder": encoder if layer is None else f"{encoder} layer {layer}",
        "readout": changes.get("readout", "soopf"),
        "objective": changes.get("objective", "core"),
        "protocol": changes.get("protocol", "quick"),
    }
    wrong = float(1 - given.mean())
    made = {
        "dataset": name["substrate"],
        "encoder": encoder,
        "layer": layer,
        "depth": 1.0 if layer is None else layer / 12,
        "readout": name["readout"],
        "assignment": arm["assignment"],
        "objective": name["objective"],
        "protocol": name["protocol"],
        "folder": f"{name['substrate']}-{encoder}-{layer}",
        "arm": arm,
        "support": given + 0.2,
        "operation": given + 0.1,
        "errors": Errors(wrong / 2, wrong / 4, wrong / 4),
        "features": FEATURES,
        "name": RunName(**name),
        "grid": GRID,
        "test_pairs": TEST_PAIRS,
    }
    return Outcome(**(made | changes))


def study() -> list[Outcome]:
    """An encoder at four layers and at its output, and one without layers; with a statistic that has no label."""
    rng, found = np.random.default_rng(0), []
    for encoder, layers in (("vit", (3, 6, 9, 12, None)), ("pixels", (None,))):
        for layer in layers:
            inj = rng.uniform(0.2, 0.7, 6).round(2).tolist()
            features = {name: float(rng.random()) for name in (*FEATURES, "additive_r2")}
            found.append(outcome(encoder, layer, inj, validation=float(rng.random()), features=features))
    return found
