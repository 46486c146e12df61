"""The census: its grids and its ranks by hand, and a planted grid that it must rank first."""

import itertools
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from soopf_jax import census as command
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
    in_place = ranks.labels_in_place(placements, 0, GRID)
    assert in_place[0] == 8
    assert set(in_place[1:37].tolist()) <= {6, 7}, "a swap moves two labels, or one and the held-out one"


def test_a_larger_grid_is_sampled():
    wide = Grid.of(("a", "b", "c"), ("v", "w", "x", "y"))
    assert len(census.grids_of(wide, 0)) < 1 + 66 + census.SAMPLE + 1


def test_a_sample_that_is_as_large_as_all_grids_is_all_of_them():
    assert len(census.grids_of(SMALL, 6)) == 6


def test_ranks_by_hand():
    assert ranks.rank_of_first(np.array([0.3, 0.1, 0.5, 0.2])) == 3
    assert ranks.rank_of_first(np.array([0.1, 0.1, 0.5])) == 1
    found = ranks.summarise([1, 1, 2, 4], n_grids=4)
    assert found["first"] == 0.5
    assert found["mean_reciprocal_rank"] == pytest.approx((1 + 1 + 1 / 2 + 1 / 4) / 4)
    assert found["chance_mean_reciprocal_rank"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found["median_rank"] == 1.5
    assert found["mean_reciprocal_rank_ci95"] is None, "four folds are too few for a bootstrap"
    low, high = ranks.summarise([1, 1, 2, 4, 4], n_grids=4)["mean_reciprocal_rank_ci95"]
    assert 1 / 4 <= low < (1 + 1 + 1 / 2 + 1 / 4 + 1 / 4) / 5 < high <= 1


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


def test_moved_labels_against_all_permutations():
    grid = Grid.of("abc", "wxyz")
    stream = np.random.default_rng(0)
    for _ in range(5):
        placement = stream.permutation(12)
        support, operation = grid.axes(placement)
        least = min(
            np.sum(np.array(rows)[support] * 4 + np.array(columns)[operation] != np.arange(12))
            for rows in itertools.permutations(range(3))
            for columns in itertools.permutations(range(4))
        )
        found = ranks.moved(placement, grid)
        assert found is not None
        assert len(found.split(", ")) == least


def test_a_grid_that_is_too_large_to_enumerate_has_ranks_and_a_page():
    wide = Grid.of("abcdefgh", "stuvwxyz")
    placements = census.grids_of(wide, 1)[:3]
    columns = {
        "placement": placements,
        "in_place": ranks.labels_in_place(placements, 0, wide)[None],
        "loss": np.array([[[0.2, 0.1, 0.3]]]),
        "validation": np.array([[[0.5, 0.5, 0.6]]]),
        "inj": np.zeros((1, 1, 3)),
    }
    document = {"config": {}, "grids": 3, "all_grids": 10**9, "provenance": {"fit_steps": 1}}
    document |= ranks.record(columns, [0], wide)
    assert document["folds"][0]["rank"] == {"loss": 2, "validation": 2}
    assert [found["in_place"] for found in document["folds"][0]["winners"]] == [None, None]
    assert set(report.files(census.Census(document, columns))) == {"report.html"}


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


@pytest.fixture
def with_failed(planted, work, monkeypatch):
    """Let fits fail, with a validation accuracy that would win if it counted. The true grids are 0 and n."""
    original = census.train_arm

    def take(rows):
        def train_arm(*job):
            columns = {name: column.copy() for name, column in original(*job).items()}
            columns["failed"][rows], columns["validation"][rows] = True, 2.0
            columns["loss"][rows] = np.nan
            return columns

        monkeypatch.setattr(census, "train_arm", train_arm)
        return take_census(planted_table(10), PROTOCOL, EXTENT, session=Session(work))

    return take


def test_a_fold_whose_true_grid_failed_has_no_rank(with_failed, planted):
    n_grids = planted.document["grids"]
    found = with_failed([0, 1, n_grids + 2])
    first, second = found.document["folds"]
    assert first["rank"] == {"loss": None, "validation": None}
    assert second["rank"] == {"loss": 1, "validation": 1}
    assert [fold["failed_grids"] for fold in (first, second)] == [2, 1]
    assert all(best["loss"] is not None for best in first["winners"])
    summary = found.document["summary"]["loss"]
    assert (summary["folds"], summary["left_out"], summary["first"]) == (1, 1, 1.0)
    text = report.text(json.loads(json.dumps(found.document, allow_nan=False)))
    assert "3 fits failed with a non-finite loss or gradient" in text
    assert text.endswith("in all 1 folds; 1 fold left out, where the true grid's fit failed")
    assert "3 fits failed" in report.files(found)["report.html"].decode()


def test_a_census_whose_fits_all_failed_has_no_answer(with_failed):
    found = with_failed(slice(None))
    text = report.text(json.loads(json.dumps(found.document, allow_nan=False)))
    assert text.endswith("no answer; 2 folds left out, where the true grid's fit failed")
    assert "no answer" in report.files(found)["report.html"].decode()


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
        (("--readout", "mlp"), "readout mlp is a probe"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert command.main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_cell_that_does_not_exist_is_told_before_features_are_made(monkeypatch, capsys):
    monkeypatch.setattr("soopf_jax.experiments.inputs.table_of", lambda *_: pytest.fail("made features"))
    assert command.main(["--held-out", "floor/hues", "--pairs-per-cell", "5"]) == 2
    assert "did you mean 'floor/hue'?" in capsys.readouterr().err


def test_a_cell_that_is_named_twice_is_one_fold():
    assert command.cells_of(["wall/hue", "floor/hue", "wall/hue"], GRID.cell_names) == (3, 0)


def test_a_census_that_another_process_has_just_finished_is_shown(planted, tmp_path, monkeypatch, capsys):
    """The second process waits for the first one's lock, and then finds its result."""
    monkeypatch.setattr("soopf_jax.experiments.census.take_census", lambda *_: pytest.fail("trained again"))
    out = tmp_path / "census"

    @contextmanager
    def working_on(out, config, resume):
        out.mkdir()
        (out / command.DOCUMENT).write_text(json.dumps(planted.document | {"config": config}))
        yield tmp_path / "work", True

    monkeypatch.setattr("soopf_jax.report.run_folder.working_on", working_on)
    options = ("--pairs-per-cell", "5", "--cache-dir", str(tmp_path), "--out", str(out))
    assert command.main(options) == 0
    assert capsys.readouterr().out.startswith(f"already done: {out}\n")


def test_the_help_has_groups(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert shown.index("\ngrids\n") < shown.index("--held-out") < shown.index("\nprotocol\n") < shown.index("--seeds")
    assert "--tau-start" not in shown
