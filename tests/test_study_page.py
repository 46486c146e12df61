"""What a study's page says, against rows worked out by hand."""

import re

import numpy as np
import pytest
import scipy
from matplotlib.figure import Figure

from soopf_jax.report import figures
from soopf_jax.scoring import statistics
from soopf_jax.studies import page, plots
from soopf_jax.studies.contests import contests, pairs_of, placings
from soopf_jax.studies.finding import finding
from soopf_jax.studies.geometry_ranks import spearman, statistics_of
from soopf_jax.studies.grouping import AFTER_LAST_BLOCK, output_row, panels, selected_row
from soopf_jax.studies.page_tables import all_rows, comparisons, ranks
from tests.study_outcomes import FEATURES, TEST_PAIRS, outcome, study


def only(*outcomes):
    (panel,) = panels(outcomes)
    return panel


# ------------------------------------------------------------------------------------------- which rows, what names


def test_a_panel_has_the_rows_of_one_data_set_and_assignment_in_the_order_of_depth():
    found = panels(
        [
            outcome("vit", None),
            outcome("vit", 9),
            outcome("vit", 3),
            outcome("pixels"),
            outcome("vit", 3, assignment="factorial"),
            outcome("vit", 3, dataset="mujoco"),
        ]
    )
    assert [panel.title for panel in found] == [
        "lite, learned assignment",
        "lite, factorial assignment",
        "mujoco, learned assignment",
    ]
    assert [row.name for row in found[0].rows] == ["vit, layer 3", "vit, layer 9", "vit, last", "pixels"]
    assert [row.place for row in found[0].rows] == [0.25, 0.75, AFTER_LAST_BLOCK, AFTER_LAST_BLOCK]
    assert [row.colour for row in found[0].rows] == [0, 0, 0, 1]


def test_names_say_what_differs_and_no_folder_of_this_machine():
    two = [outcome("hf:/home/me/vit"), outcome("hf:/home/me/vit", readout="mlp", objective="native"), outcome("pixels")]
    assert list(only(*two).series) == ["hf:vit, soopf, core", "hf:vit, mlp, native", "pixels"]
    assert list(only(outcome("hf:/a/vit"), outcome("hf:/b/vit")).series) == ["hf:/a/vit", "hf:/b/vit"]
    assert list(only(outcome("\x1b[31mred")).series) == ["\N{REPLACEMENT CHARACTER}[31mred"]


def test_rows_with_other_seeds_are_not_paired():
    found = panels([outcome("a"), outcome("b", inj=(0.1, 0.2))])
    assert [panel.data for panel in found] == ["lite, 3 seeds", "lite, 2 seeds"]


def test_an_arm_that_two_runs_have_counts_once():
    assert len(only(outcome("a"), outcome("a", inj=(0, 0, 0)), outcome("b")).rows) == 2


def test_a_layer_is_chosen_by_validation_and_never_by_inj():
    rows = only(
        outcome("vit", 3, (0.9, 0.9, 0.8), validation=0.2),
        outcome("vit", 6, (0.1, 0.2, 0.1), validation=0.7),
        outcome("vit", 9, (0.3, 0.2, 0.1), validation=None),
    ).rows
    assert selected_row(rows).layer == "layer 6"
    assert output_row(rows).layer == "layer 9"


# --------------------------------------------------------------------------------------------------------- figures


def test_a_profile_has_means_against_depth_with_the_interval_of_the_statistics():
    panel = only(outcome("vit", 3, (0.1, 0.2, 0.3)), outcome("vit", None, (0.5, 0.6, 0.7)), outcome("pixels"))
    figure, points = plots.profile(panel)
    inj, _, support, _ = figure.axes
    line, level = inj.lines[:2]
    np.testing.assert_allclose(line.get_xydata(), [[0.25, 0.2], [AFTER_LAST_BLOCK, 0.6]])
    np.testing.assert_allclose(level.get_xydata(), [[0, 0.5], [AFTER_LAST_BLOCK, 0.5]])
    seeds = np.array([0.3, 0.4, 0.5])
    low, high = statistics.score_interval(seeds, TEST_PAIRS)["ci95"]
    corners = support.collections[0].get_paths()[0].vertices
    for end in (low, high):
        assert np.isclose(corners, [0.25, end]).all(axis=1).any()
    assert low < 0.4 < high
    guesses = [axes.lines[-1].get_ydata()[0] for axes in figure.axes]
    assert guesses == pytest.approx([1 / 9, 1 / 9, 1 / 3, 1 / 3])
    assert len(points) == 4 * 3


