"""Figures, tables and page against values worked out by hand, by brute force, or read back from what was drawn."""

import base64
import hashlib
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from docs import overview
from soopf_jax.experiments.hints import hints
from soopf_jax.experiments.naming import without_folder
from soopf_jax.grid import Grid
from soopf_jax.report import (
    cards,
    details,
    figures,
    findings,
    html_page,
    page,
    page_style,
    panels,
    plots,
    summary,
    tables,
)
from soopf_jax.report.confusion import axis_accuracy, confusion
from soopf_jax.report.drawing import heatmap, label
from soopf_jax.report.examples import TINT, covered, mask_picture, overlay, patch_of_pixels
from soopf_jax.report.tables import Table
from soopf_jax.runtime.palette import ARM_COLOURS, SUPPORT_COLOURS, difference, region_colours
from soopf_jax.scoring.router_diagnostic import iou
from soopf_jax.types import Window

from .report_result import GRID, dealt_examples, dealt_result

HOSTILE = '</script><img src=x onerror="alert(1)">$x^'
"""A name that tries to be HTML, an attribute and a formula."""


@pytest.fixture(scope="module")
def result():
    return dealt_result()


# ---------------------------------------------------------------------------------------------- confusion

SMALL = Grid(("a", "b"), ("x", "y"))
SWAPPED, STRAIGHT = np.eye(2)[::-1], np.eye(2)


def small_fits(**changes):
    """Two seeds of one arm that hold out a/x; the second binds its supports the other way round."""
    fits = {
        "arm": np.zeros(2, int),
        "selected": np.ones(2, bool),
        "held_out": np.zeros(2, int),
        "C_sup": np.stack([STRAIGHT, SWAPPED]),
        "C_op": np.stack([STRAIGHT, STRAIGHT]),
        "test_counts": np.array([[6, 2, 1, 1], [1, 0, 8, 1]]),  # slots a/x, a/y, b/x, b/y
    }
    return fits | changes


def test_confusion_puts_slots_in_the_order_of_true_cells():
    shares = confusion(small_fits(), 0, SMALL)
    # The second fit's slot b/x is the true a/x: 8 pairs, then 1 of a/y, 1 of b/x, 0 of b/y.
    np.testing.assert_allclose(shares[0], [14 / 20, 3 / 20, 2 / 20, 1 / 20])
    assert np.isnan(shares[1:]).all()
    support, operation = axis_accuracy(shares, SMALL)
    assert (support[0], operation[0]) == pytest.approx((17 / 20, 16 / 20))


def test_confusion_leaves_out_other_arms_and_restarts_that_were_not_selected():
    np.testing.assert_allclose(confusion(small_fits(arm=np.array([0, 1])), 0, SMALL)[0], [0.6, 0.2, 0.1, 0.1])
    np.testing.assert_allclose(confusion(small_fits(selected=np.array([False, True])), 0, SMALL)[0], [0.8, 0.1, 0.1, 0])


@pytest.mark.parametrize("seed", range(3))
def test_the_diagonal_of_confusion_is_inj_per_cell(seed):
    result = dealt_result(seed=seed)
    for index, arm in enumerate(result.document["arms"]):
        diagonal = confusion(result.fits, index, GRID).diagonal()
        np.testing.assert_allclose(diagonal, list(arm["inj"]["per_cell"].values()))


def test_readings_name_the_commonest_error():
    fits = small_fits()
    document = {
        "provenance": {"grid": {"supports": ["a", "b"], "operations": ["x", "y"]}},
        "arms": [{"assignment": "learned"}],
    }
    assert details.readings(document, fits).rows == [("a/x", "learned", "0.700", "0.850", "0.800", "a/y (0.150)")]
    never_wrong = small_fits(test_counts=np.array([[10, 0, 0, 0], [0, 0, 10, 0]]))
    assert details.readings(document, never_wrong).rows[0][-1] == "-"


# ----------------------------------------------------------------------------------------------- pictures


