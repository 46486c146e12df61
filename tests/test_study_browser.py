"""The study page in a real Chromium: it links, sorts, fits its window by day and night, and asks for nothing."""

from pathlib import Path

import pytest

from soopf_jax.studies import page

from .chromium import BINARY, CONTRASTS, FITS, browser, scheme
from .study_outcomes import study

pytestmark = pytest.mark.skipif(BINARY is None, reason="Chromium is not installed (Debian: apt install chromium)")
TABLE = "[aria-label='All rows'] table"
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"
FIGURES = 5
"""Profile, map of encoders, cells, errors and features."""


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    found = study()
    for row in found:
        (folder / row.folder).mkdir(exist_ok=True)
        (folder / row.folder / "report.html").write_text(f"<title>{row.folder}</title>")
    page.write(found, {"lite-dinov3": "needs DINOv3 weights"}, folder)
    return folder / page.NAME


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_a_click_on_a_point_of_the_profile_opens_the_report_of_its_row(tab, file):
    tab.open(file, 1280)
    point = "#layer-profile .links a:nth-child(2)"
    told = tab.evaluate(f"document.querySelector('{point}').textContent")
    assert told.startswith("vit, layer 6, learned: INJ 0.")
    tab.click(f"{point} circle")
    tab._until(lambda read: read.get("method") == "Page.loadEventFired")
    assert tab.evaluate("document.title") == "lite-vit-6"


def test_every_link_leads_to_a_report_that_is_there(tab, file):
    tab.open(file, 1280)
    leads = tab.evaluate(
        "Array.from(document.querySelectorAll('.links a'), a => new URL(a.href.baseVal, location).href)"
    )
    table = tab.evaluate(f"Array.from(document.querySelectorAll(`{TABLE} a`), a => a.href)")
    reports = {path.as_uri() for path in file.parent.glob("*/report.html")}
    assert len(table) == 6
    assert set(table) == set(leads) == reports


def test_points_of_the_overlay_lie_on_the_drawing_at_any_width(tab, file):
    offset = """Array.from(document.querySelectorAll(".drawn"), (box) => {
      const [drawing, links] = ["img", "svg"].map((name) => box.querySelector(name).getBoundingClientRect());
      return ["x", "y", "width", "height"].map((side) => Math.abs(drawing[side] - links[side]));
    })"""
    for width in (1280, 400):
        tab.open(file, width)
        found = tab.evaluate(offset)
        assert len(found) == FIGURES
        assert max(max(sides) for sides in found) < 1


def test_a_click_on_a_header_sorts_all_rows(tab, file):
    tab.open(file, 1280)
    cells = f"Array.from(document.querySelector(`{TABLE}`).tBodies[0].rows, row => Number(row.cells[5].innerText))"
    before = tab.evaluate(cells)
    assert before != sorted(before)
    header = f"{TABLE} th:nth-child(6) button"
    assert tab.evaluate(f"document.querySelector(`{header}`).innerText") == "INJ"
    tab.click(header)
    assert tab.evaluate(cells) == sorted(before)
    tab.click(header)
    assert tab.evaluate(cells) == sorted(before, reverse=True)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window_and_what_is_wide_scrolls_in_its_own_box(tab, file, width):
    tab.open(file, width)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(FITS)
    boxes = tab.evaluate(
        "Array.from(document.querySelectorAll('figure .wide'), box => box.scrollWidth > box.clientWidth)"
    )
    assert boxes == [width == 400] * FIGURES
    settle = {"expression": "new Promise(done => setTimeout(done, 200))", "awaitPromise": True}
    tab.call("Runtime.evaluate", **settle)
    cue = tab.evaluate("getComputedStyle(document.querySelector('figure .wide'), '::before').content")
    assert cue == ('"scroll sideways ↔"' if width == 400 else "none")


@pytest.mark.parametrize("name", ["light", "dark"])
def test_all_text_can_be_read_by_day_and_by_night(tab, file, name):
    scheme(tab, name)
    tab.open(file, 400)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(CONTRASTS) == []
    papers = tab.evaluate(
        "['body', '.drawn img'].map(name => getComputedStyle(document.querySelector(name)).backgroundColor)"
    )
    assert papers == ["rgb(255, 255, 255)" if name == "light" else "rgb(21, 24, 28)", "rgb(255, 255, 255)"]
    scheme(tab, "")


def test_every_figure_is_drawn_and_nothing_is_asked_of_the_network(tab, file):
    for events in tab.events.values():
        events.clear()
    tab.open(file, 1280)
    sizes = tab.evaluate("Array.from(document.images, image => image.complete && image.naturalWidth)")
    assert len(sizes) == FIGURES
    assert all(sizes)
    requests = [event["request"]["url"] for event in tab.events.pop("Network.requestWillBeSent")]
    assert requests[0] == file.as_uri()
    assert all(url.startswith("data:image/") for url in requests[1:])
    assert tab.events == {"Runtime.consoleAPICalled": [], "Runtime.exceptionThrown": [], "Log.entryAdded": []}
    tab.events["Network.requestWillBeSent"] = []


def test_what_is_missing_unfolds(tab, file):
    tab.open(file, 1280)
    reason = "document.querySelector('.note li').checkVisibility()"
    assert not tab.evaluate(reason)
    tab.click(".note summary")
    assert tab.evaluate(reason)


def test_without_script_all_is_there_but_sorting(tab, file):
    tab.open(file, 1280, script=False)
    assert tab.evaluate("document.querySelectorAll('th button').length") == 0
    assert tab.evaluate(f"document.querySelector(`{TABLE}`).tBodies[0].rows.length") == 6
