"""Hard grids: every way to place flat labels on the cells of a grid, and a search among them.

A placement gives each label a cell of its own. Two placements that differ only by a permutation of the supports and a
permutation of the operations are the same grid, because a readout has no preferred order of its slots. How well a
placement fits is a quadratic assignment problem: sum_{l,m} G_{lm} H_{p(l),p(m)}, where G says how similar two labels
are and H which cells should hold similar labels.
"""

import itertools
from collections.abc import Iterator, Sequence
from math import factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from soopf_jax.grid import Grid

RESTARTS, ROUNDS = 20, 10
"""Local searches at a time, and how often they start again from what was found."""
KEPT = 4
"""Of a round's local maxima, the best quarter is perturbed for the next round, four times each."""
MOST_SWAPS = 1000
"""The most swaps of one local search. It ends long before, unless rounding makes it go round in circles."""
LEAST_GAIN = 1e-6
"""The least gain of a swap, as a share of the largest possible value of the objective."""

Placement = Int[np.ndarray, " labels"]
"""The cell of each label: a permutation of the first cells, of all of them unless one label is held out."""


class Fitness(NamedTuple):
    """What makes a placement good: a sum over K terms of sum_{l,m} G_{lm} H_{p(l),p(m)}. All matrices are symmetric."""

    similarity: Float[np.ndarray, "terms labels labels"]
    """G: how similar two labels are. A label of which nothing is known has zeros."""
    closeness: Float[np.ndarray, "terms cells cells"]
    """H: the weight of the similarity of two labels in these cells."""

    def of(self, placement: Placement) -> float:
        """The fitness of one placement."""
        closeness = self.closeness[:, placement][:, :, placement]
        return float(np.sum(self.similarity.astype(np.float64) * closeness))


class Found(NamedTuple):
    """Local maxima, the best first."""

    placement: Int[np.ndarray, "maxima labels"]
    fitness: Float[np.ndarray, " maxima"]


# ------------------------------------------------------------------------------------------ the held-out label


def without(placement: Placement, held_out: int, grid: Grid) -> Int[np.ndarray, " observed"]:
    """The same grid as a placement of the observed labels on all cells but the last, which stays empty.

    Args:
        placement: A placement of all labels.
        held_out: The label to leave out; -1 for none.
        grid: The grid.
    """
    if held_out < 0:
        return placement
    support, operation = grid.axes(placement)
    support = (support - support[held_out] - 1) % grid.n_supports
    operation = (operation - operation[held_out] - 1) % grid.n_operations
    return np.delete(support * grid.n_operations + operation, held_out).astype(np.int32)


def including(placement: Int[np.ndarray, " observed"], held_out: int) -> Placement:
    """A placement of all labels, from one of the observed labels: the held-out label gets the last cell."""
    if held_out < 0:
        return placement
    return np.insert(placement, held_out, len(placement)).astype(np.int32)


# ------------------------------------------------------------------------------------------- fitness of additive models


def support_effects(grid: Grid, n_cells: int) -> Float[np.ndarray, "cells cells"]:
    """The projector of centred values in the first cells onto effects of the support."""
    return _centred_projector(_indicators(grid, n_cells)[:, : grid.n_supports])


def both_effects(grid: Grid, n_cells: int) -> Float[np.ndarray, "cells cells"]:
    """The projector of centred values in the first cells onto effects of the support plus effects of the operation."""
    return _centred_projector(_indicators(grid, n_cells))


def gram(values: Float[np.ndarray, "labels channels"]) -> Float[np.ndarray, "labels labels"]:
    """The Gram matrix of centred values, divided by its trace. Its product with a projector is an explained share."""
    centred = values.astype(np.float64) - values.mean(axis=0)
    products = centred @ centred.T
    return (products / max(np.trace(products), np.finfo(np.float64).tiny)).astype(np.float32)


def additive(values: Float[np.ndarray, "labels channels"], grid: Grid) -> Fitness:
    """The share of the variance between labels that the model `value of (s, o) = a_s + b_o` explains."""
    return Fitness(gram(values)[None], both_effects(grid, len(values))[None])


def _indicators(grid: Grid, n_cells: int) -> Float[np.ndarray, "cells axis_values"]:
    """Which support and which operation each of the first cells has."""
    support, operation = grid.axes(np.arange(n_cells))
    return np.concatenate([np.eye(grid.n_supports)[support], np.eye(grid.n_operations)[operation]], axis=1)


def _centred_projector(design: Float[np.ndarray, "cells columns"]) -> Float[np.ndarray, "cells cells"]:
    """Onto the space that the columns span, without the constant."""
    return (design @ np.linalg.pinv(design) - 1 / len(design)).astype(np.float32)


# ------------------------------------------------------------------------------------------------- all placements


def n_grids(grid: Grid) -> int:
    """The number of different grids: C! / (S! O!)."""
    return factorial(grid.n_cells) // (factorial(grid.n_supports) * factorial(grid.n_operations))


