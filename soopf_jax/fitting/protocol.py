"""Leave-one-cell-out protocol, Algorithm 1: splits, minibatches and the list of fits, all decided on the host by seeds.

NumPy's Philox streams decide everything here, so that splits and minibatches are the same on any device and any number
of devices, and an interrupted run can ask for the same ones again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int8

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.grid import MIN_PAIRS_PER_CELL, Grid

UNUSED, OPTIMISATION, VALIDATION = 0, 1, 2
"""The roles of a pair in one seed. Which cell is held out does not change them."""

PAPER = (10, 5, 2000)
QUICK = (3, 2, 500)
MOST = 2**31 - 1
"""Counts are kept in 32 bits."""
ALIGNMENTS = ("raw", "soft", "hard")
"""What slots can be matched on: the energy, the normalised energy, or the slot of the largest energy."""
CHOICES = {
    "router_input": ("raw", "rms", "layernorm"),
    "alignment": ALIGNMENTS,
    "ties": ("first", "last"),
    "matmul_precision": ("default", "high", "highest"),
}
OUTSIDE_PROGRAMS = (
    *("seeds", "restarts", "steps", "ties"),
    *("batch_size", "router_width", "hidden", "query_sd", "source_scale", "router_input"),
)
"""What programs get as the shapes and values of arrays or as `Dims`, or not at all."""
_SPLIT_STREAM, _BATCH_STREAM, _LABEL_STREAM = 0, 1, 2


@dataclass(frozen=True)
class Size:
    """How many fits, and how long each of them is trained."""

    seeds: int = PAPER[0]
    """Seeds 0 to N-1."""
    restarts: int = PAPER[1]
    """Fits per seed and held-out cell; the one with the best validation accuracy counts."""
    steps: int = PAPER[2]
    """Adam steps per fit."""


@dataclass(frozen=True)
class Choices:
    """Choices of the paper and those that it leaves open. Each is an option of the command line."""

    batch_size: int = 64
    """Pairs per step; 0: all optimisation pairs."""
    learning_rate: float = 5e-3
    """Learning rate of Adam."""
    tau_start: float = 2.0
    """Temperature of the operation posterior at the first step."""
    tau_end: float = 0.5
    """Temperature at the last step and in evaluation."""
    router_width: int = 64
    """Width of the router."""
    hidden: int = 64
    """Hidden units of the operation MLP."""
    source_scale: float = 1.0
    """Factor on the source tokens that the router reads."""
    router_input: str = "raw"
    """What the router reads of the source tokens. raw: as they are; rms: divided by their RMS, one number for the whole
    table; layernorm: each token normalised."""
    query_sd: float = 0.02
    """SD of the router's queries at the start, by default that of its positions; 0: 1 / sqrt(router width)."""
    q_scale: float = 1.0
    """Factor on the initial parameters of a learned assignment, which are N(0, 0.1^2)."""
    alignment: str = "raw"
    """What slots are matched on. raw: mean energy, in which strong edits count more; soft: mean normalised energy;
    hard: share of pairs with their largest energy there. Every result has INJ under all three."""
    ties: str = "first"
    """Which of equally good restarts counts: first or last."""
    matmul_precision: str = "highest"
    """Precision of products on accelerators: default, high or highest (float32). A CPU has float32 only."""


PRESETS = {"paper": Choices(), "ours": Choices(router_input="rms", alignment="soft")}
"""paper, the default: the paper's words, read literally, and our choice where it is silent. ours: the router reads
tokens of one scale whatever the encoder, and every pair counts the same when slots are matched."""


