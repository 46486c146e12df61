"""Searches for the grid of labels, compared on means whose true grid is known. `benchmarks.matching` runs this.

The means are a_s + b_o + NOISE times noise, all normal, of labels in random order. What is maximised is the share of
their variance that an additive model explains. All methods begin at random, several times, and the best outcome counts.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy import optimize
from scipy.spatial import distance

from soopf_jax.fitting import grids
from soopf_jax.fitting.grids import Fitness, Placement
from soopf_jax.grid import Grid
from soopf_jax.scoring import verdict
from soopf_jax.types import Json

NOISE = 0.8
"""The SD of the noise, beside effects of SD 1."""
SIDES, CHANNELS = (4, 6, 8), (16, 64)
RESTARTS = grids.RESTARTS
MORE_RESTARTS = grids.RESTARTS * grids.ROUNDS
"""For methods whose restarts are cheap: as many local searches as those of `matched` in all its rounds."""
HOT, COLD, COOLINGS, NORMALISATIONS = 0.2, 0.005, 200, 20
"""Annealed Sinkhorn: the first and the last temperature, how many there are, and normalisations at each of them. A
label explains a share of about one. Of 0.5, 0.2, 0.1 and 0.05 to begin with, 0.2 found the most grids."""
LOGITS_SD, RATE, STEPS = 0.1, 0.05, 1000
"""A softmax per row: the SD of its logits at the start, as in `learned`; Adam's learning rate and its steps."""
MOST_REFITS = 100
"""Hungarian EM ends when nothing changes; this many refits are far more than it needs."""


class Problem(NamedTuple):
    """Means of labels, and what is maximised."""

    means: Float[np.ndarray, "labels channels"]
    truth: Placement
    """The true cell of each label."""
    grid: Grid
    fitness: Fitness


Search = Callable[[Problem, int], Placement | None]
"""(problem, seed) -> the best placement that was found; None if there is none."""


def problem(side: int, channels: int, seed: int, noise: float = NOISE) -> Problem:
    """A square grid with additive means."""
    grid = Grid.of([f"s{i}" for i in range(side)], [f"o{i}" for i in range(side)])
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, side, channels])))
    of_support, of_operation = stream.normal(size=(side, 1, channels)), stream.normal(size=(1, side, channels))
    of_cell = of_support + of_operation + noise * stream.normal(size=(side, side, channels))
    truth = stream.permutation(grid.n_cells).astype(np.int32)
    means = of_cell.reshape(grid.n_cells, channels)[truth]
    return Problem(means, truth, grid, grids.additive(means, grid))


def same_grid(one: Placement, other: Placement, grid: Grid) -> bool:
    """Whether two placements are one grid. On a square grid of nameless axes, the axes may be exchanged too."""
    support, operation = grid.axes(one)
    turned = (operation * grid.n_supports + support).astype(np.int32)
    forms = [one, turned] if grid.n_supports == grid.n_operations else [one]
    wanted = grids.canonical(other, grid)
    return any(np.array_equal(grids.canonical(form, grid), wanted) for form in forms)


# ----------------------------------------------------------------------------------------------------- the methods


def best_swap(problem: Problem, seed: int, rounds: int = grids.ROUNDS) -> Placement:
    """The search of `matched`."""
    return grids.search(problem.fitness, seed, RESTARTS, rounds).placement[0]


def hungarian_em(problem: Problem, seed: int) -> Placement:
    """Fit the additive model to the labels in their cells, then give every label the cell that fits it best."""
    grid, stream = problem.grid, np.random.Generator(np.random.Philox(seed))
    found = []
    for placement in grids.random_placements(MORE_RESTARTS, grid.n_cells, stream):
        for _ in range(MOST_REFITS):
            of_cell = problem.means[np.argsort(placement)].reshape(grid.n_supports, grid.n_operations, -1)
            fitted = of_cell.mean(axis=0, keepdims=True) + of_cell.mean(axis=1, keepdims=True) - of_cell.mean((0, 1))
            errors = distance.cdist(problem.means, fitted.reshape(grid.n_cells, -1), "sqeuclidean")
            before, placement = placement, optimize.linear_sum_assignment(errors)[1]
            if np.array_equal(before, placement):
                break
        found.append(placement)
    return best(found, problem.fitness)


def faq(problem: Problem, seed: int) -> Placement:
    """scipy's Frank-Wolfe method, from random doubly stochastic starts."""
    stream = np.random.Generator(np.random.Philox(seed))
    ((similarity,), (closeness,)) = problem.fitness
    options = {"maximize": True, "P0": "randomized", "rng": stream}
    outcomes = (optimize.quadratic_assignment(similarity, closeness, "faq", options) for _ in range(MORE_RESTARTS))
    return best([outcome.col_ind for outcome in outcomes], problem.fitness)


def annealed_sinkhorn(problem: Problem, seed: int) -> Placement:
    """A doubly stochastic Q that follows the gradient of the fitness while it cools, and its nearest permutation."""
    soft = _cooled(*_matrices(problem.fitness), _starts(problem, seed))
    return best([optimize.linear_sum_assignment(q, maximize=True)[1] for q in np.asarray(soft)], problem.fitness)