def test_a_map_of_encoders_shows_the_output_and_the_layer_of_the_best_validation():
    rows = [
        outcome("vit", 6, (0.3, 0.3, 0.3), validation=0.9),
        outcome("vit", None, (0.6, 0.6, 0.6), validation=0.1),
        outcome("pixels", None, (0.2, 0.2, 0.2)),
    ]
    figure, _ = plots.encoder_map(panels(rows))
    left, right = ([text.get_text() for text in axes.texts] for axes in figure.axes)
    assert left == ["0.60\nlast", "0.20"]
    assert right == ["0.30\nlayer 6", "0.20"]


def test_a_map_of_cells_has_a_map_per_encoder_and_a_line_per_layer():
    figure, points = plots.cell_map(only(outcome("vit", 3, (0.2, 0.2, 0.2)), outcome("vit", 6), outcome("pixels")))
    vit, pixels = figure.axes
    assert [text.get_text() for text in vit.texts] == ["0.20"] * 9 + ["0.50"] * 9
    assert [tick.get_text() for tick in vit.get_yticklabels()] == ["layer 3", "layer 6"]
    assert len(pixels.texts) == 9
    assert len(points) == 3


def test_bars_of_errors_are_shares_of_the_errors():
    figure, _ = plots.error_bars(only(outcome(inj=(0.6, 0.6, 0.6)), outcome("never wrong", inj=(1.0, 1.0, 1.0))))
    (axes,) = figure.axes
    widths = [[bar.get_width() for bar in part] for part in axes.containers]
    assert widths == [pytest.approx(row) for row in ([0.5, 0.25], [0.25, 0.25], [0.25, 0.5])]
    assert "0.40" in [text.get_text() for text in axes.texts]
    assert "never wrong" not in [tick.get_text() for tick in axes.get_yticklabels()]


def test_what_a_wrong_cell_at_random_is_by_counting():
    row = only(outcome()).rows[0]
    cells = [(s, o) for s in range(3) for o in range(3)][1:]
    kinds = [(s != 0, o != 0) for s, o in cells]
    counted = [kinds.count(kind) / len(cells) for kind in ((True, False), (False, True), (True, True))]
    assert plots.errors_by_chance(row) == pytest.approx(counted)


def test_links_lie_where_the_points_are():
    figure = Figure(figsize=(4, 2))
    axes = figure.add_axes((0.1, 0.2, 0.8, 0.5))
    axes.set(xlim=(0, 10), ylim=(0, 1))
    svg, links = figures.svg_with_links(figure, [figures.Spot(axes, 5, 1, "./a", "a")])
    assert links[0][:2] == pytest.approx((0.5, 0.3))
    assert b'viewBox="0 0 288 144"' in svg
    assert '<circle cx="144.0" cy="43.2" r="7"/>' in page.html_page.figure("t", "", svg, links)


# -------------------------------------------------------------------------------------------- ranks and comparisons


def test_ranks_need_five_seeds():
    panel = only(outcome("a", inj=(0.5, 0.1, 0.4)), outcome("b", inj=(0.4, 0.2, 0.4)))
    found = placings(panel.rows)
    assert (found.rank, found.seeds_won, found.bootstrap) == ([1.5, 1.5], [1.5, 1.5], None)
    assert ranks("", found).rows[0][3:5] == ("1.5 of 3", "needs 5 seeds")
    five = placings(only(outcome("a", inj=(0.5,) * 5), outcome("b", inj=(0.4,) * 4 + (0.5,))).rows)
    assert five.bootstrap.first == pytest.approx([1 - 0.5 / 5**5, 0.5 / 5**5]), (
        "they tie if only the last seed is drawn"
    )
    assert ranks("", five).rows[0] == ("a", "0.500", "1", "4.5 of 5", "1.000", "1.00", "[1.0, 1.0]")


