"""Feature tables whose answer is known by construction."""

import numpy as np

from soopf_jax.fitting.protocol import Protocol
from soopf_jax.grid import Grid
from soopf_jax.types import FeatureTable

GRID = Grid.of(("floor", "wall", "object"), ("hue", "invert", "pattern"))
SMALL = Protocol(seeds=2, restarts=1, steps=20)
"""The protocol to use where any will do, with `small_table` and the `learned` arm: its programs are compiled once."""
SMALL_OPTIONS = ("--seeds", "2", "--restarts", "1", "--steps", "20")
"""The same on the command line."""


def small_table() -> FeatureTable:
    """The table to use where any table will do."""
    return planted_table(10)


def planted_table(
    pairs_per_cell: int = 40, patches: int = 9, channels: int = 16, seed: int = 0, grid: Grid = GRID, edits: int = 1
) -> FeatureTable:
    """A grid that factors perfectly: support = where delta is, operation = its direction, plus a little noise.

    Patches belong to supports in turn; the source token names its support by one of S orthogonal directions, an edit
    adds one of O further orthogonal directions to the patches of its support. Two edits add two, on two supports.
    """
    stream = np.random.default_rng(seed)
    combinations = np.array(grid.combinations(edits))
    cell = np.repeat(np.arange(len(combinations)), pairs_per_cell).astype(np.int32)
    support, operation = grid.axes(combinations[cell])
    directions = np.linalg.qr(stream.normal(size=(channels, channels)))[0]
    region = np.arange(patches) % grid.n_supports
    shape = (len(cell), patches, channels)
    source = 4 * directions[region] + 0.1 * stream.normal(size=shape)
    edited_here = (region == support[:, :, None])[..., None]
    added = np.sum(edited_here * directions[grid.n_supports + operation][:, :, None], axis=1)
    delta = 2 * added + 0.02 * stream.normal(size=shape)
    fractions = np.broadcast_to(np.eye(grid.n_supports)[region], (len(cell), patches, grid.n_supports))
    return FeatureTable(
        source.astype(np.float32),
        delta.astype(np.float32),
        fractions.astype(np.float32),
        cell,
        grid,
        {"kind": "planted"},
    )


def random_table(pairs_per_cell: int = 10, patches: int = 4, channels: int = 6, seed: int = 0) -> FeatureTable:
    """Features that have nothing to do with their cells."""
    stream = np.random.default_rng(seed)
    cell = np.repeat(np.arange(GRID.n_cells), pairs_per_cell).astype(np.int32)
    source, delta = stream.normal(size=(2, len(cell), patches, channels)).astype(np.float32)
    return FeatureTable(source, delta, None, cell, GRID, {"kind": "random"})


def planted_tokens(stream: np.random.Generator) -> dict[str, np.ndarray]:
    """`source`, `edited` and `cell` of a 2 x 2 grid: where is a half of the patches, what is a channel."""
    cell = np.repeat(np.arange(4), 20)
    source, noise = stream.normal(size=(2, len(cell), 6, 8)).astype(np.float32)
    edited = source + 0.1 * noise
    for pair, (support, operation) in enumerate(zip(cell // 2, cell % 2, strict=True)):
        edited[pair, 3 * support : 3 * support + 3, operation] += 2
    return {"source": source, "edited": edited, "cell": cell}