@dataclass(frozen=True)
class Protocol(Choices, Size):
    """How every fit is trained, selected and aligned: a size and choices, checked. Recorded in every result.

    Raises:
        UserError: A field has an impossible value.
    """

    def __post_init__(self) -> None:
        for name in ("seeds", "restarts", "steps", "router_width", "hidden", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or value % 1:
                raise UserError(f"{name} must be a whole number, not {value!r}")
        for name in ("seeds", "restarts", "steps", "router_width", "hidden"):
            if not 1 <= getattr(self, name) <= MOST:
                raise UserError(f"{name} must be at least 1 and at most {MOST}, not {getattr(self, name)}")
        if not 0 <= self.batch_size <= MOST:
            raise UserError(f"batch size must be 0 (all optimisation pairs) to {MOST}, not {self.batch_size}")
        for name in ("learning_rate", "tau_start", "tau_end", "source_scale", "q_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(f"{name} must be a positive number, not {getattr(self, name)}")
        if not 0 <= self.query_sd < float("inf"):
            raise UserError(f"query_sd must be 0 (1 / sqrt(router width)) or a positive number, not {self.query_sd}")
        for name, valid in CHOICES.items():
            if getattr(self, name) not in valid:
                raise unknown_name(name.replace("_", " "), getattr(self, name), valid)

    @property
    def preset(self) -> str | None:
        """The name of the preset that these choices are, if they are one."""
        choices = {name: getattr(self, name) for name in Choices.__dataclass_fields__}
        return next((name for name, preset in PRESETS.items() if asdict(preset) == choices), None)

    @property
    def label(self) -> str:
        """`full` for the paper's 10 seeds, 5 restarts and 2,000 steps, `quick` for ours, else `custom`."""
        return self.label_beside(PAPER)

    @property
    def of_programs(self) -> "Protocol":
        """The protocol with the usual values in place of all that lies outside programs: equal ones share programs."""
        usual: dict[str, Any] = {field.name: field.default for field in fields(self) if field.name in OUTSIDE_PROGRAMS}
        return replace(self, **usual)

    def label_beside(self, paper: tuple[int, int, int]) -> str:
        """The label for an experiment in which the paper has these seeds, restarts and steps."""
        return {paper: "full", QUICK: "quick"}.get((self.seeds, self.restarts, self.steps), "custom")

    def tau(self, step: Any) -> Any:
        """The temperature of a step: linear from `tau_start` at the first to `tau_end` at the last."""
        return self.tau_start + (self.tau_end - self.tau_start) * step / max(self.steps - 1, 1)


class Fits(NamedTuple):
    """The fits of one arm, seed-major, then held-out cell, then restart."""

    seed: Int[np.ndarray, " fits"]
    held_out: Int[np.ndarray, " fits"]
    restart: Int[np.ndarray, " fits"]


def leave_one_cell_out(grid: Grid, protocol: Protocol) -> Fits:
    """Every (seed, held-out cell, restart)."""
    axes = np.meshgrid(np.arange(protocol.seeds), np.arange(grid.n_cells), np.arange(protocol.restarts), indexing="ij")
    return Fits(*(axis.ravel().astype(np.int32) for axis in axes))


def all_cells_observed(protocol: Protocol) -> Fits:
    """Every (seed, restart), no cell held out."""
    seed, restart = np.divmod(np.arange(protocol.seeds * protocol.restarts, dtype=np.int32), protocol.restarts)
    return Fits(seed, np.full_like(seed, -1), restart)


def split_sizes(n: int) -> tuple[int, int, int]:
    """(optimisation, validation, unused) of a cell of n pairs: 350 -> 224, 56, 70."""
    development = 4 * n // 5
    validation = max(1, development // 5)
    return development - validation, validation, n - development


def check_cells(cell: Int[np.ndarray, " pairs"], grid: Grid) -> None:
    """Check that every cell has enough pairs to be split.

    Raises:
        UserError: A cell has too few.
    """
    counts = np.bincount(cell, minlength=grid.n_cells)
    least = int(np.argmin(counts))
    if counts[least] < MIN_PAIRS_PER_CELL:
        raise UserError(
            f"cell {grid.cell_names[least]} has {counts[least]} pairs; every cell needs at least"
            f" {MIN_PAIRS_PER_CELL} for optimisation, validation and test"
        )


def roles(cell: Int[np.ndarray, " pairs"], grid: Grid, seed: int) -> Int8[np.ndarray, " pairs"]:
    """The role of every pair in one seed: one permutation per (seed, cell), whatever is held out."""
    role = np.full(len(cell), UNUSED, np.int8)
    for c in range(grid.n_cells):
        members = np.flatnonzero(cell == c)
        order = _stream(seed, _SPLIT_STREAM, c).permutation(members)
        n_optimisation, n_validation, _ = split_sizes(len(members))
        role[order[:n_optimisation]] = OPTIMISATION
        role[order[n_optimisation : n_optimisation + n_validation]] = VALIDATION
    return role


def pairs_per_batch(grid: Grid, batch_size: int) -> int:
    """k: pairs from every cell in a minibatch; a fit counts k (C - 1) of them."""
    return max(1, round(batch_size / (grid.n_cells - 1)))


def effective_batch_size(cell: Int[np.ndarray, " pairs"], grid: Grid, batch_size: int) -> int:
    """Pairs that a fit counts in a step (over a full batch: the mean over folds, rounded)."""
    if batch_size:
        return pairs_per_batch(grid, batch_size) * (grid.n_cells - 1)
    sizes = [split_sizes(n)[0] for n in np.bincount(cell, minlength=grid.n_cells).tolist()]
    return round(sum(sizes) * (grid.n_cells - 1) / grid.n_cells)


def minibatches(
    cell: Int[np.ndarray, " pairs"],
    role: Int8[np.ndarray, " pairs"],
    grid: Grid,
    seed: int,
    steps: int,
    batch_size: int,
) -> Int[np.ndarray, "steps batch"]:
    """The pairs of every step of a seed, shared by all its fits: k optimisation pairs of each cell, cell by cell.

    Pairs are drawn without replacement within a step if the cell has at least k. A run with fewer steps gets the first
    steps of a longer one. With `batch_size` 0, every step has all optimisation pairs.
    """
    members = [np.flatnonzero((cell == c) & (role == OPTIMISATION)) for c in range(grid.n_cells)]
    if batch_size == 0:
        return np.broadcast_to(np.concatenate(members).astype(np.int32), (steps, sum(map(len, members))))
    k = pairs_per_batch(grid, batch_size)
    columns = []
    for c, pairs in enumerate(members):
        stream = _stream(seed, _BATCH_STREAM, c)
        if len(pairs) >= k:
            chosen = np.argsort(stream.random((steps, len(pairs))), axis=1)[:, :k]
        else:
            chosen = stream.integers(len(pairs), size=(steps, k))
        columns.append(pairs[chosen])
    return np.concatenate(columns, axis=1).astype(np.int32)


def flat_labels(grid: Grid, seed: int, sees: Sequence[str]) -> Int[np.ndarray, " cells"]:
    """The label under which an assignment meets each cell: the cell's number only if it sees `axes` or `order`."""
    if {"axes", "order"} & set(sees):
        return np.arange(grid.n_cells, dtype=np.int32)
    return _stream(seed, _LABEL_STREAM, 0).permutation(grid.n_cells).astype(np.int32)


def _stream(seed: int, purpose: int, cell: int) -> np.random.Generator:
    """An independent stream of random numbers for each (seed, purpose, cell)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, purpose, cell])))