@given(
    arrays(float, (3, 12), elements=st.sampled_from([0.0, 0.2, 0.5, 0.9])),
    arrays(float, (12, 3), elements=st.sampled_from([0.0, 0.3, 0.5, 0.51, 1.0])),
)
def test_iou_counts_patches_like_sets(masks, region):
    counted = [n for n in range(12) if max(region[n]) > 0.5]
    for support, score in enumerate(iou(masks, region)):
        found = {n for n in counted if [masks[s, n] for s in range(3)].index(max(masks[:, n])) == support}
        true = {n for n in counted if list(region[n]).index(max(region[n])) == support}
        if true:
            assert score == pytest.approx(len(found & true) / len(found | true))
        else:
            assert np.isnan(score)


def test_patches_lie_where_the_window_is():
    whole = patch_of_pixels(Window(0, 0, 64, 64, 8, 8), 64, 64)
    y, x = np.mgrid[:64, :64]
    np.testing.assert_array_equal(whole, y // 8 * 8 + x // 8)
    # Rows 2 to 5 and columns 1 to 6 of 8 x 8 pixels, as 2 x 3 patches of 2 x 2.
    cropped = patch_of_pixels(Window(2, 1, 4, 6, 2, 3), 8, 8)
    expected = np.full((8, 8), -1)
    expected[2:6, 1:7] = np.repeat(np.repeat([[0, 1, 2], [3, 4, 5]], 2, axis=0), 2, axis=1)
    np.testing.assert_array_equal(cropped, expected)
    # From 0.4 to 4.4: the middles 0.5 and 1.5 lie in the first patch, 2.5 and 3.5 in the second, 4.5 outside.
    shifted = patch_of_pixels(Window(0.4, 0.4, 4.0, 4.0, 2, 2), 5, 5)
    assert shifted[0].tolist() == [0, 0, 1, 1, -1]
    assert shifted[:, 0].tolist() == [0, 0, 2, 2, -1]


def test_an_overlay_tints_patches_and_leaves_the_rest_grey():
    image = np.full((4, 4, 3), (30, 60, 90), np.uint8)
    shares = np.array([[1.0, 0.0], [0.5, 0.5]])
    drawn = overlay(image, shares, Window(0, 0, 2, 4, 1, 2))
    first, second = region_colours(2)[:2].astype(float)
    np.testing.assert_array_equal(drawn[0, 0], np.round(60 * (1 - TINT) + TINT * first))
    np.testing.assert_array_equal(drawn[1, 3], np.round(60 * (1 - TINT) + TINT * (first + second) / 2))
    assert (drawn[2:] == 60).all()


def test_masks_leave_out_what_belongs_to_no_support():
    """Three patches: the support's own, sky, and half sky. The slot takes a quarter of each."""
    region = np.array([[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]])
    assert covered(region, 3).tolist() == [1.0, 0.0, 0.5]
    assert covered(None, 3).tolist() == [1.0, 1.0, 1.0]
    drawn = mask_picture(np.full(3, 0.25), covered(region, 3), 1, 2)
    colour, grey = region_colours(2)[[1, 2]] / 255
    inside = 0.75 + 0.25 * colour
    np.testing.assert_allclose(drawn, [inside, grey, (inside + grey) / 2])


def test_sky_is_grey_in_the_masks_of_a_card(monkeypatch):
    seen = []
    monkeypatch.setattr(cards, "overlay", lambda image, shares, window: seen.append(shares) or image)
    examples = dealt_examples()
    examples.region[0, 3] = 0.0  # the fourth patch of the first example is sky
    cards.card(examples, 0, GRID)
    _, *of_masks = seen  # the first shows the true regions
    assert len(of_masks) == 2
    assert all(shares[3].sum() == 0 and shares[4].sum() == pytest.approx(1) for shares in of_masks)


def test_differences_are_in_square_root_scale_and_have_no_sign():
    source = np.array([[[10, 255, 7]]], np.uint8)
    edited = np.array([[[11, 0, 7]]], np.uint8)
    assert difference(source, edited).tolist() == difference(edited, source).tolist() == [[[16, 255, 0]]]


def test_large_images_are_embedded_at_a_whole_fraction_of_their_size():
    size = np.frombuffer(cards.png(np.zeros((480, 320, 3), np.uint8))[16:24], ">u4")
    assert size.tolist() == [320 // 3 + 1, 160]  # reduced by 3; a last block of two columns counts
    assert np.frombuffer(cards.png(np.zeros((64, 64, 3), np.uint8))[16:24], ">u4").tolist() == [64, 64]


# ------------------------------------------------------------------------------------------------ figures


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_the_audit_shows_the_scores_of_the_arms(result):
    a, b, c = plots.assignment_audit(result).axes
    for index, arm in enumerate(result.document["arms"]):
        inj, loose = arm["inj"]["per_seed"], arm["non_injective"]["per_seed"]
        dots, mean, lower, upper, *_ = (line.get_ydata() for line in a.lines[4 * index : 4 * index + 4])
        np.testing.assert_allclose(dots, inj)
        assert mean[0] == pytest.approx(arm["inj"]["mean"])
        assert (upper[0] - lower[0]) / 2 == pytest.approx(arm["inj"]["sd"])
        assert b.patches[index].get_height() == pytest.approx(arm["collapse"]["0.5"])
        joined = [line.get_ydata() for line in c.lines[7 * index : 7 * index + 3]]
        np.testing.assert_allclose(joined, np.transpose([loose, inj]))
        means = [c.lines[7 * index + offset].get_ydata()[0] for offset in (4, 6)]
        np.testing.assert_allclose(means, [np.mean(loose), np.mean(inj)])
    assert [text for text in texts(b) if text in ("n/a", "0.62")] == ["n/a", "0.62"]  # recovery, beneath
    assert a.lines[-1].get_ydata()[0] == pytest.approx(1 / 9)


def luminance(colour):
    """The relative luminance of WCAG 2."""
    share = np.array(matplotlib.colors.to_rgb(colour))
    return np.where(share <= 0.03928, share / 12.92, ((share + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


def test_numbers_can_be_read_on_every_field_of_a_map():
    """WCAG asks for a contrast of 4.5 between text and ground."""
    shares = np.linspace(0, 1, 256).reshape(16, 16)
    axes = matplotlib.figure.Figure().subplots()
    heatmap(axes, shares)
    for text, share in zip(axes.texts, shares.ravel(), strict=True):
        ground, ink = luminance(matplotlib.colormaps["Purples"](share)), luminance(text.get_color())
        assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) > 4.5, share


def test_heatmaps_show_cells_at_their_support_and_operation(result):
    drawn = plots.cell_heatmaps(result).axes
    for axes, (score, arm) in zip(
        drawn, [(s, arm) for s in ("inj", "non_injective") for arm in result.document["arms"]], strict=True
    ):
        per_cell = arm[score]["per_cell"]
        shown = {text.get_position(): text.get_text() for text in axes.texts}
        assert shown[2.5, 0.5] == f"{per_cell['floor/pattern']:.2f}"
        assert shown[0.5, 2.5] == f"{per_cell['object/hue']:.2f}"


def test_the_map_of_confusion_has_true_cells_in_rows(result):
    axes = plots.cell_confusion(result).axes[0]
    shares = confusion(result.fits, 0, GRID)
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    for (row, column), share in np.ndenumerate(shares):
        assert shown.get((column + 0.5, row + 0.5), "0") == f"{100 * share:.0f}"


@given(arrays(float, st.integers(1, 30), elements=st.sampled_from([k / 20 for k in range(21)])))
def test_the_collapse_curve_is_the_share_strictly_below(inj):
    thresholds, shares = plots.collapse_curve(inj)
    for between in np.arange(0.5, 20) / 20:  # accuracies are multiples of 1/20: never on a step
        step = np.searchsorted(thresholds, between) - 1
        assert shares[step] == pytest.approx(np.mean(inj < between))


def test_training_curves_are_medians_of_selected_fits_at_the_middle_of_their_chunks(result):
    axes = plots.training_curves(result).axes[0]
    for index, line in enumerate(axes.lines):
        own = (result.fits["arm"] == index) & result.fits["selected"]
        np.testing.assert_allclose(line.get_ydata(), np.median(result.fits["loss"][own], axis=0))
        np.testing.assert_allclose(line.get_xdata()[[0, -1]], [1.0, 39.0])  # 20 chunks of 2 of 40 steps


def test_figures_are_those_that_there_is_data_for(result):
    always = ["assignment_audit", "cell_heatmaps", "cell_confusion", "collapse_thresholds"]
    assert list(figures.plots_of(dealt_result(loss=False))) == always
    examples = dealt_examples()
    assert list(figures.plots_of(result, examples)) == [*always, "router_masks", "training_curves"]
    assert "router_masks" not in figures.plots_of(result, examples._replace(masks={}))


def test_router_masks_frame_the_edited_support_and_print_its_iou(result):
    examples = dealt_examples()
    drawn = np.reshape(figures.plots_of(result, examples)["router_masks"].draw().axes, (3, 5))
    for support, row in enumerate(drawn):
        green = [axes.spines["left"].get_linewidth() == 3 for axes in row[2:]]
        assert green == [slot == support for slot in range(3)]
        example = 3 * support  # the first operation on this support
        scores = iou(examples.masks["factorial"][example], examples.region[example])
        assert [axes.get_xlabel() for axes in row[2:]] == [f"IoU {score:.2f}" for score in scores]


@pytest.mark.parametrize("name", ["collapse_thresholds", "router_masks"])
def test_bytes_depend_on_the_result_alone(result, name):
    first = figures.render(figures.plots_of(result, dealt_examples())[name])
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "pink", "svg.hashsalt": "other"}):
        assert figures.render(figures.plots_of(result, dealt_examples())[name]) == first
    assert b"date" not in first["svg"].split(b"</metadata>")[0]
    assert figures.render(figures.plots_of(dealt_result(seed=1), dealt_examples(seed=1))[name]) != first


# --------------------------------------------------------------------------------------------------- page


class Reader(HTMLParser):
    """The tags of a page with their attributes, and the text in each kind of tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.text.setdefault(self._open[-1], []).append(data)


@pytest.fixture(scope="module")
def hostile():
    grid = Grid((HOSTILE, "wall", "object"), ("hue", f"b{HOSTILE}", "pattern"))
    arms = ("factorial", HOSTILE)
    result = dealt_result(arms, grid)
    result.document["config"]["dataset"] = HOSTILE
    result.document["warnings"] = [HOSTILE]
    return page.pages(result, dealt_examples(arms, grid))


def test_names_from_files_stay_text(hostile):
    html = hostile["report.html"].decode()
    reader = Reader(html)
    kinds = [tag for tag, _ in reader.tags]
    assert kinds.count("script") == 1
    assert "".join(reader.text["script"]) == html_page.SCRIPT
    assert all(not name.startswith("on") and name != "style" for _, attributes in reader.tags for name in attributes)
    for tag in ("title", "h1", "p", "h3", "td", "th", "summary"):
        assert any(HOSTILE in text for text in reader.text[tag]), tag
    assert HOSTILE not in html
    assert escape(HOSTILE) in html


def test_figures_of_such_names_are_well_formed(hostile):
    drawn = {name: data for name, data in hostile.items() if name.endswith(".svg")}
    assert len(drawn) == 6
    for data in drawn.values():
        assert ElementTree.fromstring(data).tag.endswith("svg")


def test_the_page_carries_all_that_it_shows_and_its_policy_allows_no_more(hostile):
    html = hostile["report.html"].decode()
    reader = Reader(html)
    policy = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert (rules.pop("default-src"), rules.pop("img-src")) == ("'none'", "data:")
    for kind in ("style", "script"):
        text = re.search(f"<{kind}>(.*?)</{kind}>", html, re.DOTALL).group(1)
        expected = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(f"{kind}-src") == f"'sha256-{expected}'"
    assert rules == {"base-uri": "'none'", "form-action": "'none'"}
    images = [attributes["src"] for tag, attributes in reader.tags if tag == "img"]
    assert len(images) == 6 + 9 * (4 + 2)
    assert all(source.startswith(("data:image/png;base64,", "data:image/svg+xml;base64,")) for source in images)
    assert all(attributes["alt"] for tag, attributes in reader.tags if tag == "img")
    assert all(a["href"].startswith("#") for tag, a in reader.tags if tag == "a")


def undrawn(result) -> str:
    """The page with nothing in the place of its figures."""
    found = figures.plots_of(result)
    return page.report(result, found, {f"figures/{name}.svg": b"" for name in found})


def test_links_lead_to_sections(result):
    reader = Reader(undrawn(result))
    links = [attributes["href"][1:] for tag, attributes in reader.tags if tag == "a"]
    assert links == [attributes["id"] for tag, attributes in reader.tags if tag == "section"]
    assert links == ["summary", "hints", "figures", "tables", "reproduce-and-cite", "configuration-and-provenance"]


def test_what_to_beware_of_comes_first():
    result = dealt_result(loss=False)
    result.document["warnings"] = ["learned: incomplete, some fold has no restart that could be selected"]
    learned = result.document["arms"][1]
    for spread in (learned["inj"], learned["non_injective"]):
        spread |= {"mean": None, "sd": None, "ci95": None, "per_seed": [None, *spread["per_seed"][1:]]}
        spread["per_cell"]["floor/hue"] = None
    learned |= {"laundering_gap": None, "min_cell": None, "collapse": dict.fromkeys(learned["collapse"])}
    learned |= {"recovery": None, "exact_recovery": None, "failed_fits": 2}
    result.fits["selected"][(result.fits["arm"] == 1) & (result.fits["seed"] == 0) & (result.fits["held_out"] == 0)] = 0
    html = undrawn(result)
    places = [html.index(text) for text in ("<h1>", "Quick protocol, not", "Learned: incomplete", "<nav>")]
    assert places == sorted(places)
    assert len(re.findall("quick protocol", html, re.IGNORECASE)) == 2, "in the title of the window, and in one note"
    assert re.search(r"<h3>learned</h3><div class=\"score\"><small>INJ</small> incomplete", html)
    assert "<dt>failed fits</dt><dd>2</dd>" in html
    legend = plots.collapse_thresholds(result).axes[0].get_legend()
    assert [text.get_text() for text in legend.texts] == ["factorial", "learned\n(incomplete)"]


def test_a_full_protocol_has_no_note():
    result = dealt_result(loss=False)
    result.document["protocol"] = "full"
    html = page.header(result.document)
    assert 'class="note"' not in html
    assert '<span class="label">full protocol</span>' in html


def test_the_finding_stands_above_the_warnings(result):
    html = undrawn(result)
    (sentence,) = re.findall('<p class="finding">(.*?)</p>', html)
    assert sentence == escape(findings.finding(result.document, result.fits))
    assert html.index("<h1>") < html.index(sentence) < html.index('class="note"')


def test_hints_are_shown_with_the_page_that_explains_them(result):
    document = result.document | {
        "arms": [arm | {"distinct_support_rate": 0.25, "laundering_gap": 0.0} for arm in result.document["arms"]]
    }
    html = undrawn(result._replace(document=document))
    (section,) = re.findall('<section id="hints">(.*?)</section>', html)
    assert "<li>Two supports share a slot in many fits (distinct: factorial 0.250, learned 0.250)" in section
    assert "See <code>docs/troubleshooting.md#two-supports-share-a-slot</code>." in section
    assert len(re.findall("<li>", section)) == len(hints(document))


def test_names_do_not_show_folders_of_the_machine(result):
    document = result.document | {"config": result.document["config"] | {"encoder": "hf:/home/me/vit"}}
    assert "<h1>shapes3d-lite, hf:vit</h1>" in page.header(document)
    assert without_folder("folder:~/x/y") == "folder:y"
    assert without_folder("hf:facebook/dinov2-small") == "hf:facebook/dinov2-small"
    assert without_folder("mujoco") == "mujoco"


def test_a_tile_says_that_the_deviation_is_an_sd(result):
    spread = result.document["arms"][1]["inj"]
    html = panels.held_out_tile(result.document["arms"][1], 1)
    assert f"</small> {spread['mean']:.3f} <small>SD {spread['sd']:.3f}</small></div>" in html
    assert "±" not in html


def test_an_arm_has_one_colour_on_the_page_and_in_the_figures(result):
    """The second arm is the second colour in tiles, cards and plots; no support has the colour of one of three arms."""
    assert re.findall(r"\.arm1 { --arm: (.*?); }", page_style.STYLE) == [ARM_COLOURS[1]]
    assert 'class="tile arm1"' in panels.held_out_tile(result.document["arms"][1], 1)
    assert 'class="reading arm1"' in cards.card(dealt_examples(), 0, GRID)
    assert plots.assignment_audit(result).axes[0].lines[4].get_color() == ARM_COLOURS[1]
    assert not set(ARM_COLOURS[:3]) & set(SUPPORT_COLOURS[:4])


def test_tiles_name_the_weakest_cell_and_what_an_arm_was_told(result):
    factorial, learned = result.document["arms"]
    name, value = min(factorial["inj"]["per_cell"].items(), key=lambda item: item[1])
    assert f"<dt>weakest cell</dt><dd>{name} {value:.3f}</dd>" in panels.held_out_tile(factorial)
    assert "<dd>flat labels and axes</dd>" in panels.held_out_tile(factorial)
    assert "<dd>flat labels only</dd>" in panels.held_out_tile(learned)


def test_energy_grids_outline_the_true_cell_and_mark_the_largest():
    energy = np.array([0.1, 0.2, 0.7, 0.0])
    html = cards.energy_grid(energy, 1, SMALL)
    fields = re.findall(r'<td class="([^"]*)">([^<]*)</td>', html)
    assert fields == [("e1", "0.10"), ("e2 true", "0.20"), ("e7 read", "● 0.70"), ("e0", "0.00")]


def test_cards_say_whether_a_reading_is_right_and_how_well_masks_fit():
    examples = dealt_examples()
    energy = np.full((9, 9), 0.05)
    energy[:, 0] = 0.6  # all are read as floor/hue
    scores = iou(examples.masks["factorial"][0], examples.region[0])
    html = cards.card(examples._replace(energy={"factorial": energy}), 0, GRID)
    assert 'factorial: <span class="right">floor/hue ✓</span>' in html
    assert f"router masks, IoU {np.nanmean(scores):.2f}, floor {scores[0]:.2f}" in html
    assert '<span class="wrong">floor/hue ✗</span>' in cards.card(examples._replace(energy={"a": energy}), 4, GRID)
    bare = examples._replace(region=None, masks={}, energy={"factorial": energy})
    assert cards.card(bare, 0, GRID).count("<img") == 3
    assert "IoU" not in cards.card(bare, 0, GRID)


def test_an_absent_support_has_no_iou():
    assert cards.iou_text(np.array([np.nan, 0.5, 0.7]), 0, GRID) == "IoU 0.60, floor absent from every patch"
    assert cards.iou_text(np.full(3, np.nan), 0, GRID) == "IoU undefined"


# ------------------------------------------------------------------------------------------------- tables


def test_router_scores_are_shown_where_there_are_any(result):
    assert [table.title for table in summary.details(result.document)][-1] == "Paired t-tests over seeds"
    document = dealt_result().document
    spread = {"mean": 0.8211, "sd": 0.02, "ci95": None, "per_seed": [0.8211]}
    document["arms"][0]["router"] = None
    document["router"] = {"iou": spread, "iou_edited": spread | {"mean": 0.9}, "agreement": spread | {"mean": 0.903}}
    (row,) = summary.details(document)[-1].rows
    assert row == ("diagnostic, all cells observed", "0.821 ± 0.020", "0.900 ± 0.020", "0.903 ± 0.020")


def test_columns_of_words_are_flush_left_and_columns_of_numbers_are_not():
    html = tables.html(Table("T", ("name", "word", "number"), [("a", "x", "n/a"), ("b", "-", "0.5")]))
    kinds = [a.get("class") for tag, a in Reader(html).tags if tag in ("th", "td")]
    assert kinds == [None, "text", None] * 3


def test_names_are_broken_into_lines_and_made_printable():
    assert label("package.module:attr") == "package.modu\nle:attr"
    assert label("a\x07b") == "a\N{REPLACEMENT CHARACTER}b"


# ----------------------------------------------------------------------------------------------- overview


def test_the_overview_is_drawn_as_svg_and_png(tmp_path: Path, capsys):
    assert overview.main([str(tmp_path)]) == 0
    assert ElementTree.parse(tmp_path / "overview.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "overview.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert capsys.readouterr().out.split() == [str(tmp_path / f"overview.{kind}") for kind in ("svg", "png")]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys):
    assert overview.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"error: no folder {tmp_path / 'none'}; make it, or give another\n"
