"""Hard grids: the count and the symmetries of placements, and the search against brute force."""

import itertools
from math import factorial

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soopf_jax.fitting import grids
from soopf_jax.grid import Grid


def grid_of(supports: int, operations: int) -> Grid:
    return Grid.of([f"s{i}" for i in range(supports)], [f"o{i}" for i in range(operations)])


GRID, WIDE = grid_of(3, 3), grid_of(2, 4)


def random_fitness(seed: int, n_labels: int = 8, terms: int = 2) -> grids.Fitness:
    """Symmetric matrices without any structure."""
    g, h = np.random.default_rng(seed).normal(size=(2, terms, n_labels, n_labels)).astype(np.float32)
    return grids.Fitness(g + g.swapaxes(1, 2), h + h.swapaxes(1, 2))


def additive_means(seed: int, grid: Grid, noise: float, channels: int = 64):
    """Means a_s + b_o + noise of shuffled labels, and the true cell of each label."""
    stream = np.random.default_rng(seed)
    sizes = (grid.n_supports, 1), (1, grid.n_operations), (grid.n_supports, grid.n_operations)
    a, b, rest = (stream.normal(size=(*size, channels)) for size in sizes)
    truth = stream.permutation(grid.n_cells).astype(np.int32)
    return (a + b + noise * rest).reshape(-1, channels)[truth], truth


@pytest.mark.parametrize("grid", [grid_of(2, 2), grid_of(2, 3), grid_of(3, 2)])
def test_every_grid_is_enumerated_once(grid):
    """Against brute force: all C! placements fall into C! / (S! O!) classes of axis permutations."""
    listed = [tuple(placement.tolist()) for placement in grids.all_grids(grid)]
    classes = {
        frozenset(
            tuple(rows[c // grid.n_operations] * grid.n_operations + columns[c % grid.n_operations] for c in placement)
            for rows in itertools.permutations(range(grid.n_supports))
            for columns in itertools.permutations(range(grid.n_operations))
        )
        for placement in itertools.permutations(range(grid.n_cells))
    }
    assert listed[0] == tuple(range(grid.n_cells))
    assert len(listed) == len(classes) == grids.n_grids(grid)
    assert all(sum(placement in of_class for placement in listed) == 1 for of_class in classes)


def test_the_paper_s_grid_has_10080():
    assert grids.n_grids(GRID) == 10_080 == factorial(9) // 36
    assert sum(1 for _ in grids.all_grids(GRID)) == 10_080


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(8)), st.permutations(range(2)), st.permutations(range(4)))
def test_the_canonical_form_forgets_permutations_of_the_axes_only(labels, rows, columns):
    placement = np.array(labels, np.int32)
    support, operation = WIDE.axes(placement)
    permuted = (4 * np.array(rows)[support] + np.array(columns)[operation]).astype(np.int32)
    np.testing.assert_array_equal(grids.canonical(placement, WIDE), grids.canonical(permuted, WIDE))
    swapped = placement[[1, 0, *range(2, 8)]]
    assert not np.array_equal(grids.canonical(placement, WIDE), grids.canonical(swapped, WIDE))


def test_one_swap_leads_to_36_grids_of_which_none_is_the_same():
    found = grids.swapped(np.arange(9, dtype=np.int32), GRID)
    assert len(found) == 36
    assert tuple(range(9)) not in {tuple(placement.tolist()) for placement in found}


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(9)), st.integers(-1, 8))
def test_leaving_a_label_out_and_putting_it_back_keeps_the_grid(labels, held_out):
    placement = np.array(labels, np.int32)
    observed = grids.without(placement, held_out, GRID)
    back = grids.including(observed, held_out)
    assert sorted(observed.tolist()) == list(range(9 if held_out < 0 else 8))
    np.testing.assert_array_equal(grids.canonical(back, GRID), grids.canonical(placement, GRID))


@given(st.permutations(range(8)), st.integers(0, 999))
@settings(max_examples=10, deadline=None)
def test_the_gain_of_every_swap_is_the_difference_of_the_fitness(labels, seed):
    fitness, placement = random_fitness(seed), np.array(labels, np.int32)
    gains = np.asarray(grids.swap_gains(*map(jnp.asarray, fitness), jnp.asarray(placement)))
    for a, b in itertools.combinations(range(8), 2):
        swapped = placement.copy()
        swapped[[a, b]] = placement[[b, a]]
        assert gains[a, b] == pytest.approx(fitness.of(swapped) - fitness.of(placement), abs=2e-3)
        assert gains[a, b] == pytest.approx(gains[b, a], abs=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_best_of_all_placements(seed):
    fitness = random_fitness(seed, n_labels=6)
    best = max(fitness.of(np.array(placement)) for placement in itertools.permutations(range(6)))
    assert grids.search(fitness, seed).fitness[0] == pytest.approx(best)


@pytest.mark.parametrize("n_cells", [8, 9])
def test_the_additive_fitness_is_the_explained_share_of_least_squares(n_cells):
    """The last cell may be missing. Against numpy's least squares with one dummy variable per axis value."""
    values = np.random.default_rng(n_cells).normal(size=(n_cells, 5))
    placement = np.random.default_rng(1).permutation(n_cells).astype(np.int32)
    support, operation = GRID.axes(placement)
    design = np.concatenate([np.eye(3)[support], np.eye(3)[operation]], axis=1)
    residual = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    centred = values - values.mean(axis=0)
    assert grids.additive(values, GRID).of(placement) == pytest.approx(1 - (residual**2).sum() / (centred**2).sum())


@pytest.mark.parametrize(("side", "trials"), [(4, 10), (6, 4), (8, 1)])
def test_noisy_additive_means_give_their_grid_back(side, trials):
    """Noise of 0.8 beside effects of 1. On a square grid, rows and columns may be exchanged: fitness decides.

    benchmarks/grid_search.py compares other methods on such means.
    """
    grid = grid_of(side, side)
    for trial in range(trials):
        means, truth = additive_means(trial, grid, noise=0.8)
        fitness = grids.additive(means, grid)
        assert grids.search(fitness, trial).fitness[0] == pytest.approx(fitness.of(truth), abs=1e-6)


def test_a_held_out_label_does_not_disturb_the_search():
    """On a grid that is not square, the placement itself must come back."""
    grid = grid_of(3, 4)
    means, truth = additive_means(0, grid, noise=0.3)
    for held_out in range(grid.n_cells):
        fitness = grids.additive(np.delete(means, held_out, axis=0), grid)
        found = grids.including(grids.search(fitness, 0).placement[0], held_out)
        np.testing.assert_array_equal(grids.canonical(found, grid), grids.canonical(truth, grid))
