"""The census: its grids and its ranks by hand, and a planted grid that it must rank first."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from soopf_jax import census as command
from soopf_jax.errors import UserError
from soopf_jax.experiments import census
from soopf_jax.experiments.census import Extent, take_census
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.train import Session
from soopf_jax.grid import Grid
from soopf_jax.report import census as report
from soopf_jax.scoring import ranks
from tests.environment import optimised
from tests.planted import GRID, planted_table

SMALL = Grid.of(("left", "right"), ("hue", "blur"))


def test_all_grids_with_the_true_one_first():
    placements = census.grids_of(GRID, 0)
    assert placements.shape == (10_080, 9)
    assert placements[0].tolist() == list(range(9))


def test_a_sample_has_the_true_grid_its_36_neighbours_and_random_ones():
    placements = census.grids_of(GRID, 20)
    assert placements[0].tolist() == list(range(9))
    assert 1 + 36 < len(placements) <= 1 + 36 + 20
    in_place = census.labels_in_place(placements, 0, GRID)
    assert in_place[0] == 8
    assert set(in_place[1:37].tolist()) <= {6, 7}, "a swap moves two labels, or one and the held-out one"


def test_a_larger_grid_is_sampled():
    wide = Grid.of(("a", "b", "c"), ("v", "w", "x", "y"))
    assert len(census.grids_of(wide, 0)) < 1 + 66 + census.SAMPLE + 1


def test_ranks_by_hand():
    assert ranks.rank_of_first(np.array([0.3, 0.1, 0.5, 0.2])) == 3
    assert ranks.rank_of_first(np.array([0.1, 0.1, 0.5])) == 1
    found = ranks.summarise([1, 1, 2, 4], n_grids=4)
    assert found["first"] == 0.5
    assert found["mean_reciprocal_rank"] == pytest.approx((1 + 1 + 1 / 2 + 1 / 4) / 4)
    assert found["chance_mean_reciprocal_rank"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found["median_rank"] == 1.5


def test_wilson_s_interval_is_scipy_s():
    for successes, n in ((10, 20), (0, 9), (9, 9)):
        expected = binomtest(successes, n).proportion_ci(method="wilson")
        assert ranks.wilson(successes, n) == pytest.approx([expected.low, expected.high], abs=1e-9)


def test_moved_labels_by_hand():
    """Columns exchanged everywhere is the same grid; exchanged in one row alone, two labels have moved."""
    assert ranks.moved(np.array([1, 0, 3, 2]), SMALL) == ""
    assert ranks.moved(np.array([0, 1, 2, 4, 3, 5, 6, 7, 8]), GRID) == (
        "wall/hue -> wall/invert, wall/invert -> wall/hue"
    )


PROTOCOL = Protocol(seeds=1, restarts=1, steps=100)
EXTENT = Extent(sample=3, held_out=(2, 4))
"""The true grid, its 36 neighbours and three more, in two folds."""


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("census")


@pytest.fixture(scope="module")
def planted(work) -> census.Census:
    """A grid that factors perfectly."""
    with optimised():
        return take_census(planted_table(10), PROTOCOL, EXTENT, session=Session(work))


def test_a_planted_grid_ranks_first_in_every_fold(planted):
    assert [fold["rank"]["loss"] for fold in planted.document["folds"]] == [1, 1]
    assert planted.document["summary"]["loss"]["first"] == 1.0
    assert report.verdict(planted.document).startswith("identifiable")
    assert planted.columns["loss"].shape == (1, 2, planted.document["grids"])
    assert planted.document["provenance"]["fit_steps"] == 2 * planted.document["grids"] * PROTOCOL.steps


def test_the_page_shows_the_ranks(planted):
    json.dumps(planted.document, allow_nan=False)
    page = report.files(planted)["report.html"].decode()
    assert "identifiable: the true grid has the least training loss in all 2 folds" in page
    assert "0 wall/invert" in page


def test_finished_groups_are_not_trained_again(planted, work, monkeypatch):
    monkeypatch.setattr("soopf_jax.fitting.train.GroupOfFits.train", lambda *_: pytest.fail("trained again"))
    again = take_census(planted_table(10), PROTOCOL, EXTENT, session=Session(work))
    np.testing.assert_array_equal(again.columns["loss"], planted.columns["loss"])


@pytest.mark.usefixtures("optimised")
def test_two_operations_with_equal_effect_are_not_identifiable():
    """hue and invert have the same pairs, so a swap of two of their labels costs nothing but chance.

    In a fold that holds out a pattern, four grids fit equally well: hue and invert may be exchanged in each of the
    supports, up to an exchange in all of them. The true one is the best in all three folds with a chance of 1 in 64.
    """
    table = planted_table(10)
    partner = np.where(table.cell % 3 == 1, np.arange(90) - 10, np.arange(90))
    twins = table._replace(source=table.source[partner], delta=table.delta[partner])
    found = take_census(twins, PROTOCOL, Extent(sample=3, held_out=(2, 5, 8)))
    assert found.document["summary"]["loss"]["first"] < 1.0
    assert report.verdict(found.document).startswith("unidentifiable: a wrong grid fits better")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sample", "-1"), "must not be negative"),
        (("--steps", "0"), "steps must be at least 1"),
        (("--encoder", "pixel"), "pixels"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert command.main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_cell_that_does_not_exist():
    with pytest.raises(UserError, match="floor/hue"):
        command.cells_of(["floor/hues"], GRID.cell_names)
