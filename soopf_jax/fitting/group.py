"""A group of fits: what one call of the training program gets, decided on the host by seeds."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.devices import BY_FIT, BY_SEED
from soopf_jax.fitting.protocol import Fits, Protocol, flat_labels, minibatches, roles
from soopf_jax.types import AnyArray, FeatureTable


class Group(NamedTuple):
    """G seeds with K fits each: one call of the program."""

    held_out: Int[AnyArray, "seeds fits"]
    """-1 where all cells are observed."""
    restart: Int[AnyArray, "seeds fits"]
    seed: Int[AnyArray, " seeds"]
    labels: Int[AnyArray, "seeds cells"]
    """The flat label under which the assignment meets each cell."""
    batches: Int[AnyArray, "seeds steps batch"] | None
    role: Int[AnyArray, "seeds pairs"]
    placement: Int[AnyArray, "seeds fits cells"] | None = None
    """The cell of each label, where the grid of each fit is decided before training."""

    @property
    def at_rest(self) -> "Group":
        """The group without its minibatches. Programs that do not train are then the same for any number of steps."""
        return self._replace(batches=None)


LAYOUT_OF_GROUP: Any = Group(BY_FIT, BY_FIT, BY_SEED, BY_SEED, BY_SEED, BY_SEED, BY_FIT)
"""How a group lies on the mesh."""


def make_group(
    table: FeatureTable,
    arm: Arm,
    protocol: Protocol,
    fits: Fits,
    rows: Int[np.ndarray, "seeds fits"],
    placements: Int[np.ndarray, "all_fits cells"] | None = None,
) -> Group:
    """The fits at the given rows of `fits`, with their splits, minibatches and, if they have them, placements.

    `rows` has a line for each seed.
    """
    cell, grid = table.cell, table.grid
    seeds = fits.seed[rows[:, 0]]
    role = {seed: roles(cell, grid, seed) for seed in set(seeds.tolist())}
    batches = {seed: minibatches(cell, role[seed], grid, seed, protocol.steps, protocol.batch_size) for seed in role}
    return Group(
        held_out=fits.held_out[rows],
        restart=fits.restart[rows],
        seed=seeds,
        labels=np.stack([flat_labels(grid, seed, arm.assignment.sees) for seed in seeds.tolist()]),
        batches=np.stack([batches[seed] for seed in seeds.tolist()]),
        role=np.stack([role[seed] for seed in seeds.tolist()]),
        placement=None if placements is None else placements[rows],
    )
