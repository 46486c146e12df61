import json
import math

import numpy as np
import pytest
from scipy import stats

from soopf_jax.fitting.protocol import Fits
from soopf_jax.fitting.stats import FitStats
from soopf_jax.scoring import metrics, score, statistics
from tests.planted import GRID

CELLS = GRID.cell_names


def fit_stats(n_fits, **changes):
    """Fits with a perfect identity alignment and every held-out pair in its own cell unless told otherwise."""
    values = {
        "validation": np.ones(n_fits, np.float32),
        "c_sup": np.tile(np.eye(3, dtype=np.float32), (n_fits, 1, 1)),
        "c_op": np.tile(np.eye(3, dtype=np.float32), (n_fits, 1, 1)),
        "q": np.tile(np.eye(9, dtype=np.float32), (n_fits, 1, 1)),
        "test_counts": np.zeros((n_fits, 9), np.int32),
        "failed": np.zeros(n_fits, bool),
    }
    return FitStats(**{**values, **changes})


def one_fold(n_restarts, held_out=4):
    zeros = np.zeros(n_restarts, np.int32)
    return Fits(zeros, zeros + held_out, np.arange(n_restarts, dtype=np.int32))


def counts(*rows):
    return np.array(rows, np.int32)


def test_the_restart_with_the_best_validation_is_selected_and_the_first_on_ties():
    stats_ = fit_stats(4, validation=np.array([0.5, 0.8, 0.8, 0.7], np.float32))
    assert score.select_restarts(one_fold(4), stats_).tolist() == [False, True, False, False]


def test_a_failed_restart_is_never_selected():
    stats_ = fit_stats(2, validation=np.array([1.0, 0.1], np.float32), failed=np.array([True, False]))
    assert score.select_restarts(one_fold(2), stats_).tolist() == [False, True]
    nothing = stats_._replace(failed=np.array([True, True]))
    assert not score.select_restarts(one_fold(2), nothing).any()


def test_selection_does_not_look_at_the_test_pairs():
    stats_ = fit_stats(3, validation=np.array([0.2, 0.9, 0.4], np.float32))
    other = stats_._replace(test_counts=np.full((3, 9), 5, np.int32), c_sup=stats_.c_sup[:, ::-1])
    assert np.array_equal(score.select_restarts(one_fold(3), stats_), score.select_restarts(one_fold(3), other))


def test_scores_of_one_fit_by_hand():
    """Held out: cell 4 = (1, 1). The operations of the fit are swapped: true operation 1 lives in slot 2."""
    c_op = np.array([[[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.6, 0.3]]], np.float32)
    row = np.zeros(9, np.int32)
    row[5], row[4] = 6, 2  # slot (1, 2): right after alignment; slot (1, 1): wrong
    scores = score.score_fits(one_fold(1), fit_stats(1, c_op=c_op, test_counts=row[None]), GRID)
    assert scores.inj[0] == scores.non_injective[0] == 0.75
    assert scores.recovery[0] == 1.0
    assert scores.distinct_support[0]


def test_inj_under_every_alignment_by_hand():
    """Held out: cell 4 = (1, 1). Only the hard matrix sends operation 1 to slot 2, where six of eight pairs are."""
    swapped = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.6, 0.3]])
    operations = np.stack([np.eye(3), np.eye(3), swapped])[None]
    row = counts([0, 0, 0, 0, 2, 6, 0, 0, 0])
    stats_ = fit_stats(1, test_counts=row)._replace(
        c_sup_by_alignment=np.tile(np.eye(3), (1, 3, 1, 1)), c_op_by_alignment=operations
    )
    found = score.score_fits(one_fold(1), stats_, GRID).inj_by_alignment
    assert {name: inj.tolist() for name, inj in found.items()} == {"raw": [0.25], "soft": [0.25], "hard": [0.75]}
    failed = score.score_fits(one_fold(1), stats_._replace(failed=np.array([True])), GRID).inj_by_alignment
    assert all(np.isnan(inj).all() for inj in failed.values())


def test_two_supports_in_one_slot_are_not_distinct():
    c_sup = np.array([[[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.0, 0.3, 0.7]]], np.float32)
    assert not score.score_fits(one_fold(1), fit_stats(1, c_sup=c_sup), GRID).distinct_support[0]


