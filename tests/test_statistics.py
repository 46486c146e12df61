"""Statistics against scipy, brute force, simulation and the paper's own arithmetic."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from soopf_jax.scoring import statistics


def differences_with_t(t, n=10):
    """Some n differences whose one-sample t statistic is t."""
    values = np.random.default_rng(0).normal(size=n)
    return (values - values.mean()) / values.std(ddof=1) + t / math.sqrt(n)


# ------------------------------------------------------------------------------------------- intervals of a score

SCORES = st.lists(st.floats(0, 1), min_size=3, max_size=12).map(np.array)


def by_definition(scores, pairs):
    """The ends of the score interval and of the t interval together, from all multiples of 1e-5 in [0, 1]."""
    mu, n, mean = np.linspace(0, 1, 100_001), len(scores), scores.mean()
    phi = max(scores.var(ddof=1) / (mean * (1 - mean)), 1 / pairs)
    t = stats.t.ppf(0.975, n - 1)
    in_score = (mean - mu) ** 2 <= t**2 * phi * mu * (1 - mu) / n
    in_t = np.abs(mean - mu) <= t * math.sqrt(phi * mean * (1 - mean) / n)
    return mu[in_score | in_t][[0, -1]]


@pytest.mark.parametrize(
    "scores",
    [(0.51, 0.55, 0.62), (0.01, 0.02, 0.09, 0.03), (0.9, 0.99, 0.97, 1.0, 0.98), (0.1, 0.9, 0.5), (0.4, 0.4, 0.401)],
)
@pytest.mark.parametrize("pairs", [90, 3150])
def test_a_score_s_interval_holds_the_means_that_the_seeds_do_not_rule_out(scores, pairs):
    found = statistics.score_interval(np.array(scores), pairs)["ci95"]
    assert found == pytest.approx(by_definition(np.array(scores), pairs), abs=1.1e-5)


@settings(max_examples=200, deadline=None)
@given(SCORES, st.sampled_from([None, 9, 3150]))
def test_a_score_s_interval_stays_in_bounds_and_mirrors(scores, pairs):
    """It holds the mean and what is possible of the t interval, and that of 1 - score is its mirror image."""
    found = statistics.score_interval(scores, pairs)["ci95"]
    if found is None:
        assert pairs is None
        assert np.ptp(scores) < 1e-11
        return
    low, high = found
    half = stats.t.ppf(0.975, len(scores) - 1) * stats.sem(scores)
    assert 0 <= low <= max(0, scores.mean() - half) + 1e-9
    assert min(1, scores.mean() + half) - 1e-9 <= high <= 1
    assert low < high
    mirrored = statistics.score_interval(1 - scores, pairs)["ci95"]
    assert mirrored == pytest.approx([1 - high, 1 - low], abs=1e-7)


def test_seeds_that_coincide_have_the_error_of_counting_their_pairs():
    """All 0: the score interval ends at k / (1 + k), k = t^2 / (n pairs). With many seeds that is Wilson's interval."""
    found = statistics.score_interval(np.zeros(3), 3150)
    k = 4.302653**2 / (3 * 3150)
    assert found == {"ci95": [0, pytest.approx(k / (1 + k))], "ci95_method": "approximate counting error"}
    wilson = stats.binomtest(0, 20_000 * 7).proportion_ci(method="wilson")
    assert statistics.score_interval(np.zeros(20_000), 7)["ci95"] == pytest.approx([wilson.low, wilson.high], rel=1e-3)
    low, high = statistics.score_interval(np.full(5, 0.6), 350)["ci95"]
    assert high - low == pytest.approx(2 * 2.776445 * math.sqrt(0.6 * 0.4 / (5 * 350)), rel=0.01)


@pytest.mark.parametrize("scores", [np.full(5, 0.6), np.array([1.0, 1.0, 1.00000014])])
def test_seeds_that_coincide_have_no_interval_if_nothing_was_counted(scores):
    assert statistics.score_interval(scores) == {"ci95": None, "ci95_method": None}