def softmax_rows(problem: Problem, seed: int) -> Placement | None:
    """A softmax per label that climbs by Adam. None if two labels have one cell, in every restart."""
    rows = np.asarray(_climbed(*_matrices(problem.fitness), _starts(problem, seed))).argmax(axis=2)
    injective = [row for row in rows if len(set(row.tolist())) == len(row)]
    return best(injective, problem.fitness) if injective else None


def best(placements: list[Placement], fitness: Fitness) -> Placement:
    """The placement with the highest fitness."""
    return max(placements, key=fitness.of).astype(np.int32)


def _matrices(fitness: Fitness) -> tuple[Float[Array, "labels labels"], Float[Array, "cells cells"]]:
    """G, scaled so that a label explains a share of about one, and H."""
    return jnp.asarray(fitness.similarity[0] * fitness.similarity.shape[1]), jnp.asarray(fitness.closeness[0])


def _starts(problem: Problem, seed: int) -> Float[Array, "restarts labels cells"]:
    shape = (RESTARTS, problem.grid.n_cells, problem.grid.n_cells)
    return LOGITS_SD * jax.random.normal(jax.random.key(seed), shape)


@jax.jit
def _cooled(
    g: Float[Array, "labels labels"], h: Float[Array, "cells cells"], starts: Float[Array, "restarts labels cells"]
) -> Float[Array, "restarts labels cells"]:
    def balanced(logits: Array) -> Array:
        def normalise(_: Int[Array, ""], log_q: Array) -> Array:
            return jax.nn.log_softmax(jax.nn.log_softmax(log_q, axis=1), axis=0)

        return jnp.exp(jax.lax.fori_loop(0, NORMALISATIONS, normalise, logits))

    def cool(q: Array, temperature: Array) -> tuple[Array, None]:
        return balanced(2 * g @ q @ h / temperature), None

    temperatures = jnp.geomspace(HOT, COLD, COOLINGS)
    return jax.vmap(lambda start: jax.lax.scan(cool, balanced(start), temperatures)[0])(starts)


@jax.jit
def _climbed(
    g: Float[Array, "labels labels"], h: Float[Array, "cells cells"], starts: Float[Array, "restarts labels cells"]
) -> Float[Array, "restarts labels cells"]:
    adam = optax.adam(RATE)

    def loss(logits: Array) -> Array:
        q = jax.nn.softmax(logits, axis=1)
        return -jnp.sum((g @ q) * (q @ h))

    def step(state: tuple[Array, optax.OptState], _: None) -> tuple[tuple[Array, optax.OptState], None]:
        logits, moments = state
        updates, moments = adam.update(jax.grad(loss)(logits), moments)
        return (logits + updates, moments), None

    return jax.vmap(lambda start: jax.lax.scan(step, (start, adam.init(start)), None, STEPS)[0][0])(starts)


METHODS: Mapping[str, Search] = {
    f"best swap, {RESTARTS} restarts, {grids.ROUNDS} rounds": best_swap,
    f"best swap, {RESTARTS} restarts, 1 round": partial(best_swap, rounds=1),
    f"annealed Sinkhorn, {RESTARTS} restarts": annealed_sinkhorn,
    f"Hungarian EM, {MORE_RESTARTS} restarts": hungarian_em,
    f"scipy's FAQ, {MORE_RESTARTS} restarts": faq,
    f"a softmax per row, {RESTARTS} restarts": softmax_rows,
}


# -------------------------------------------------------------------------------------------------- the comparison


def compare(trials: int, sides: tuple[int, ...] = SIDES, channels: tuple[int, ...] = CHANNELS) -> Json:
    """Every method on the same problems.

    Returns:
        The choices, and a row for every method, number of channels and size of the grid.
    """
    choices = {
        "noise": NOISE, "trials": trials,
        "annealed Sinkhorn": {
            "temperatures": [HOT, COLD], "coolings": COOLINGS, "normalisations": NORMALISATIONS,
        },
        "a softmax per row": {"logits_sd": LOGITS_SD, "learning_rate": RATE, "steps": STEPS},
    }  # fmt: skip
    rows = [
        {"method": name, "channels": width, "side": side, **outcomes(method, trials, side, width)}
        for name, method in METHODS.items()
        for width in channels
        for side in sides
    ]
    return {"choices": choices, "rows": rows}


def outcomes(method: Search, trials: int, side: int, channels: int) -> Json:
    """How often a method finds the true grid and why not, and the CPU time of a trial with all its restarts."""
    method(problem(side, channels, 0), 0)  # compiles
    verdicts, seconds = [], []
    for seed in range(trials):
        given = problem(side, channels, seed)
        start = time.process_time()
        found = method(given, seed)
        seconds.append(time.process_time() - start)
        verdicts.append("collapsed" if found is None else judged(found, given))
    kinds = {
        "found": verdict.FOUND, "search_gap": verdict.SEARCH_GAP, "unidentifiable": verdict.UNIDENTIFIABLE,
        "collapsed": "collapsed",
    }  # fmt: skip
    counts = {key: verdicts.count(kind) for key, kind in kinds.items()}
    return {"trials": trials, **counts, "cpu_seconds": statistics.median(seconds)}


def judged(found: Placement, given: Problem) -> str:
    """The verdict on one placement."""
    exact = same_grid(found, given.truth, given.grid)
    return verdict.verdict(exact, given.fitness.of(found), given.fitness.of(given.truth))
