"""The report in a real Chromium: it sorts, folds, fits its window, says nothing on the console, asks for nothing."""

from pathlib import Path

import pytest

from soopf_jax.report import page

from .chromium import BINARY, Page, browser
from .report_result import dealt_examples, dealt_result

pytestmark = pytest.mark.skipif(BINARY is None, reason="Chromium is not installed (Debian: apt install chromium)")
TABLE = "[aria-label='INJ per held-out cell'] table"
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"
TESTS = "[aria-label='Paired t-tests over seeds'] table"
T_AND_P = ((-15.6, 8e-8), (2.1, 0.064), (14.6, 1e-7), (-6.1, 0.0002))
"""What the first tests of the report say; the others are undefined."""
WARNING = "7 of 180 pairs have zero delta: the encoder does not see their edit"
FITS = "document.scrollingElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    result = dealt_result(("factorial", "learned", "<b>compressed</b>"))
    result.document["arms"][0]["inj"]["per_cell"]["wall/hue"] = None
    result.document["warnings"].append(WARNING)
    for test in result.document["tests"]:
        test |= {"t": None, "p": None}
    for test, (t, p) in zip(result.document["tests"], T_AND_P, strict=False):
        test |= {"t": t, "p": p}
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_bytes(page.pages(result, dealt_examples(("factorial", "learned")))["report.html"])
    return file


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def column(tab: Page, number: int, table: str = TABLE) -> list[str]:
    rows = f"document.querySelector(`{table}`).tBodies[0].rows"
    return tab.evaluate(f"Array.from({rows}, row => row.cells[{number}].innerText)")


def aria_sort(tab: Page) -> list[str | None]:
    return tab.evaluate(f"Array.from(document.querySelectorAll(`{TABLE} th`), th => th.getAttribute('aria-sort'))")


def test_a_click_on_a_header_sorts_up_and_the_next_one_down(tab, report):
    tab.open(report, 1280)
    shown = column(tab, 1)
    numbers = sorted(float(text) for text in shown if text != "-")
    assert shown.count("-") == 1
    assert [text for text in shown if text != "-"] != [f"{n:.3f}" for n in numbers]  # else there is nothing to sort
    header = f"{TABLE} th:nth-child(2) button"
    tab.click(header)
    assert column(tab, 1) == [*(f"{n:.3f}" for n in numbers), "-"]
    assert aria_sort(tab)[:2] == [None, "ascending"]
    tab.click(header)
    assert column(tab, 1) == [*(f"{n:.3f}" for n in reversed(numbers)), "-"]
    assert aria_sort(tab)[:2] == [None, "descending"]


def test_signs_and_powers_of_ten_count(tab, report):
    tab.open(report, 1280)
    for number, digits in ((5, ".2f"), (6, ".2g")):
        tab.click(f"{TESTS} th:nth-child({number + 1}) button")
        shown = column(tab, number, TESTS)
        assert shown[: len(T_AND_P)] == [f"{value:{digits}}" for value in sorted(pair[number - 5] for pair in T_AND_P)]
        assert set(shown[len(T_AND_P) :]) == {"-"}


def test_names_sort_as_names_and_rows_stay_whole(tab, report):
    tab.open(report, 1280)
    before = dict(zip(column(tab, 0), column(tab, 2), strict=True))
    tab.click(f"{TABLE} th:first-child button")
    assert column(tab, 0) == sorted(before)
    assert dict(zip(column(tab, 0), column(tab, 2), strict=True)) == before


def test_the_keyboard_sorts_too(tab, report):
    tab.open(report, 1280)
    tab.evaluate(f"document.querySelector(`{TABLE} th:first-child button`).focus()")
    tab.press("Enter", 13, "\r")
    assert column(tab, 0) == sorted(column(tab, 0))
    tab.press("Tab", 9)
    tab.press(" ", 32, " ")
    assert aria_sort(tab)[:2] == [None, "ascending"]


def test_a_click_folds_and_unfolds(tab, report):
    tab.open(report, 1280)
    is_open = "document.querySelector('#examples details').open"
    first = tab.evaluate(is_open)
    tab.click("#examples summary")
    assert tab.evaluate(is_open) is not first


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window_and_what_is_wide_scrolls_in_its_own_box(tab, report, width):
    tab.open(report, width)
    assert tab.evaluate(FITS)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(FITS)
    boxes = tab.evaluate("Array.from(document.querySelectorAll('.wide'), box => box.scrollWidth > box.clientWidth)")
    assert any(boxes) == (width == 400)


def test_every_picture_is_drawn(tab, report):
    tab.open(report, 1280)
    tab.evaluate(OPEN_ALL)
    sizes = tab.evaluate("Array.from(document.images, image => image.complete && image.naturalWidth)")
    assert len(sizes) == 6 + 9 * (4 + 2)  # figures; of each example, the pair, their difference, regions and two masks
    assert all(sizes)


def test_names_are_text_and_warnings_stand_first(tab, report):
    tab.open(report, 1280)
    assert tab.evaluate("document.querySelectorAll('b').length") == 0
    assert "<b>compressed</b>" in tab.evaluate("document.body.innerText")
    notes = tab.evaluate("Array.from(document.querySelectorAll('.note'), note => [note.innerText, note.offsetTop])")
    assert [text.split(",")[0] for text, _ in notes] == ["Quick protocol", WARNING + "."]
    assert all(top < tab.evaluate("document.querySelector('header .faint').offsetTop") for _, top in notes)


def test_without_script_all_is_there_but_sorting(tab, report):
    tab.open(report, 1280, script=False)
    assert tab.evaluate("document.querySelectorAll('th button').length") == 0
    assert len(column(tab, 0)) == 9


def test_nothing_is_asked_of_the_network_nor_said_on_the_console(tab, report):
    for events in tab.events.values():
        events.clear()
    tab.open(report, 1280)
    tab.click(f"{TABLE} th:first-child button")
    requests = [event["request"]["url"] for event in tab.events.pop("Network.requestWillBeSent")]
    assert requests[0] == report.as_uri()
    assert all(url.startswith("data:image/") for url in requests[1:])
    assert tab.events == {"Runtime.consoleAPICalled": [], "Runtime.exceptionThrown": [], "Log.entryAdded": []}
    tab.events["Network.requestWillBeSent"] = []


def test_the_policy_keeps_others_scripts_styles_and_pictures_out(tab, report):
    tab.open(report, 1280)
    tab.evaluate(
        "window.kept = []; document.addEventListener('securitypolicyviolation', e => kept.push(e.effectiveDirective));"
        "document.body.insertAdjacentHTML('beforeend', `<img src='http://127.0.0.1:9/x.png' onerror='window.ran = 1'>"
        "<p style='color: red'>`)"
    )
    tab.call("Runtime.evaluate", expression="new Promise(done => setTimeout(done, 300))", awaitPromise=True)
    assert {"img-src", "style-src-attr", "script-src-attr"} <= set(tab.evaluate("kept"))
    assert tab.evaluate("window.ran === undefined")