@pytest.mark.parametrize(
    ("n", "pairs", "method", "shown"),
    [
        (10, 3150, "t and score", "["),
        (9, 3150, "approximate t and score", "~["),
        (10, 9, "approximate counting error", "~["),
    ],
)
def test_an_interval_says_how_it_was_made(n, pairs, method, shown):
    found = statistics.score_interval(0.5 + 0.05 * differences_with_t(0.0, n), pairs)
    assert found["ci95_method"] == method
    assert method in statistics.METHODS
    assert statistics.shown_interval(found).startswith(f"{shown}0.")


def test_an_interval_of_a_result_of_before_is_shown_as_it_is():
    assert statistics.shown_interval({"ci95": [0.25, 0.5]}) == "[0.250, 0.500]"
    assert statistics.shown_interval({"ci95": None, "ci95_method": None}) == "-"


def test_the_interval_of_a_difference_is_cut_where_no_difference_can_be():
    found = statistics.paired_t(np.array([0.2, 0.95, 0.9]))
    assert found["ci95"][1] == 1
    assert found["ci95_method"] == "approximate t"
    assert (found["ci95"][0] <= 0) == (found["p"] >= 0.05)


# ------------------------------------------------------------------------------------------------------- paired t


def test_the_paired_t_equals_scipy_s_with_its_interval():
    a, b = np.random.default_rng(1).random((2, 10))
    found, expected = statistics.paired_t(a - b), stats.ttest_rel(a, b)
    assert (found["t"], found["p"]) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert found["ci95"] == pytest.approx(list(expected.confidence_interval(0.95)))


def test_the_paired_t_of_three_differences_by_hand():
    """Differences .1 .2 .3: mean .2, SD .1, t = .2 / (.1 / sqrt 3) = 2 sqrt 3; with 2 df p = 1 - t / sqrt(2 + t^2)."""
    found = statistics.paired_t(np.array([0.1, 0.2, 0.3]))
    assert found["t"] == pytest.approx(2 * math.sqrt(3))
    assert found["p"] == pytest.approx(1 - math.sqrt(12 / 14))
    assert found["ci95"] == pytest.approx([0.2 - 4.302653 * 0.1 / math.sqrt(3), 0.2 + 4.302653 * 0.1 / math.sqrt(3)])


@pytest.mark.parametrize(("t", "p"), [(4.01, 0.0031), (3.33, 0.0088)])
def test_the_paper_s_p_values_follow_from_its_t_with_nine_degrees_of_freedom(t, p):
    """The second is printed as .0087, which t = 3.33 does not give."""
    assert round(statistics.paired_t(differences_with_t(t))["p"], 4) == p


@pytest.mark.parametrize(
    ("difference", "reason"),
    [
        (np.zeros((3, 2)), "equal scores in every seed and cell"),
        (np.full((3, 2), 0.1), "the same difference in every seed"),
        (np.array([[0.1, 0.3], [0.3, 0.1], [0.2, 0.2]]), "the same difference in every seed"),
        (np.array([[0.1, 0.2]]), "fewer than 3 seeds show too little of the variation between seeds"),
        (np.array([[0.1, 0.2], [0.2, 0.3]]), "fewer than 3 seeds show too little of the variation between seeds"),
        (np.array([[0.1, np.nan], [0.2, 0.3]]), "a fold has no restart that could be selected"),
        (np.array([[0.1, 0.2], [0.2, 0.3], [0.4, 0.3], [0.5, 0.1], [0.2, 0.1]]), None),
    ],
)
def test_what_is_undefined_is_none_and_has_a_reason(difference, reason):
    assert statistics.why_undefined(difference) == reason
    seeds = difference.mean(axis=1)
    assert (statistics.paired_t(seeds)["p"] is None) == (reason is not None)
    assert (statistics.paired_t(seeds)["ci95"] is None) == (reason is not None)
    assert (statistics.effect_size(seeds)["d_z"] is None) == (reason is not None)
    assert (statistics.detectable(seeds)["difference"] is None) == (reason is not None)


def test_three_and_four_seeds_have_a_t_test_but_no_bootstrap():
    difference = np.random.default_rng(0).normal(0.1, 0.1, size=(4, 9))
    for n in (3, 4):
        assert statistics.why_undefined(difference[:n]) == "no bootstrap with fewer than 5 seeds"
        assert statistics.paired_t(difference[:n].mean(axis=1))["p"] is not None
        assert statistics.paired_bootstrap(difference[:n])["p"] is None


