"""Metrics against matrices worked out by hand, and one new row of the table in everything that is made from it."""

import csv
import re

import jsonschema
import numpy as np
import pytest

from soopf_jax import leaderboard
from soopf_jax.experiments import results, two_edits
from soopf_jax.fitting.program import FitStats
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.report import details, figures, page, panels, summary
from soopf_jax.scoring import align, metrics, score
from soopf_jax.scoring.metric_row import FoldScores, one_number, two_edit_score
from tests.report_result import GRID, dealt_result, dealt_two_edits
from tests.result_folders import save_run

# -------------------------------------------------------------------------------------------- values by hand

FOLDS = FoldScores(
    inj=np.array([[0.2, 0.6], [0.4, 0.8]]),
    non_injective=np.array([[0.5, 0.6], [0.5, 0.8]]),
    recovery=np.array([[1.0, 0.5], [1.0, 1.0]]),
    distinct_support=np.array([[1.0, 0.0], [1.0, 0.0]]),
    validation=np.array([[0.9, 0.8], [0.7, 0.6]]),
    cell_names=("a/x", "a/y"),
    inj_by_alignment={"raw": np.array([[0.2, 0.4], [0.2, 0.4]])},
)


def values(folds):
    return {row.key: row.compute(folds) for row in metrics.METRICS[metrics.HELD_OUT]}


def test_every_metric_of_two_seeds_and_two_cells_by_hand():
    found = values(FOLDS)
    inj, many = found.pop("inj"), found.pop("non_injective")
    assert [inj["mean"], inj["sd"], *inj["per_seed"]] == pytest.approx([0.5, 0.1, 0.4, 0.6])
    assert inj["per_cell"] == pytest.approx({"a/x": 0.3, "a/y": 0.7})
    assert many["mean"] == pytest.approx(0.6)
    assert found.pop("collapse") == {"0.4": 0.25, "0.5": 0.5, "0.6": 0.5}, "strictly below"
    assert found.pop("inj_by_alignment")["raw"]["mean"] == pytest.approx(0.3)
    assert found == pytest.approx(
        {
            "laundering_gap": 0.1,
            "min_cell": 0.3,
            "recovery": 0.875,
            "exact_recovery": 0.75,
            "distinct_support_rate": 0.5,
            "validation": 0.75,
        }
    )


def test_a_fold_without_a_score_leaves_every_metric_of_it_undefined():
    inj = FOLDS.inj.copy()
    inj[0, 0] = np.nan
    found = values(FOLDS._replace(inj=inj, recovery=np.full((2, 2), np.nan)))
    assert found["inj"]["mean"] is found["laundering_gap"] is found["min_cell"] is found["recovery"] is None
    assert found["exact_recovery"] is None
    assert set(found["collapse"].values()) == {None}
    assert found["non_injective"]["mean"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("config", "experiment"),
    [({}, "one"), ({"edits": "one"}, "one"), ({"edits": "two"}, "two"), ({"edits": [1]}, "one")],
)
def test_the_configuration_names_the_experiment(config, experiment):
    assert metrics.experiment_of(config) == experiment


# ----------------------------------------------------------------------------------- one more row of the table

MEANING = "the median INJ of a held-out cell"


@pytest.fixture
def median(monkeypatch):
    """A metric that no other file knows."""
    row = one_number("median_cell", "median", MEANING, lambda folds: float(np.median(folds.inj.mean(axis=0))))
    monkeypatch.setitem(metrics.METRICS, metrics.HELD_OUT, (*metrics.METRICS[metrics.HELD_OUT], row))


def undrawn(result):
    """The page with nothing in the place of its figures."""
    found = figures.plots_of(result)
    return page.report(result, found, {f"figures/{name}.svg": b"" for name in found})


@pytest.mark.usefixtures("median")
def test_a_new_metric_is_scored_and_valid():
    fits = leave_one_cell_out(GRID, Protocol(seeds=2, restarts=1, steps=1))
    n = len(fits.seed)
    # Held-out cell c is read rightly in c of 10 pairs: the median over nine cells is .4.
    counts = np.zeros((n, 9), np.int32)
    counts[np.arange(n), fits.held_out] = fits.held_out
    counts[np.arange(n), (fits.held_out + 1) % 9] = 10 - fits.held_out
    axis, grid = np.tile(np.eye(3), (n, 1, 1)), np.tile(np.eye(9), (n, 1, 1))
    stats = FitStats(np.ones(n), axis, axis, grid, counts, np.zeros(n, bool))
    arm = score.score_arm(fits, stats, score.score_fits(fits, stats, GRID), GRID)
    assert arm["median_cell"] == pytest.approx(0.4)
    document = dealt_result(loss=False).document
    document["arms"][0] |= arm
    jsonschema.validate(document, results.schema())
    document["arms"][0]["median_cell"] = 1.5
    with pytest.raises(jsonschema.ValidationError, match="greater than the maximum"):
        jsonschema.validate(document, results.schema())


