"""Alignment of energy slots to true axis values, on the host, from optimisation pairs only; and accuracy under it."""

import itertools
from functools import lru_cache
from math import factorial
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from soopf_jax.grid import Grid

MAX_ENUMERATED = factorial(7)
"""The most permutations of the smaller axis that `recovery` tries."""
_CHANCE_DRAWS = 2000


class SlotMap(NamedTuple):
    """The energy slot that each true axis value is bound to."""

    support: Int[np.ndarray, " supports"]
    operation: Int[np.ndarray, " operations"]

    def slot(self, cell: int, grid: Grid) -> int:
        """The slot (as a cell number) at which a pair of `cell` counts as correct."""
        support, operation = grid.axes(cell)
        return grid.cell(int(self.support[support]), int(self.operation[operation]))


def injective(c: Float[np.ndarray, "values slots"]) -> Int[np.ndarray, " values"]:
    """sigma* = argmax over bijections of sum_v C_{v,sigma(v)}: the Hungarian assignment."""
    rows, slots = scipy.optimize.linear_sum_assignment(c, maximize=True)
    return slots[np.argsort(rows)]


def many_to_one(c: Float[np.ndarray, "values slots"]) -> Int[np.ndarray, " values"]:
    """The slot with the highest energy for every value. Two values may share a slot (operation laundering)."""
    return np.argmax(c, axis=1)


def held_out_accuracy(test_counts: Int[np.ndarray, " cells"], held_out: int, slots: SlotMap, grid: Grid) -> float:
    """Share of held-out pairs whose joint argmax is the slot that the map gives to their cell; NaN without pairs."""
    total = test_counts.sum()
    return float(test_counts[slots.slot(held_out, grid)] / total) if total else float("nan")


class Axes(NamedTuple):
    """The permutation of the two axes under which the most locations agree."""

    agreeing: int
    """How many of them do."""
    slots: SlotMap
    """Where the permutation leads."""


def recovery(q: Float[np.ndarray, "cells cells"], observed: Bool[np.ndarray, " cells"], grid: Grid) -> float | None:
    """Share of observed rows of Q whose argmax is the true grid location, best over permutations of the two axes.

    None where the smaller axis has more than 7 values.
    """
    rows = np.flatnonzero(observed)
    axes = best_axes(rows, np.argmax(q[rows], axis=1), grid)
    return None if axes is None else axes.agreeing / len(rows)


def best_axes(true: Int[np.ndarray, " some"], found: Int[np.ndarray, " some"], grid: Grid) -> Axes | None:
    """Permute the axes so that the most cells of `true` become those of `found`.

    The smaller axis is enumerated; for each of its permutations the best one of the other axis is a Hungarian
    assignment. A permutation whose bound is no better than what was found is left out. None where the smaller axis has
    more than 7 values.
    """
    here, there = np.stack(grid.axes(true)), np.stack(grid.axes(found))
    sizes = (grid.n_supports, grid.n_operations)
    small, large = (0, 1) if sizes[0] <= sizes[1] else (1, 0)
    if factorial(sizes[small]) > MAX_ENUMERATED:
        return None
    # agree[a, a', b, b']: cells whose true location is (a, b) and that were found at (a', b').
    agree = np.zeros((sizes[small], sizes[small], sizes[large], sizes[large]))
    np.add.at(agree, (here[small], there[small], here[large], there[large]), 1)
    permutations = _permutations(sizes[small])
    matches = agree[np.arange(sizes[small]), permutations].sum(axis=1)
    bounds = matches.max(axis=2).sum(axis=1)
    best, chosen = -1, (permutations[0], np.arange(sizes[large]))
    for number in np.argsort(-bounds, kind="stable"):
        if bounds[number] <= best:
            break
        other = injective(matches[number])
        agreeing = int(matches[number][np.arange(sizes[large]), other].sum())
        if agreeing > best:
            best, chosen = agreeing, (permutations[number], other)
    return Axes(best, SlotMap(chosen[small], chosen[large]))


@lru_cache
def _permutations(size: int) -> Int[np.ndarray, "permutations values"]:
    return np.array(list(itertools.permutations(range(size))))


@lru_cache
def chance_recovery(grid: Grid) -> float | None:
    """The recovery of a Q whose rows point at cells drawn uniformly; high, because the best permutation counts."""
    stream = np.random.Generator(np.random.Philox(0))
    total = 0.0
    for draw in range(_CHANCE_DRAWS):
        q = np.eye(grid.n_cells)[stream.integers(grid.n_cells, size=grid.n_cells)]
        value = recovery(q, np.arange(grid.n_cells) != draw % grid.n_cells, grid)
        if value is None:
            return None
        total += value
    return total / _CHANCE_DRAWS