def test_rows_that_are_not_complete_have_no_rank():
    rows = only(outcome("a", inj=(0.5, None, 0.4)), outcome("b")).rows
    assert placings(rows) is None


def test_encoders_meet_at_their_chosen_layer_and_layers_meet_the_chosen_one():
    panel = only(
        outcome("vit", 3, validation=0.1),
        outcome("vit", 6, validation=0.9),
        outcome("vit", None, validation=0.2),
        outcome("pixels"),
    )
    assert [(a.name, b.name) for a, b in pairs_of(panel)] == [
        ("vit, layer 6", "pixels"),
        ("vit, layer 3", "vit, layer 6"),
        ("vit, last", "vit, layer 6"),
    ]


def test_paired_tests_are_scipys_with_holms_correction():
    seeds = [(0.1, 0.3, 0.2, 0.5), (0.2, 0.5, 0.35, 0.55), (0.9, 0.7, 0.8, 0.6)]
    found = contests([only(*(outcome(name, inj=inj) for name, inj in zip("abc", seeds, strict=True)))])
    expected = [scipy.stats.ttest_rel(a, b).pvalue for a, b in [seeds[:2], seeds[::2], seeds[1:]]]
    assert [contest.p for contest in found] == pytest.approx(expected)
    by_size = sorted(expected)
    steps = [min(1, factor * p) for factor, p in zip((3, 2, 1), by_size, strict=True)]
    adjusted = dict(zip(by_size, np.maximum.accumulate(steps), strict=True))
    assert [contest.p_holm for contest in found] == pytest.approx([adjusted[p] for p in expected])


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((0.1, 0.2), (0.3, 0.1), "needs 3 seeds"),
        ((0.1, 0.2, 0.3), (0.2, 0.3, 0.4), "the same difference in every seed"),
        ((0.1, None, 0.3), (0.2, 0.3, 0.4), "a fold has no selected restart"),
    ],
)
def test_why_there_is_no_p_value(a, b, said):
    found = contests([only(outcome("a", inj=a), outcome("b", inj=b))])
    assert comparisons(found).rows[0][-2:] == ("-", said)


# --------------------------------------------------------------------------------------------- features beside INJ


def test_every_number_of_the_features_is_shown_against_inj():
    rows = [
        outcome("vit", layer, (0.1 * layer,) * 3, features={"source_rms": -layer, "new_one": layer**3, "flat": 1.0})
        for layer in (1, 2, 3, 4, 5)
    ]
    rows.append(outcome("pixels", None, (0.9,) * 3, features={"source_rms": None, "words": "none", "flag": True}))
    found = statistics_of(only(*rows))
    assert [(key, found[key].name, found[key].shown) for key in found] == [
        ("source_rms", "source RMS", "rho = -1.00, 5 rows"),
        ("new_one", "new one", "rho = +1.00, 5 rows"),
        ("flat", "flat", "rho undefined, 5 rows"),
    ]
    figure, points = plots.against_features(only(*rows), found)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == [
        statistic.shown for statistic in found.values()
    ]
    assert len(points) == 15


def test_spearman_by_hand_and_too_few_rows():
    """Ranks 1 2 3 4 5 against 2 1 4 3 5: the squared differences sum to 4, and 1 - 6 x 4 / (5 x 24) = 0.8."""
    assert spearman((1.0, 2.0, 3.0, 4.0, 5.0), [0.2, 0.1, 0.4, 0.3, 0.5]) == pytest.approx(0.8)
    assert spearman((1.0, 2.0, 3.0, 4.0), [0.1, 0.2, 0.3, 0.4]) is None
    four = [outcome("vit", layer, (0.1 * layer,) * 3) for layer in (1, 2, 3, 4)]
    assert statistics_of(only(*four))["delta_rms"].shown == "too few rows (4)"


# -------------------------------------------------------------------------------------------------- the sentence


