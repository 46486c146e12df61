"""Ways to recognise an operation in flat labels, of which `matched` has one. `benchmarks.matching` compares them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from soopf_jax.fitting import grids, matching
from soopf_jax.fitting.grids import Fitness
from soopf_jax.grid import Grid
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.types import AnyArray, ObservedFold, PairView, Proposal, Proposer

Criterion = Callable[[ObservedFold], Fitness]
"""What a proposer maximises in a fold."""


class Statistics(NamedTuple):
    """Statistics of a pair by which an operation might be recognised, and where the pair changes."""

    where: Float[AnyArray, "*labels patches"]
    pooled: Float[AnyArray, "*labels channels"]
    """sum_n sal_n c_n, with c = LN(delta), projected as `matched` does it."""
    pooled_moment: Float[AnyArray, "*labels moments"]
    """The product of `pooled` with itself."""
    change: Float[AnyArray, "*labels moments"]
    """As `matched` has it."""
    contrast: Float[AnyArray, "*labels moments"]
    """As `matched` has it."""


class Way(NamedTuple):
    """A way to recognise an operation."""

    statistics: tuple[str, ...]
    """Names of `Statistics`. Each has an equal share of the weight."""
    effects: Callable[[Grid, int], Float[np.ndarray, "cells cells"]] = grids.both_effects
    """Of what these statistics should be a sum."""


def operation_effects(grid: Grid, n_cells: int) -> Float[np.ndarray, "cells cells"]:
    """The projector of centred values in the first cells onto effects of the operation."""
    _, operation = grid.axes(np.arange(n_cells))
    alike = (operation[:, None] == operation).astype(np.float32)
    return alike / alike.sum(axis=0) - np.float32(1 / n_cells)


WAYS = {
    "mean of the change, pooled over salient patches": Way(("pooled",)),
    "second moment of the pooled change": Way(("pooled_moment",)),
    "second moment of the change with the source": Way(("contrast",)),
    "second moment of the change": Way(("change",)),
    "mean and both second moments of the change": Way(("pooled", "change", "contrast")),
    "both second moments of the change, as in `matched`": Way(("change", "contrast")),
    "the same, as an effect of the operation alone": Way(("change", "contrast"), operation_effects),
}
"""Where a pair changes is an effect of the support in all of them, and has as much weight as all the rest."""


def describe(pair: PairView) -> Statistics:
    """All statistics of one pair."""
    where, change, contrast = matching.describe(pair)
    delta = unit_scale(pair.delta)
    pooled = salience(delta) @ layer_norm(delta) @ matching.projection(delta.shape[1])
    return Statistics(where, pooled, jnp.ravel(jnp.outer(pooled, pooled)), change, contrast)


def criterion_of(way: Way) -> Criterion:
    """What a proposer that recognises operations in this way maximises."""

    def criterion(fold: ObservedFold) -> Fitness:
        labels = [label for label in range(fold.grid.n_cells) if label != fold.held_out]
        chosen = [np.sqrt(mean_of(fold, "where", labels)), *(mean_of(fold, name, labels) for name in way.statistics)]
        effects = way.effects(fold.grid, len(labels)) / len(way.statistics)
        closeness = [grids.support_effects(fold.grid, len(labels)), *(effects for _ in way.statistics)]
        return Fitness(np.stack([grids.gram(values) for values in chosen]), np.stack(closeness))

    return criterion


def mean_of(fold: ObservedFold, name: str, labels: Sequence[int]) -> Float[np.ndarray, "labels channels"]:
    """The mean statistic of every label."""
    column = getattr(fold.described, name)
    return np.stack([column[fold.label == label].mean(axis=0) for label in labels])


def proposer_of(criterion: Criterion) -> Proposer:
    """A proposer that is like `matched` but for its criterion."""

    def propose(fold: ObservedFold) -> Proposal:
        fitness = criterion(fold)
        best = grids.search(fitness, fold.seed).placement[0]
        return Proposal(
            grids.including(best, fold.held_out),
            lambda placement: fitness.of(grids.without(placement, fold.held_out, fold.grid)),
        )

    return Proposer(describe, propose)