def test_two_seeds_that_happen_to_be_equal_are_not_significant():
    """Their bootstrap had p = 0.0002, because it drew the same two values again and again."""
    difference = np.full((2, 9), 0.1) + np.linspace(-0.05, 0.05, 9)
    assert statistics.paired_bootstrap(difference) == {"p": None, "ci95": None, "ci95_method": None}
    assert statistics.paired_t(difference.mean(axis=1))["p"] is None


def test_differences_that_are_equal_up_to_rounding_do_not_vary():
    a, b = np.array([0.3, 0.4, 0.9]), np.array([0.2, 0.3, 0.8])
    assert np.ptp(a - b) > 0, "0.1 three times, but not to the last bit"
    assert statistics.paired_t(a - b)["p"] is None


# ------------------------------------------------------------------------------------------------------ bootstrap


def all_resamples(difference):
    """The mean of every equally likely resample of seeds and, within each drawn seed, of cells."""
    n_seeds, n_cells = difference.shape
    cells = list(itertools.product(range(n_cells), repeat=n_cells))
    return np.array(
        [
            np.mean([difference[seed, list(drawn)].mean() for seed, drawn in zip(seeds, choice, strict=True)])
            for seeds in itertools.product(range(n_seeds), repeat=n_seeds)
            for choice in itertools.product(cells, repeat=n_seeds)
        ]
    )


@pytest.mark.parametrize("difference", [[[0.1, 0.5], [-0.3, 0.2]], [[0.0, 1.0, -0.4], [0.3, 0.25, 0.8]]])
def test_the_bootstrap_draws_from_the_distribution_of_all_resamples(difference):
    difference = np.array(difference)
    exact, drawn = all_resamples(difference), statistics.bootstrap_means(difference, 40_000)
    at = np.unique(exact.round(9)) + 1e-6
    cdf = [np.mean(values[:, None] <= at, axis=0) for values in (exact, drawn)]
    # Kolmogorov: a gap of 0.0097 has p = 0.001 at 40,000 draws.
    assert np.abs(cdf[0] - cdf[1]).max() < 0.0097
    assert drawn.min() >= exact.min() - 1e-12
    assert drawn.max() <= exact.max() + 1e-12


def test_the_bootstrap_p_and_interval_are_those_of_all_resamples():
    difference = np.array([[0.1], [-0.3], [0.2], [0.25], [0.5]])
    exact = all_resamples(difference)
    p = 2 * min(np.mean(exact <= 1e-12), np.mean(exact >= -1e-12))
    found = statistics.paired_bootstrap(difference)
    assert found["p"] == pytest.approx(p, abs=4 * 2 * math.sqrt(p / 2 / statistics.DRAWS))
    low, high = found["ci95"]
    assert np.mean(exact < low - 1e-9) <= 0.025 + 0.007
    assert np.mean(exact <= low + 1e-9) >= 0.025 - 0.007
    assert np.mean(exact > high + 1e-9) <= 0.025 + 0.007
    assert np.mean(exact >= high - 1e-9) >= 0.025 - 0.007


def test_the_bootstrap_s_variance_is_that_of_seeds_plus_that_of_cells_within_them():
    """Var = var(seed means) / n + mean within-seed variance / (n C), with the variances of the resampled population."""
    difference = np.random.default_rng(2).normal(size=(10, 9)) + np.linspace(-1, 1, 10)[:, None]
    expected = difference.mean(axis=1).var() / 10 + difference.var(axis=1).mean() / 90
    assert statistics.bootstrap_means(difference).var() == pytest.approx(expected, rel=0.06)


def test_the_bootstrap_is_the_same_every_time_and_never_more_certain_than_its_draws():
    difference = np.random.default_rng(3).random((10, 9)) + 1.0
    assert np.array_equal(statistics.bootstrap_means(difference), statistics.bootstrap_means(difference))
    assert statistics.paired_bootstrap(difference)["p"] == 2 / 10_001


@pytest.mark.parametrize("difference", [np.zeros((5, 2)), np.full((5, 2), 0.1), np.array([[0.1, 0.2]])])
def test_the_bootstrap_is_undefined_where_nothing_varies_between_draws_of_seeds(difference):
    assert statistics.paired_bootstrap(difference) == {"p": None, "ci95": None, "ci95_method": None}