def test_spread_equals_scipy_and_the_paper_s_population_sd():
    """The interval is scipy's t interval: in the middle of [0, 1] the score interval is inside it."""
    matrix = np.random.default_rng(0).random((10, 9))
    matrix += 0.5 - matrix.mean()
    found = statistics.spread(matrix, CELLS)
    seeds = matrix.mean(axis=1)
    low, high = stats.t.interval(0.95, 9, loc=seeds.mean(), scale=stats.sem(seeds))
    assert found["mean"] == pytest.approx(seeds.mean())
    assert found["sd"] == pytest.approx(np.sqrt(np.mean((seeds - seeds.mean()) ** 2)))
    assert found["ci95"] == pytest.approx([low, high])
    assert found["ci95_method"] == "t and score"
    assert list(found["per_cell"]) == list(CELLS)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_have_no_interval_and_no_p(seeds):
    matrix = np.random.default_rng(0).random((seeds, 9))
    found = statistics.spread(matrix, CELLS, 3150)
    assert (found["ci95"], found["ci95_method"]) == (None, None)
    assert score.paired_test(matrix[:, 0].tolist(), matrix[:, 1].tolist())["p"] is None


def test_collapse_is_strictly_below_the_threshold():
    matrix = np.array([[0.5, 0.499, 0.6, 0.0]])
    assert metrics.collapse(matrix, 0.5) == 0.5
    assert metrics.collapse(matrix, 0.6) == 0.75


def test_a_fold_without_a_restart_makes_its_seed_undefined_never_an_average_over_the_rest():
    fits = Fits(*(np.array(v, np.int32) for v in ([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0])))
    test_counts = np.eye(9, dtype=np.int32)[[0, 1, 0, 1]]
    stats_ = fit_stats(4, test_counts=test_counts, failed=np.array([False, True, False, False]))
    arm = score.score_arm(fits, stats_, score.score_fits(fits, stats_, GRID), GRID)
    assert arm["inj"]["per_seed"] == [None, 1.0]
    assert arm["inj"]["mean"] is None
    assert arm["inj"]["per_cell"]["floor/invert"] is None
    assert arm["collapse"]["0.5"] is None
    assert arm["failed_fits"] == 1
    json.dumps(arm, allow_nan=False)


def test_paired_test_equals_scipy_and_is_null_where_scipy_says_nan():
    a, b = np.random.default_rng(1).random((2, 10)).tolist()
    found = score.paired_test(a, b)
    expected = stats.ttest_rel(a, b)
    assert (found["t"], found["p"]) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert found["mean_diff"] == pytest.approx(np.mean(a) - np.mean(b))
    assert score.paired_test([0.5] * 3, [0.5] * 3) == {"n": 3, "mean_diff": 0.0, "t": None, "p": None}
    assert score.paired_test([0.5, None], [0.5, 0.4])["mean_diff"] is None
    assert score.paired_test([0.5], [0.4])["p"] is None


def test_the_paper_s_p_values_follow_from_its_t_with_nine_degrees_of_freedom():
    """t = 4.01 gives p = .0031, as printed; and our test is two-sided."""
    difference = np.random.default_rng(2).normal(size=10)
    difference = (difference - difference.mean()) / difference.std(ddof=1) + 4.01 / math.sqrt(10)
    found = score.paired_test(difference.tolist(), [0.0] * 10)
    assert found["t"] == pytest.approx(4.01)
    assert round(found["p"], 4) == 0.0031


def test_holm_worked_out_by_hand():
    """Sorted .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04, then made monotone."""
    assert score.holm([0.03, 0.01, None, 0.04, 0.02]) == pytest.approx([0.06, 0.04, None, 0.06, 0.06])
    assert score.holm([0.9, 0.8]) == [1.0, 1.0]


def test_all_pairs_of_arms_and_both_alignments_are_tested():
    def arm(seed):
        inj, raw = np.random.default_rng(seed).random((2, 5)).tolist()
        return {"inj": {"per_seed": inj}, "non_injective": {"per_seed": raw}}

    tests = score.all_tests([("x", arm(0)), ("y", arm(1)), ("z", arm(2))])
    assert len(tests) == 3 + 3 + 3
    assert all(t["p_holm"] >= t["p"] for t in tests)


@pytest.mark.parametrize("vary", [0.0, 1e-15, 1e-13, 1e-10, 1e-3])
def test_a_run_and_a_comparison_agree_on_which_differences_vary(vary):
    a, b = np.array([0.5, 0.5 + vary, 0.5]), np.array([0.4, 0.4, 0.4])
    in_run, in_comparison = score.paired_test(a.tolist(), b.tolist()), statistics.paired_t(a - b)
    assert (in_run["t"], in_run["p"]) == (in_comparison["t"], in_comparison["p"])
    assert (in_run["p"] is None) == (vary < 1e-12)
