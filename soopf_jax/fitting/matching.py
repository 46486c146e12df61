"""`matched`: places flat labels on the grid by the similarity of their pairs, before anything is trained.

Labels of one support should change the same places. Labels of one operation should change them in the same way. What a
label changes is its mean salience map. How it changes it are two second moments at the salient patches: that of the
change with itself, and that of the change with the source. An inversion of colours, for example, is a change that
depends on the source, while stripes do not.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from soopf_jax.fitting import grids
from soopf_jax.fitting.grids import Fitness
from soopf_jax.grid import Grid
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.types import AnyArray, ObservedFold, PairView, Proposal, Proposer

CHANNELS = 64
"""Tokens with more channels are projected to so many, by a random orthonormal basis that is always the same."""


class Description(NamedTuple):
    """The statistics of one pair, or their means over the pairs of a label."""

    where: Float[AnyArray, "*labels patches"]
    """The salience of every patch."""
    change: Float[AnyArray, "*labels moments"]
    """sum_n sal_n c_n c_n^T, with c = LN(delta), projected."""
    contrast: Float[AnyArray, "*labels moments"]
    """sum_n sal_n c_n z_n^T, with z = LN(source), projected."""


def describe(pair: PairView) -> Description:
    """Where a pair changes, and the second moments of its change."""
    delta = unit_scale(pair.delta)
    weight = salience(delta)
    basis = projection(delta.shape[1])
    change, source = layer_norm(delta) @ basis, layer_norm(pair.source.astype(jnp.float32)) @ basis
    weighted = (weight[:, None] * change).T
    return Description(weight, jnp.ravel(weighted @ change), jnp.ravel(weighted @ source))


def projection(channels: int) -> Float[np.ndarray, "channels fewer"]:
    """An orthonormal basis of at most CHANNELS directions; the identity if there are no more channels than that."""
    if channels <= CHANNELS:
        return np.eye(channels, dtype=np.float32)
    stream = np.random.Generator(np.random.Philox(0))
    return np.linalg.qr(stream.normal(size=(channels, CHANNELS)))[0].astype(np.float32)


def label_means(fold: ObservedFold) -> Description:
    """The mean description of every observed label, in ascending order of the labels."""
    of_label = [fold.label == label for label in range(fold.grid.n_cells) if label != fold.held_out]
    return Description(*(np.stack([column[chosen].mean(axis=0) for chosen in of_label]) for column in fold.described))


def fitness(means: Description, grid: Grid) -> Fitness:
    """How well a placement explains the means of the labels.

    The square roots of the salience maps should be constant within supports. The moments should be a sum of an effect
    of the support and an effect of the operation, because the same operation looks different on another support. Each
    term is the explained share of the variance between labels, so it does not depend on any scale.
    """
    n_labels = len(means.where)
    supports, both = grids.support_effects(grid, n_labels), grids.both_effects(grid, n_labels)
    similarity = [grids.gram(values) for values in (np.sqrt(means.where), means.change, means.contrast)]
    return Fitness(np.stack(similarity), np.stack([supports, both / 2, both / 2]))


def propose(fold: ObservedFold) -> Proposal:
    """The placement with the best fitness."""
    criterion = fitness(label_means(fold), fold.grid)
    best = grids.search(criterion, fold.seed).placement[0]

    def fitness_of(placement: grids.Placement) -> float:
        return criterion.of(grids.without(placement, fold.held_out, fold.grid))

    return Proposal(grids.including(best, fold.held_out), fitness_of)


PROPOSER = Proposer(describe, propose)