@settings(max_examples=25, deadline=None)
@given(st.integers(5, 8), st.integers(2, 5), st.integers(0, 10_000))
def test_swapping_the_arms_mirrors_every_result(n_seeds, n_cells, seed):
    difference = np.random.default_rng(seed).normal(size=(n_seeds, n_cells))
    for function, values in (
        (statistics.paired_t, difference.mean(axis=1)),
        (statistics.effect_size, difference.mean(axis=1)),
        (statistics.paired_bootstrap, difference),
    ):
        found, mirrored = function(values), function(-values)
        assert mirrored["ci95"] == pytest.approx([-found["ci95"][1], -found["ci95"][0]])
        assert mirrored.get("p") == pytest.approx(found.get("p"))


# ------------------------------------------------------------------------------------------- effect size and power


def noncentral_t_cdf(t, df, noncentrality):
    """E[Phi(t V - noncentrality)], V = sqrt(chi2_df / df), by numerical integration."""
    density = stats.chi(df, scale=1 / math.sqrt(df)).pdf
    return integrate.quad(lambda v: stats.norm.cdf(t * v - noncentrality) * density(v), 0, np.inf, limit=200)[0]


@pytest.mark.parametrize(("t", "n"), [(4.01, 10), (3.33, 10), (-4.71, 10), (0.0, 5), (2.5, 3), (11.0, 3)])
def test_the_ends_of_the_effect_size_s_interval_put_the_observed_t_in_the_tails(t, n):
    found = statistics.effect_size(differences_with_t(t, n))
    assert found["d_z"] == pytest.approx(t / math.sqrt(n))
    low, high = (end * math.sqrt(n) for end in found["ci95"])
    assert noncentral_t_cdf(t, n - 1, low) == pytest.approx(0.975, abs=1e-5)
    assert noncentral_t_cdf(t, n - 1, high) == pytest.approx(0.025, abs=1e-5)


@pytest.mark.parametrize("df", [1, 2, 9, 99])
def test_the_interval_exists_up_to_enormous_t_and_then_is_none(df):
    """There the noncentrality is t sqrt(chi2 / df), so its interval is that of chi2."""
    low, high = statistics.noncentrality_interval(5000.0, df)
    assert [low, high] == pytest.approx(5000 * np.sqrt(stats.chi2.ppf([0.025, 0.975], df) / df), rel=1e-3)
    assert statistics.noncentrality_interval(2e4, df) is None


@pytest.mark.parametrize(("d_z", "n"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_as_many_seeds_as_published_tables_say_are_needed_for_small_medium_and_large_effects(d_z, n):
    """Two-sided 5 %, power 80 %, matched pairs."""
    assert statistics.detectable_effect(n) <= d_z < statistics.detectable_effect(n - 1)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_detectable_effect_is_found_in_four_of_five_simulated_experiments(n):
    d_z = statistics.detectable_effect(n)
    simulated = np.random.default_rng(n).normal(d_z, 1.0, size=(40_000, n))
    found = np.mean(stats.ttest_1samp(simulated, 0.0, axis=1).pvalue < 0.05)
    assert found == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 40_000))


def test_without_an_effect_the_power_is_the_level():
    assert statistics.power(0.0, 10) == pytest.approx(0.05)


def test_the_detectable_difference_is_in_units_of_the_score():
    difference = 0.03 * differences_with_t(1.0)
    found = statistics.detectable(difference)
    assert found["difference"] == pytest.approx(0.03 * found["d_z"])
    assert statistics.detectable_effect(1) is None


# ------------------------------------------------------------------------------------------------ injective scoring


def test_a_seed_that_loses_exactly_the_limit_does_not_count():
    """Means over cells: losses 0, .05 and .06."""
    inj = np.array([[0.5, 0.7], [0.5, 0.7], [0.5, 0.7]])
    many = np.array([[0.5, 0.7], [0.6, 0.7], [0.62, 0.7]])
    assert statistics.seeds_that_lose(inj, many) == 1
    many[0, 0] = np.nan
    assert statistics.seeds_that_lose(inj, many) is None
