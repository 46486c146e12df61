"""`searched`: a population of hard grids competes in short training, and the winner is trained in full.

It begins where `matched` ends. The grids that match best are trained for a tenth of the steps. The better ones and new
neighbours of the best, which differ by a swap of two labels, are trained next, and the best of all with more restarts.
Grids are compared by their mean training loss, on common splits, minibatches and initial values. Every round trains
equally many fits, so one compiled program serves them all.
"""

import itertools

import numpy as np

from soopf_jax.fitting import grids, matching
from soopf_jax.fitting.grids import Fitness
from soopf_jax.types import ObservedFold, Proposal, Proposer

POPULATION = 32
"""Fits of every round."""
FINALISTS = 8
"""Grids that are kept after a round."""
LAST_RESTARTS = POPULATION // FINALISTS
"""How often each finalist is trained in the last round."""
COMPARED = 1 + LAST_RESTARTS
"""The restarts that every finalist has, over which losses are averaged."""
PARENTS = 3
"""The best grids, whose neighbours by one swap enter the population."""

Key = tuple[int, ...]
"""A grid: the canonical placement of all labels."""


class Competition:
    """The grids of one fold that were trained so far."""

    def __init__(self, fold: ObservedFold) -> None:
        self.fold = fold
        self.match: Fitness = matching.fitness(matching.label_means(fold), fold.grid)
        self.losses: dict[Key, list[float]] = {}
        """The loss of every restart of a grid."""

    def train(self, population: list[Key]) -> None:
        """Train every grid of the population once more, from the initial values of its next restart."""
        trained = list(itertools.islice(itertools.cycle(population), POPULATION))  # a small grid has few neighbours
        restart = [len(self.losses.get(key, [])) + trained[:place].count(key) for place, key in enumerate(trained)]
        found = self.fold.trial(np.array(trained, np.int32), np.array(restart))
        for key, loss in zip(trained, found.loss.tolist(), strict=True):
            self.losses.setdefault(key, []).append(loss)

    def ranked(self) -> list[Key]:
        """All grids that were trained, the one with the least loss first."""
        return sorted(self.losses, key=self.loss)

    def loss(self, key: Key) -> float:
        """The mean loss over the restarts that every finalist has."""
        return float(np.mean(self.losses[key][:COMPARED]))

    def best_matches(self) -> list[Key]:
        """The population to begin with: the grids that match best, and neighbours of the best of them."""
        found = grids.search(self.match, self.fold.seed)
        keys = [self.key(grids.including(placement, self.fold.held_out)) for placement in found.placement]
        return self.by_match([*keys, *self.neighbours(keys[:PARENTS])])[:POPULATION]

    def neighbours(self, keys: list[Key]) -> list[Key]:
        """The grids that differ from one of these by a swap of two labels."""
        return [self.key(near) for key in keys for near in grids.swapped(np.array(key, np.int32), self.fold.grid)]

    def by_match(self, keys: list[Key]) -> list[Key]:
        """Different grids, the one that matches best first."""

        def misfit(key: Key) -> float:
            return -self.match.of(grids.without(np.array(key, np.int32), self.fold.held_out, self.fold.grid))

        return sorted(dict.fromkeys(keys), key=misfit)

    def key(self, placement: grids.Placement) -> Key:
        """The grid of a placement."""
        return tuple(grids.canonical(placement, self.fold.grid).tolist())


def propose(fold: ObservedFold) -> Proposal:
    """The grid with the least training loss."""
    competition = Competition(fold)
    competition.train(competition.best_matches())
    kept = competition.ranked()[:FINALISTS]
    near = [key for key in competition.neighbours(kept[:PARENTS]) if key not in competition.losses]
    competition.train(kept + competition.by_match(near)[: POPULATION - FINALISTS])
    finalists = competition.ranked()[:FINALISTS]
    competition.train(finalists * LAST_RESTARTS)
    winner = min(finalists, key=competition.loss)

    def fitness(placement: grids.Placement) -> float:
        key = competition.key(placement)
        while len(competition.losses.get(key, [])) < COMPARED:
            competition.train([key])
        return -competition.loss(key)

    return Proposal(np.array(winner, np.int32), fitness)


PROPOSER = Proposer(matching.describe, propose)
