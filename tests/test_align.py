import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from soopf_jax.grid import Grid
from soopf_jax.scoring import align

THREE = Grid.of("abc", "xyz")


@given(st.integers(2, 5).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(-10, 10))))
def test_injective_is_the_best_of_all_permutations(c):
    found = align.injective(c)
    best = max(sum(c[v, s] for v, s in enumerate(p)) for p in itertools.permutations(range(len(c))))
    assert sorted(found) == list(range(len(c)))
    assert c[np.arange(len(c)), found].sum() == pytest.approx(best, abs=1e-9)


def test_laundering_is_credited_many_to_one_and_denied_injectively():
    """Two operations share slot 0; the held-out pairs of the second all land there."""
    c_op = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.0, 0.1, 0.9]])
    c_sup = np.eye(3)
    test_counts = np.zeros(9, int)
    held_out = THREE.cell(1, 1)
    test_counts[THREE.cell(1, 0)] = 7
    shared = align.SlotMap(align.many_to_one(c_sup), align.many_to_one(c_op))
    distinct = align.SlotMap(align.injective(c_sup), align.injective(c_op))
    assert align.held_out_accuracy(test_counts, held_out, shared, THREE) == 1.0
    assert align.held_out_accuracy(test_counts, held_out, distinct, THREE) == 0.0


def test_accuracy_without_test_pairs_is_undefined():
    identity = align.SlotMap(np.arange(3), np.arange(3))
    assert np.isnan(align.held_out_accuracy(np.zeros(9, int), 0, identity, THREE))


def brute_force_recovery(q, observed, grid):
    rows = np.flatnonzero(observed)
    found = np.argmax(q, axis=1)
    best = 0
    for sigma in itertools.permutations(range(grid.n_supports)):
        for rho in itertools.permutations(range(grid.n_operations)):
            best = max(best, sum(found[r] == grid.cell(sigma[grid.axes(r)[0]], rho[grid.axes(r)[1]]) for r in rows))
    return best / len(rows)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (3, 5)])
def test_recovery_against_brute_force(shape):
    grid = Grid.of([f"s{i}" for i in range(shape[0])], [f"o{i}" for i in range(shape[1])])
    stream = np.random.default_rng(0)
    for held_out in range(6):
        q = stream.random((grid.n_cells, grid.n_cells))
        observed = np.arange(grid.n_cells) != held_out
        assert align.recovery(q, observed, grid) == pytest.approx(brute_force_recovery(q, observed, grid))


@given(st.permutations(range(3)), st.permutations(range(3)), st.integers(0, 8), st.integers(0, 10_000))
def test_recovery_does_not_depend_on_the_names_of_the_slots(sigma, rho, held_out, seed):
    q = np.random.default_rng(seed).random((9, 9))
    observed = np.arange(9) != held_out
    columns = [THREE.cell(sigma[c // 3], rho[c % 3]) for c in range(9)]
    assert align.recovery(q[:, columns], observed, THREE) == align.recovery(q, observed, THREE)


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_any_relabelling_of_the_axes_is_a_full_recovery(sigma, rho):
    q = np.eye(9)[[THREE.cell(sigma[c // 3], rho[c % 3]) for c in range(9)]]
    assert align.recovery(q, np.ones(9, bool), THREE) == 1.0


def test_a_permutation_that_cannot_be_better_is_not_tried(monkeypatch):
    """Of 5,040 permutations of 7 x 7, only the true one can bring 48 labels to their place."""
    grid = Grid.of("abcdefg", "stuvwxy")
    tried = []
    monkeypatch.setattr(align, "injective", lambda c, original=align.injective: tried.append(c) or original(c))
    assert align.recovery(np.eye(49), np.arange(49) != 3, grid) == 1.0
    assert len(tried) == 1


def test_recovery_is_undefined_beyond_seven_by_seven():
    grid = Grid.of([f"s{i}" for i in range(8)], [f"o{i}" for i in range(8)])
    assert align.recovery(np.eye(64), np.ones(64, bool), grid) is None


def test_chance_recovery_on_two_by_two_worked_out_by_exhaustion():
    """All 4^3 = 64 ways to point three observed rows at four cells, for each of the four held-out cells."""
    grid = Grid.of("ab", "xy")
    exact = np.mean(
        [
            brute_force_recovery(np.eye(4)[np.insert(rows, held_out, 0)], np.arange(4) != held_out, grid)
            for held_out in range(4)
            for rows in itertools.product(range(4), repeat=3)
        ]
    )
    assert align.chance_recovery(grid) == pytest.approx(exact, abs=4 * 0.5 / np.sqrt(2000))
