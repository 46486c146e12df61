import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax.errors import UserError
from soopf_jax.fitting import protocol
from soopf_jax.fitting.protocol import OPTIMISATION, UNUSED, VALIDATION, Protocol
from tests.planted import GRID

CELL = np.repeat(np.arange(9), 50).astype(np.int32)


@pytest.mark.parametrize(("n", "sizes"), [(350, (224, 56, 70)), (300, (192, 48, 60)), (7, (4, 1, 2)), (5, (3, 1, 1))])
def test_split_sizes_of_the_paper_and_the_design(n, sizes):
    assert protocol.split_sizes(n) == sizes


@given(st.integers(5, 400), st.integers(0, 5))
def test_every_cell_is_split_into_the_stated_sizes(n, seed):
    cell = np.random.default_rng(n).permutation(np.repeat(np.arange(9), n)).astype(np.int32)
    role = protocol.roles(cell, GRID, seed)
    expected = protocol.split_sizes(n)
    for c in range(9):
        counts = [int(np.sum(role[cell == c] == kind)) for kind in (OPTIMISATION, VALIDATION, UNUSED)]
        assert tuple(counts) == expected


def test_seeds_give_different_splits_and_the_same_seed_the_same():
    first, again, second = (protocol.roles(CELL, GRID, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_a_minibatch_holds_eight_distinct_optimisation_pairs_of_every_cell():
    role = protocol.roles(CELL, GRID, 0)
    batches = protocol.minibatches(CELL, role, GRID, 0, steps=30, batch_size=64)
    assert batches.shape == (30, 72)
    assert np.all(role[batches] == OPTIMISATION)
    assert np.array_equal(CELL[batches], np.tile(np.repeat(np.arange(9), 8), (30, 1)))
    assert all(len(set(row)) == 72 for row in batches.tolist())


def test_minibatches_are_uniform_over_the_optimisation_pairs():
    """Each of a cell's 32 pairs is drawn with probability 8/32 per step; 4 standard deviations over 4,000 steps."""
    role = protocol.roles(CELL, GRID, 3)
    batches = protocol.minibatches(CELL, role, GRID, 3, steps=4000, batch_size=64)
    rate = np.bincount(batches.ravel(), minlength=len(CELL))[role == OPTIMISATION] / 4000
    assert np.abs(rate - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 4000)


def test_a_shorter_run_gets_a_prefix_of_the_minibatches():
    role = protocol.roles(CELL, GRID, 0)
    long, short = (protocol.minibatches(CELL, role, GRID, 0, steps, 64) for steps in (20, 7))
    assert np.array_equal(long[:7], short)


def test_small_cells_are_drawn_with_replacement_and_batch_size_zero_takes_all():
    cell = np.repeat(np.arange(9), 5).astype(np.int32)
    role = protocol.roles(cell, GRID, 0)
    assert protocol.minibatches(cell, role, GRID, 0, 3, 64).shape == (3, 72)
    everything = protocol.minibatches(cell, role, GRID, 0, 3, 0)
    assert sorted(everything[0]) == np.flatnonzero(role == OPTIMISATION).tolist()


def test_effective_batch_size():
    assert protocol.effective_batch_size(CELL, GRID, 64) == 64
    assert protocol.effective_batch_size(CELL, GRID, 1) == 8
    assert protocol.effective_batch_size(CELL, GRID, 0) == 32 * 8


def test_flat_labels_are_shuffled_unless_the_assignment_sees_axes_or_order():
    assert protocol.flat_labels(GRID, 0, ("axes",)).tolist() == list(range(9))
    assert protocol.flat_labels(GRID, 0, ("order",)).tolist() == list(range(9))
    shuffled = [tuple(protocol.flat_labels(GRID, seed, ()).tolist()) for seed in range(5)]
    assert all(sorted(labels) == list(range(9)) for labels in shuffled)
    assert len({*shuffled, tuple(range(9))}) == 6


def test_leave_one_cell_out_lists_every_fit_once():
    fits = protocol.leave_one_cell_out(GRID, Protocol(seeds=2, restarts=3))
    assert len({*zip(*(column.tolist() for column in fits), strict=True)}) == 2 * 9 * 3 == len(fits.seed)
    assert np.all(np.diff(fits.seed) >= 0)


def test_tau_runs_from_two_to_a_half():
    p = Protocol(steps=4)
    assert [p.tau(step) for step in range(4)] == [2.0, 1.5, 1.0, 0.5]
    assert Protocol(steps=1).tau(0) == 2.0


@pytest.mark.parametrize(
    ("size", "label"),
    [((10, 5, 2000), "full"), ((3, 2, 500), "quick"), ((10, 5, 1999), "custom"), ((3, 5, 2000), "custom")],
)
def test_protocols_are_labelled_by_their_size(size, label):
    assert Protocol(*size).label == label


@pytest.mark.parametrize(
    "wrong",
    [
        {"seeds": 0},
        {"steps": 0},
        {"restarts": -1},
        {"batch_size": -1},
        {"learning_rate": 0.0},
        {"tau_end": float("nan")},
        {"steps": True},
    ],
)
def test_impossible_protocols_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong)).split("_")[0]):
        Protocol(**wrong)


def test_cells_with_fewer_than_five_pairs_are_refused_by_name():
    with pytest.raises(UserError, match="object/pattern has 4 pairs"):
        protocol.check_cells(CELL[:-46], GRID)