def test_a_metric_that_is_in_no_row_is_not_valid():
    document = dealt_result(loss=False).document
    document["arms"][0]["median_cell"] = 0.4
    with pytest.raises(jsonschema.ValidationError, match="median_cell"):
        jsonschema.validate(document, results.schema())


@pytest.mark.usefixtures("median")
def test_a_new_metric_is_on_the_terminal_and_on_the_page():
    result = dealt_result(loss=False)
    result.document["arms"][0]["median_cell"] = 0.40625
    header, new, old = summary.text(result.document).splitlines()[1:4]
    assert (header.split()[-1], new.split()[-1], old.split()[-1]) == ("median", "0.406", "-")
    assert len(header) == len(new) == len(old)
    html = undrawn(result)
    assert f"<dt>median</dt><dd>{MEANING}</dd>" in html
    assert re.search(r'<th scope="col">median</th>.*<td>0.406</td>', html)


@pytest.mark.usefixtures("median")
def test_a_new_metric_is_in_the_leaderboard_and_its_csv(tmp_path, capsys):
    accuracies = np.full((3, 9), 0.5), np.full((3, 9), 0.6)
    for name in ("a", "b"):
        save_run(tmp_path / name, {"learned": accuracies})
    newer = results.load(tmp_path / "b")
    newer.document["arms"][0]["median_cell"] = 0.40625
    results.save(newer, tmp_path / "b", {}, replace=True)
    assert leaderboard.main([str(tmp_path), "--csv", str(tmp_path / "l.csv")]) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    headers = re.split("  +", header)
    assert headers[headers.index("median") :][:2] == ["median", "seeds"], "behind the other metrics"
    assert ["0.406" in row for row in rows] == [False, True]
    with (tmp_path / "l.csv").open() as file:
        assert [row["median_cell"] for row in csv.DictReader(file)] == ["", "0.40625"]


def test_a_new_score_of_two_edits_is_read_shown_and_valid(monkeypatch):
    older = dealt_two_edits()
    meaning = "share whose first cell is right"
    row = two_edit_score("first_cell", "first cell", meaning, lambda read: read.top[:, 0] == read.edited[:, 0])
    monkeypatch.setitem(metrics.METRICS, metrics.TWO_EDITS, (*metrics.METRICS[metrics.TWO_EDITS], row))
    slots = align.SlotMap(np.arange(3), np.arange(3))
    edited = GRID.combinations(2).index((0, 4))
    energy = np.zeros((2, 9))
    energy[0, [0, 8]], energy[1, [4, 8]] = 0.5, 0.5
    hits = two_edits.score_pairs(energy, np.array([edited, edited]), slots, GRID)
    assert hits["first_cell"].tolist() == [True, False]
    result = dealt_two_edits()
    header, shown = summary.text(result.document).splitlines()[1:3]
    assert header.endswith("first cell  validation")
    assert f"{result.document['arms'][0]['two_edits']['first_cell']['mean']:.3f}" in shown
    assert details.combinations(result.document).header[-1] == "first cell"
    html = undrawn(result)
    assert f"<dt>first cell</dt><dd>{meaning}</dd>" in html
    assert figures.plots_of(result)["two_edit_scores"].draw() is not None
    assert details.combinations(older.document).header[-1] == "pair of top two", "older results lack it"
    assert summary.text(older.document).splitlines()[2].split()[-2] == "-"


# ------------------------------------------------------------------------------------- one more panel of the page


def test_a_new_panel_has_a_link_and_a_section_and_an_empty_one_has_neither(monkeypatch):
    monkeypatch.setitem(panels.PANELS, "Two words", lambda subject: f"<p>{subject.grid.n_cells} cells</p>")
    monkeypatch.setitem(panels.PANELS, "Nothing", lambda subject: "")
    html = undrawn(dealt_result(loss=False))
    assert '<a href="#two-words">Two words</a></nav>' in html
    assert '<section id="two-words"><h2>Two words</h2><p>9 cells</p></section>' in html
    assert "Nothing" not in html
