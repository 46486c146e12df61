from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax.fitting import footprint, schedule
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.grid import Grid

GRID = Grid(("a", "b", "c"), ("x", "y", "z"))
FITS = leave_one_cell_out(GRID, Protocol())  # 10 seeds x 45 fits


@pytest.mark.parametrize(
    ("at_once", "shape"),
    [(1, (1, 1)), (44, (1, 44)), (45, (1, 45)), (89, (1, 45)), (90, (2, 45)), (450, (10, 45)), (10_000, (10, 45))],
)
def test_a_group_is_whole_seeds_or_a_part_of_one(at_once, shape):
    assert schedule.shape_of(FITS, at_once) == shape


@given(
    seeds=st.integers(1, 5),
    restarts=st.integers(1, 3),
    at_once=st.integers(1, 200),
    mesh=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_every_fit_is_trained_once_and_groups_have_one_shape_that_the_mesh_divides(seeds, restarts, at_once, mesh):
    fits = leave_one_cell_out(GRID, Protocol(seeds=seeds, restarts=restarts))
    groups = schedule.groups(fits, schedule.shape_of(fits, at_once), mesh)
    trained = np.concatenate([rows.row[rows.real] for rows in groups])
    assert sorted(trained.tolist()) == list(range(len(fits.seed)))
    assert len({rows.row.shape for rows in groups}) == 1
    for rows in groups:
        assert (np.array(rows.row.shape) % mesh == 0).all()
        assert (fits.seed[rows.row] == fits.seed[rows.row[:, :1]]).all(), "a line is of one seed"


def test_fits_at_once_are_halved_until_they_fit():
    asked = []

    def needed(count: int) -> int:
        asked.append(count)
        return 100 + count

    assert schedule.fits_at_once(FITS, needed, limit=200) == 45
    assert schedule.fits_at_once(FITS, needed, limit=144) == 22
    assert schedule.fits_at_once(FITS, needed, limit=10) == 1
    assert asked == [45, 45, 22, 45, 22, 11, 5, 2]


def test_bytes_needed_count_arguments_results_and_temporaries():
    n = 1 << 20
    compiled = jax.jit(lambda x: jnp.cumsum(jnp.sort(x)) + 1).lower(jax.ShapeDtypeStruct((n,), jnp.float32)).compile()
    assert 2 * 4 * n <= footprint.bytes_needed(compiled) <= 10 * 4 * n


class Device(NamedTuple):
    """All that a schedule asks of a device."""

    platform: str


@pytest.mark.parametrize(("platform", "n_devices", "groups", "wanted", "lanes"), [
    ("cpu", 1, 10, None, 6),
    ("cpu", 1, 3, None, 3),
    ("cpu", 1, 10, 2, 2),
    ("cpu", 1, 10, 8, 8),
    ("cpu", 8, 10, 2, 1),
    ("gpu", 1, 10, None, 1),
    ("gpu", 1, 10, 2, 1),
])  # fmt: skip
def test_groups_on_a_cpu_get_a_lane_per_core(monkeypatch, platform, n_devices, groups, wanted, lanes):
    monkeypatch.setattr(jax, "devices", lambda: [Device(platform)] * n_devices)
    monkeypatch.setattr(schedule.devices, "threads", lambda: 6)
    assert schedule.lanes(groups, wanted) == lanes


@pytest.mark.parametrize(("needed", "lanes"), [(200, 6), (280, 5), (1_000, 1), (10_000, 1), (100, 6)])
def test_lanes_share_the_table_and_no_more(needed, lanes):
    """1,000 bytes, of which the table takes 100 once."""
    assert schedule.lanes_in_memory(6, needed, shared=100, limit=1_000) == lanes
