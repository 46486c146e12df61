"""A small result that was not trained but dealt: random counts and alignments, scored by `align` and `score`."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from soopf_jax.experiments import results
from soopf_jax.experiments.results import Result
from soopf_jax.fitting.protocol import Fits, Protocol, leave_one_cell_out
from soopf_jax.grid import Grid
from soopf_jax.report.examples import Examples
from soopf_jax.scoring import align, metrics, score, statistics
from soopf_jax.types import Window

GRID = Grid(("floor", "wall", "object"), ("hue", "invert", "pattern"))
PROTOCOL = Protocol(seeds=3, restarts=2, steps=40)
N_PAIRS = 20
"""Test pairs of each held-out cell."""


def dealt_result(
    arms: Sequence[str] = ("factorial", "learned"), grid: Grid = GRID, loss: bool = True, seed: int = 0
) -> Result:
    """A result of the quick protocol's shape, in which the last arm's first restart of every fold was selected."""
    fits = leave_one_cell_out(grid, PROTOCOL)
    columns = [dealt_columns(index, fits, grid, np.random.default_rng([seed, index])) for index in range(len(arms))]
    if not loss:
        columns = [{name: column for name, column in arm.items() if name != "loss"} for arm in columns]
    rows = [arm_row(name, fits, arm, grid) for name, arm in zip(arms, columns, strict=True)]
    document = {
        "schema_version": results.SCHEMA_VERSION,
        "protocol": "quick",
        "config": {"dataset": "shapes3d-lite", "encoder": "pixels", "protocol": asdict(PROTOCOL)},
        "provenance": {
            "environment": {"device": "cpu", "packages": {"soopf_jax": "0.1.0"}},
            "grid": {"supports": list(grid.supports), "operations": list(grid.operations)},
            "pairs": 180,
            "patches": 16,
            "channels": 48,
            "chance": {"inj": 1 / grid.n_cells, "recovery": 0.4},
        },
        "arms": rows,
        "tests": score.all_tests([(row["assignment"], row) for row in rows]),
        "warnings": [],
    }
    results.check_document(document)
    return Result(document, {name: np.concatenate([arm[name] for arm in columns]) for name in columns[0]})


def dealt_columns(arm: int, fits: Fits, grid: Grid, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rows of fits.npz for one arm."""
    n = len(fits.seed)
    return {
        "arm": np.full(n, arm, np.int32),
        "seed": fits.seed,
        "held_out": fits.held_out,
        "restart": fits.restart,
        "selected": fits.restart == arm % 2,
        "C_sup": rng.random((n, grid.n_supports, grid.n_supports)),
        "C_op": rng.random((n, grid.n_operations, grid.n_operations)),
        "test_counts": rng.multinomial(N_PAIRS, rng.dirichlet(np.full(grid.n_cells, 0.3), n)).astype(np.int32),
        "failed": np.zeros(n, bool),
        "loss": rng.random((n, 20)).astype(np.float32),
    } | {"inj": np.zeros(n), "non_injective": np.zeros(n)}


def arm_row(name: str, fits: Fits, columns: dict[str, np.ndarray], grid: Grid) -> dict:
    """An element of the document's arms; fills the columns `inj` and `non_injective`."""
    for column, bind in (("inj", align.injective), ("non_injective", align.many_to_one)):
        for row, held_out in enumerate(fits.held_out.tolist()):
            slots = align.SlotMap(bind(columns["C_sup"][row]), bind(columns["C_op"][row]))
            columns[column][row] = align.held_out_accuracy(columns["test_counts"][row], held_out, slots, grid)
    scored = {c: score.fold_matrix(fits, columns["selected"], columns[c]) for c in ("inj", "non_injective")}
    spreads = {c: statistics.spread(matrix, grid.cell_names) for c, matrix in scored.items()}
    return {
        "assignment": name,
        "readout": "soopf",
        "objective": "core",
        "selector": "flat-cell",
        "weights": {"cell": 1.0, "mask": 1.0},
        "sees": ["axes"] if name == "factorial" else [],
        "n_fits": scored["inj"].size,
        "failed_fits": 0,
        **spreads,
        "laundering_gap": spreads["non_injective"]["mean"] - spreads["inj"]["mean"],
        "min_cell": min(spreads["inj"]["per_cell"].values()),
        "collapse": {str(t): metrics.collapse(scored["inj"], t) for t in metrics.COLLAPSE_THRESHOLDS},
        "recovery": None if name == "factorial" else 0.625,
        "exact_recovery": None if name == "factorial" else 0.25,
        "distinct_support_rate": 1.0,
        "validation": 0.9,
    }


def dealt_examples(arms: Sequence[str] = ("factorial", "learned"), grid: Grid = GRID, seed: int = 0) -> Examples:
    """An example of every cell: noise for images, 4 x 4 patches, random regions, masks and energies."""
    rng = np.random.default_rng(seed)
    cells, patches = grid.n_cells, 16
    images = rng.integers(0, 256, (2, cells, 32, 32, 3), dtype=np.uint8)
    region = rng.dirichlet(np.full(grid.n_supports, 0.2), (cells, patches))
    masks = {arm: rng.dirichlet(np.ones(grid.n_supports), (cells, patches)).swapaxes(1, 2) for arm in arms}
    energy = {arm: rng.dirichlet(np.full(cells, 0.3), cells) for arm in arms}
    window = Window(0.0, 0.0, 32.0, 32.0, 4, 4)
    return Examples(np.arange(cells) * 20, np.arange(cells), images[0], images[1], window, region, masks, energy)


def dealt_two_edits(grid: Grid = GRID, seed: int = 0) -> Result:
    """A result of two edits at once: random shares of every metric, of three seeds and all combinations."""
    result, names = dealt_result(("factorial",), grid), grid.combination_names(2)
    arm, rng = result.document["arms"][0], np.random.default_rng(seed)
    for name in ("inj", "non_injective"):
        arm[name] |= {"mean": None, "sd": None, "ci95": None, "per_cell": {}}
    arm["two_edits"] = {}
    for row in metrics.METRICS[metrics.TWO_EDITS]:
        record = statistics.spread(rng.random((PROTOCOL.seeds, len(names))), names)
        arm["two_edits"][row.key] = record | {"per_combination": record.pop("per_cell")}
    result.document["config"]["edits"] = "two"
    result.document["provenance"]["chance"] = metrics.chance(metrics.TWO_EDITS, grid)
    result.document["tests"] = []
    results.check_document(result.document)
    return result
