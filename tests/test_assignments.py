"""`learned-sinkhorn`: its Q against closed forms, general-purpose solvers, brute force and its own symmetries."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, minimize

from soopf_jax.fitting import assignments
from soopf_jax.grid import Grid
from tests.planted import GRID

SMALL = Grid.of(("left", "right"), ("hue", "blur"))
WIDE = Grid.of(("left", "right"), ("hue", "blur", "invert"))
LOGITS = arrays(np.float32, (9, 9), elements=st.floats(-30, 30, width=32))
"""Far beyond what training reaches: 30 / 0.3 is a ratio of e^100 between two entries of a row."""
HELD_OUT = st.integers(-1, 8)


@jax.jit
def matrix_3x3(logits, held_out):
    return assignments.SINKHORN.matrix({"logits": logits}, held_out, GRID)


def sinkhorn(logits, held_out=-1):
    return np.asarray(matrix_3x3(jnp.asarray(logits, jnp.float32), jnp.int32(held_out)), np.float64)


def random_logits(seed, grid=GRID, sd=0.5):
    return sd * np.random.default_rng(seed).normal(size=(grid.n_cells, grid.n_cells))


def test_two_labels_that_want_one_cell_by_hand():
    """Of a 2 x 2 block ((a, b), (c, d)) the diagonal gets 1 / (1 + exp((b + c - a - d) / 2T)); -100 cuts blocks apart.

    Both labels of the first block prefer cell 0, label 0 by 1.2 and label 1 by 0.6: the diagonal gets sigmoid(1).
    """
    logits = np.full((4, 4), -100.0)
    logits[:2, :2] = [[1.2, 0.0], [0.6, 0.0]]
    logits[2:, 2:] = [[0.0, 0.0], [0.0, 0.0]]
    q = assignments.SINKHORN.matrix({"logits": jnp.asarray(logits, jnp.float32)}, jnp.int32(-1), SMALL)
    diagonal = 1 / (1 + np.exp(-1))
    expected = np.zeros((4, 4))
    expected[:2, :2] = [[diagonal, 1 - diagonal], [1 - diagonal, diagonal]]
    expected[2:, 2:] = 0.5
    np.testing.assert_allclose(q, expected, atol=1e-6)


@pytest.mark.parametrize("held_out", range(4))
def test_observed_rows_solve_the_problem_that_the_docstring_states(held_out, monkeypatch):
    """A general solver over the three observed rows alone, the slack being written as what they leave of each cell."""
    monkeypatch.setattr(assignments, "SINKHORN_ITERATIONS", 1000)
    logits = random_logits(held_out, SMALL)
    observed = [label for label in range(4) if label != held_out]

    def cost(rows):
        """Minus the objective, and its derivative."""
        rows = rows.reshape(3, 4)
        slack = 1 - rows.sum(axis=0)
        gain = logits[observed] / assignments.SINKHORN_TEMPERATURE
        value = np.sum(rows * (np.log(rows) - gain)) + np.sum(slack * np.log(slack))
        return value, (np.log(rows) - gain - np.log(slack)).ravel()

    found = minimize(
        cost,
        np.full(12, 0.25),
        jac=True,
        method="trust-constr",
        bounds=Bounds(1e-9, 1, keep_feasible=True),
        constraints=[
            LinearConstraint(np.kron(np.eye(3), np.ones(4)), 1, 1),
            LinearConstraint(np.kron(np.ones(3), np.eye(4)), 0, 1 - 1e-9, keep_feasible=True),
        ],
        options={"gtol": 1e-9, "xtol": 1e-12, "maxiter": 2000},
    )
    assert found.success
    q = assignments.SINKHORN.matrix({"logits": jnp.asarray(logits, jnp.float32)}, jnp.int32(held_out), SMALL)
    np.testing.assert_allclose(np.asarray(q)[observed], found.x.reshape(3, 4), atol=1e-4)


@pytest.mark.parametrize("held_out", [-1, 0, 5])
def test_equals_a_long_run_of_scaling_in_float64(held_out):
    """Q = diag(r) K diag(c), K = exp(A / T), by ten thousand scalings of K itself rather than of its logarithm."""
    logits = random_logits(held_out + 1)
    kernel = np.exp(logits / assignments.SINKHORN_TEMPERATURE)
    if held_out >= 0:
        kernel[held_out] = 1
    columns = np.ones(9)
    for _ in range(10_000):
        rows = 1 / (kernel @ columns)
        columns = 1 / (rows @ kernel)
    np.testing.assert_allclose(sinkhorn(logits, held_out), rows[:, None] * kernel * columns, atol=1e-4)


@given(LOGITS, HELD_OUT)
@settings(max_examples=50, deadline=None)
def test_rows_sum_to_one_and_gradients_are_finite_for_any_logits(logits, held_out):
    q = sinkhorn(logits, held_out)
    np.testing.assert_allclose(q.sum(axis=1), np.ones(9), atol=1e-6)
    assert np.all(q >= 0)
    assert np.all(np.isfinite(gradient(logits, held_out)))


@jax.jit
@jax.grad
def _gradient(logits, held_out):
    q = assignments.SINKHORN.matrix({"logits": logits}, held_out, GRID)
    observed = jnp.arange(9) != held_out
    return jnp.sum(jnp.where(observed[:, None], jnp.sin(jnp.arange(81.0)).reshape(9, 9) * q, 0))


def gradient(logits, held_out):
    """Of a sum over the observed rows, each entry with its own weight."""
    return np.asarray(_gradient(jnp.asarray(logits, jnp.float32), jnp.int32(held_out)))


@pytest.mark.parametrize("held_out", [-1, 0, 5])
@pytest.mark.parametrize(("sd", "error"), [(assignments.LEARNED_INIT_SD, 1e-6), (0.5, 1e-3)])
def test_columns_sum_to_one_with_the_slack_row(sd, error, held_out):
    """Within rounding at the start of training; the further apart the logits, the less fifteen iterations reach."""
    columns = sinkhorn(random_logits(3, sd=sd), held_out).sum(axis=0)
    np.testing.assert_allclose(columns, np.ones(9), atol=error)


def test_the_held_out_labels_own_parameters_are_never_read():
    """They move nothing and get no gradient: the held-out row acts on the others as slack only."""
    logits = random_logits(0)
    changed = logits.copy()
    changed[4] = 7 * random_logits(1)[4]
    np.testing.assert_array_equal(sinkhorn(logits, 4), sinkhorn(changed, 4))
    assert np.all(gradient(logits, 4)[4] == 0)
    assert np.all(np.any(np.delete(gradient(logits, 4), 4, axis=0) != 0, axis=1))
    assert np.abs(sinkhorn(logits, -1) - sinkhorn(changed, -1)).max() > 0.1  # with all cells observed they count


def test_slack_costs_no_generality():
    """Whatever the held-out row might be, subtracting it from every row makes it 0 and leaves Q as it is."""
    logits, row = random_logits(0), random_logits(1)[4]
    with_row = logits.copy()
    with_row[4] = row
    np.testing.assert_allclose(sinkhorn(with_row), sinkhorn(with_row - row, 4), atol=1e-4)


@given(st.permutations(range(9)), st.permutations(range(9)), HELD_OUT, st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_renumbering_labels_and_cells_renumbers_rows_and_columns(labels, cells, held_out, seed):
    logits = random_logits(seed)
    renumbered = sinkhorn(logits[labels][:, cells], labels.index(held_out) if held_out >= 0 else -1)
    np.testing.assert_allclose(renumbered, sinkhorn(logits, held_out)[labels][:, cells], atol=1e-6)


def contested_logits(held_out):
    """Logits whose rows cannot all have what they want, while the best permutation leads the next by at least 0.6."""
    stream = np.random.default_rng(held_out)
    permutations = np.array(list(itertools.permutations(range(6))))
    while True:
        logits = stream.normal(size=(6, 6))
        logits[held_out] = 0
        total = logits[np.arange(6), permutations].sum(axis=1)
        second, first = np.sort(total)[-2:]
        wanted = np.delete(np.argmax(logits, axis=1), held_out)
        if first - second > 0.6 and len(set(wanted.tolist())) < 5:
            return logits, permutations[np.argmax(total)]


@pytest.mark.parametrize("held_out", range(6))
def test_the_limit_of_low_temperature_is_the_hungarian_assignment(held_out, monkeypatch):
    """A rival that moves k labels and loses by m keeps about exp(-m / kT) of their rows: at most e^-10 for T = 0.01."""
    monkeypatch.setattr(assignments, "SINKHORN_TEMPERATURE", 0.01)
    monkeypatch.setattr(assignments, "SINKHORN_ITERATIONS", 5000)
    logits, best = contested_logits(held_out)
    observed = np.delete(np.arange(6), held_out)
    _, hungarian = linear_sum_assignment(logits[observed], maximize=True)
    np.testing.assert_array_equal(hungarian, best[observed])
    q = assignments.SINKHORN.matrix({"logits": jnp.asarray(logits, jnp.float32)}, jnp.int32(held_out), WIDE)
    np.testing.assert_allclose(q, np.eye(6)[best], atol=1e-2)