def test_the_sentence_names_the_best_layer_that_validation_chose():
    rows = [
        outcome("vit", 7, (0.4, 0.41, 0.42, 0.4, 0.42), validation=0.9),
        outcome("vit", 3, (0.6, 0.6, 0.6, 0.6, 0.6), validation=0.3),
        outcome("pixels", None, (0.2, 0.2, 0.2, 0.21, 0.2), validation=0.95),
    ]
    assert finding(panels(rows)) == (
        "Learned assignment on vit is best at relative depth 0.58 (layer 7), the layer with the best validation "
        "accuracy: INJ 0.41 (chance 0.11); supports are read better than operations everywhere."
    )


def test_the_sentence_has_a_clause_for_every_data_set_and_says_where_there_are_few_seeds():
    low = np.array([0.4, 0.5, 0.6])
    rows = [
        outcome("vit", None, (0.5, 0.5, 0.52), support=low, operation=low + 0.1),
        outcome("vit", None, (0.1, 0.12, 0.09), dataset="mujoco", support=low, operation=low + 0.1),
        outcome("pixels", None, (0.05, 0.1, 0.09), dataset="mujoco"),
    ]
    assert finding(panels(rows)) == (
        "On lite, learned assignment on vit reads held-out cells: INJ 0.51 (chance 0.11); on mujoco, no row reads "
        "held-out cells better than chance (INJ is at best 0.10, chance 0.11); operations are read better than "
        "supports in 2 of 3 rows; measured with 3 seeds only."
    )


def test_no_sentence_without_a_complete_row():
    assert finding(panels([outcome(inj=(0.5, None, 0.4))])) == ""


# ------------------------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def made():
    return page.page(study(), {"a run": "needs <weights>"}, lambda row: row.encoder == "vit")


def test_every_section_is_there_and_what_is_missing_is_said(made):
    assert re.findall("<h2>(.*?)</h2>", made) == [title.replace("'", "&#x27;") for title in page.SECTIONS]
    assert "1 run of this study is missing here" in made
    assert "a run: needs &lt;weights&gt;" in made


def test_the_table_leads_to_the_reports_that_there_are(made):
    table = made[made.index('id="all-rows"') :]
    assert re.findall('<a href="(.*?)">report</a>', table) == [
        f"./lite-vit-{layer}/report.html" for layer in (3, 6, 9, 12, None)
    ]
    leads = re.findall(r'<a href="(\./[^"]*)" tabindex="-1">', made)
    assert set(leads) == {f"./lite-vit-{layer}/report.html" for layer in (3, 6, 9, 12, None)}


def test_names_from_files_are_text_and_addresses_are_quoted():
    name = "<b>x</b>&$1$"
    rows = [outcome(name, folder='a "b"&c', assignment="<i>", features={"<u>": 1.0})]
    made = page.page(rows, {}, lambda row: True)
    assert not re.search("<(b|i|u)>", made)
    assert "./a%20%22b%22%26c/report.html" in made


def test_the_table_has_every_row_with_its_scores():
    table, rows = all_rows(panels([outcome("vit", 3, (0.4, 0.5, 0.6)), outcome("pixels", None, (0.2, None, 0.3))]))
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (first["encoder"], first["layer"], first["depth"], first["INJ"]) == ("vit", "layer 3", "0.25", "0.500")
    assert (first["support alone"], first["operation alone"]) == ("0.700", "0.600")
    assert [first[f"wrong {axis} only"] for axis in ("support", "operation")] == ["0.250", "0.125"]
    assert first["source RMS"] == f"{FEATURES['source_rms']:.3g}"
    assert (second["layer"], second["INJ"], second["both wrong"]) == ("-", "-", "-")
    assert [row.series for row in rows] == ["vit", "pixels"]


def test_a_row_that_failed_does_not_stop_the_page():
    made = page.page([outcome("a", inj=(0.5, None, 0.4)), outcome("b", inj=(None,) * 3)], {}, lambda row: True)
    assert '<section id="all-rows">' in made
    assert '<section id="where-or-what">' not in made