def all_grids(grid: Grid) -> Iterator[Placement]:
    """One placement for each different grid, in canonical form, the identity first."""

    def tables(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The labels of all cells, row by row, for the labels that are left."""
        if not left:
            yield ()
        for others in itertools.combinations(left[1:], grid.n_operations - 1):
            row = (left[0], *others)
            orders = [row] if len(left) == grid.n_cells else list(itertools.permutations(row))
            rest = tuple(label for label in left if label not in row)
            yield from (order + below for order in orders for below in tables(rest))

    return (np.argsort(table).astype(np.int32) for table in tables(tuple(range(grid.n_cells))) if table)


def canonical(placement: Placement, grid: Grid) -> Placement:
    """The placement that stands for all those of the same grid.

    The supports are in the order of their smallest labels, and the labels of the first support are in ascending order.
    """
    table = np.argsort(placement).reshape(grid.n_supports, grid.n_operations)
    table = table[np.argsort(table.min(axis=1))]
    table = table[:, np.argsort(table[0])]
    return np.argsort(table.ravel()).astype(np.int32)


def distinct(placements: Sequence[Placement], grid: Grid) -> list[Placement]:
    """The different grids among some placements, in canonical form and in the order in which they first appear."""
    found = dict.fromkeys(tuple(canonical(placement, grid).tolist()) for placement in placements)
    return [np.array(placement, np.int32) for placement in found]


def swapped(placement: Placement, grid: Grid) -> list[Placement]:
    """The grids that differ from a placement by a swap of two labels."""
    found = []
    for a, b in itertools.combinations(range(grid.n_cells), 2):
        neighbour = placement.copy()
        neighbour[[a, b]] = placement[[b, a]]
        found.append(neighbour)
    return distinct(found, grid)


def random_placements(count: int, n_labels: int, stream: np.random.Generator) -> Int[np.ndarray, "count labels"]:
    """Uniformly drawn placements."""
    return stream.permuted(np.tile(np.arange(n_labels, dtype=np.int32), (count, 1)), axis=1)


# ------------------------------------------------------------------------------------------------------ search


def search(fitness: Fitness, seed: int, restarts: int = RESTARTS, rounds: int = ROUNDS) -> Found:
    """Local searches from random placements, then from perturbations of the best that were found.

    Args:
        fitness: What is maximised.
        seed: Decides the random placements.
        restarts: Local searches in every round.
        rounds: How often local searches start.

    Returns:
        The different local maxima that were found, the best first.
    """
    n_labels = fitness.similarity.shape[1]
    stream = np.random.Generator(np.random.Philox(seed))
    found = local_search(fitness, random_placements(restarts, n_labels, stream))
    for _ in range(rounds - 1):
        best = found.placement[: -(-restarts // KEPT)]
        starts = np.resize(best, (restarts, n_labels))
        for start in starts:  # a few labels move round in a circle
            moved = stream.permutation(n_labels)[: max(3, round(n_labels**0.5))]
            start[moved] = start[np.roll(moved, 1)]
        found = _merged(found, local_search(fitness, starts))
    return found


def local_search(fitness: Fitness, starts: Int[np.ndarray, "restarts labels"]) -> Found:
    """Swap the best two labels, as long as a swap helps, from every start.

    Args:
        fitness: What is maximised.
        starts: A placement per restart. Uniform mixtures of placements are no start: there, all directions are equal.

    Returns:
        The local maxima, the best first.
    """
    placements = np.asarray(_climb_all(*map(jnp.asarray, fitness), jnp.asarray(starts)))
    return _merged(Found(placements, np.array([fitness.of(placement) for placement in placements])))


def _merged(*found: Found) -> Found:
    """All different outcomes, the best first. Equal fitness means the same grid, up to a symmetry of the problem."""
    placement, fitness = (np.concatenate(columns) for columns in zip(*found, strict=True))
    _, first = np.unique(np.round(-fitness, 9), return_index=True)
    return Found(placement[first], fitness[first])


def swap_gains(
    similarity: Float[Array, "terms labels labels"],
    closeness: Float[Array, "terms cells cells"],
    placement: Int[Array, " labels"],
) -> Float[Array, "labels labels"]:
    """By how much the fitness grows if two labels swap their cells, for all pairs of labels at once.

    Let a be in cell x and b in cell y. The terms of all other labels l change by
    2 (G_al - G_bl) (H_{y,p(l)} - H_{x,p(l)}), and the diagonal by (G_aa - G_bb) (H_yy - H_xx). The term of a and b with
    each other stays. With M_ab = sum_l G_al H_{p(l),y}, the sum over all l is M_ab - M_aa - M_bb + M_ba, from which the
    terms l = a and l = b are taken away.
    """

    def of_term(g: Float[Array, "labels labels"], h: Float[Array, "cells cells"]) -> Float[Array, "labels labels"]:
        h = h[placement][:, placement]
        m, g_aa, h_aa = g @ h, jnp.diag(g), jnp.diag(h)
        over_all = m + m.T - jnp.diag(m)[:, None] - jnp.diag(m)[None, :]
        own = (g_aa[:, None] - g) * (h - h_aa[:, None]) + (g - g_aa[None, :]) * (h_aa[None, :] - h)
        diagonal = (g_aa[:, None] - g_aa[None, :]) * (h_aa[None, :] - h_aa[:, None])
        return 2 * (over_all - own) + diagonal

    return jnp.sum(jax.vmap(of_term)(similarity, closeness), axis=0)


@jax.jit
def _climb_all(
    similarity: Float[Array, "terms labels labels"],
    closeness: Float[Array, "terms cells cells"],
    starts: Int[Array, "restarts labels"],
) -> Int[Array, "restarts labels"]:
    """The local maxima that the starts lead to."""
    least = LEAST_GAIN * jnp.sum(jnp.abs(similarity)) * jnp.max(jnp.abs(closeness))

    def climb(start: Int[Array, " labels"]) -> Int[Array, " labels"]:
        def best(placement: Array) -> tuple[Array, Array]:
            gains = swap_gains(similarity, closeness, placement)
            return jnp.max(gains), jnp.argmax(gains)

        def swap(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            placement, _, pair, count = state
            a, b = jnp.divmod(pair, len(start))
            placement = placement.at[a].set(placement[b]).at[b].set(placement[a])
            return placement, *best(placement), count + 1

        def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
            return (state[1] > least) & (state[3] < MOST_SWAPS)

        return jax.lax.while_loop(goes_on, swap, (start, *best(start), jnp.int32(0)))[0]

    return jax.vmap(climb)(starts)
