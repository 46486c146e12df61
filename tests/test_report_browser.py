"""The pages in a real Chromium: they sort, fold, fit their window by day and night, and ask for nothing."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import compare, leaderboard
from soopf_jax.report import page

from .chromium import BINARY, CONTRASTS, FITS, Page, browser, scheme
from .report_result import dealt_examples, dealt_result
from .result_folders import save_run

pytestmark = pytest.mark.skipif(BINARY is None, reason="Chromium is not installed (Debian: apt install chromium)")
TABLE = "[aria-label='INJ per held-out cell'] table"
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"
TESTS = "[aria-label='Paired t-tests over seeds'] table"
T_AND_P = ((-15.6, 8e-8), (2.1, 0.064), (14.6, 1e-7), (-6.1, 0.0002))
"""What the first tests of the report say; the others are undefined."""
WARNING = "7 of 180 pairs have zero delta: the encoder does not see their edit"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    result = dealt_result(("factorial", "learned", "<b>compressed</b>"))
    result.document["arms"][0]["inj"]["per_cell"]["wall/hue"] = None
    result.document["warnings"].append(WARNING)
    result.document["config"]["readout"] = "soopf"
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


def test_what_scrolls_says_so_until_its_end_is_reached(tab, report):
    box = "document.querySelector('#summary .wide')"
    cue = f"getComputedStyle({box}, '::before').content + getComputedStyle({box}).maskImage.slice(0, 6)"
    settle = {"expression": "new Promise(done => setTimeout(done, 200))", "awaitPromise": True}
    tab.open(report, 1280)
    tab.call("Runtime.evaluate", **settle)
    assert tab.evaluate(cue) == "nonenone"
    tab.open(report, 400)
    tab.call("Runtime.evaluate", **settle)
    assert tab.evaluate(cue) == '"scroll sideways ↔"linear'
    tab.evaluate(f"{box}.scrollLeft = 1e6")
    tab.call("Runtime.evaluate", **settle)
    assert tab.evaluate(cue) == '"scroll sideways ↔"none'
    last = tab.evaluate(f"(cell => cell.getBoundingClientRect().right)({box}.querySelector('tr').lastElementChild)")
    assert last <= 400, "the last column is in sight"


@pytest.mark.parametrize("name", ["light", "dark"])
def test_all_text_can_be_read_by_day_and_by_night(tab, report, name):
    scheme(tab, name)
    tab.open(report, 1280)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(CONTRASTS) == []
    papers = tab.evaluate(
        "['body', '#figures img'].map(name => getComputedStyle(document.querySelector(name)).backgroundColor)"
    )
    assert papers == ["rgb(255, 255, 255)" if name == "light" else "rgb(21, 24, 28)", "rgb(255, 255, 255)"]
    scheme(tab, "")


def test_the_glossary_is_open_on_the_first_visit_only_and_where_nothing_can_be_stored(tab, report):
    is_open = "document.querySelector('#summary details').open"
    tab.open(report, 1280)
    tab.evaluate("localStorage.clear()")
    visits = []
    for _ in range(2):
        tab.open(report, 1280)
        visits.append(tab.evaluate(is_open))
    assert visits == [True, False]
    deny = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
    script = tab.call("Page.addScriptToEvaluateOnNewDocument", source=deny)
    tab.open(report, 1280)
    assert tab.evaluate(is_open)
    assert tab.evaluate("document.querySelectorAll('.copy-button').length") == 2, "the rest of the script ran"
    tab.call("Page.removeScriptToEvaluateOnNewDocument", **script)


def test_a_click_copies_the_command(tab, report):
    tab.open(report, 1280)
    tab.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.click("#reproduce-and-cite .copy-button")
    assert shlex.split(tab.evaluate("window.copied"))[:3] == ["python", "-m", "soopf_jax.bench"]
    assert tab.evaluate("document.querySelector('.copy-button').innerText") == "Copied"
    tab.evaluate("navigator.clipboard.writeText = async () => { throw new Error('denied'); }")
    tab.click("#reproduce-and-cite .copy-button")
    assert tab.evaluate("getSelection().toString()") == tab.evaluate("window.copied")


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


# --------------------------------------------------------------------------------------------------- leaderboard


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Path:
    """Four arms on three data sets."""
    root = tmp_path_factory.mktemp("board")
    for name, dataset, encoder in (("a", "mujoco", "vit"), ("b", "mujoco", "pixels"), ("c", "coco", "pixels")):
        inj = np.random.default_rng(ord(name)).uniform(0.3, 0.8, (4, 9))
        arms = {"factorial": (inj, inj)} | ({"learned": (inj / 2, inj)} if name == "a" else {})
        save_run(root / name, arms, config={"dataset": dataset, "encoder": encoder})
        (root / name / "report.html").write_text(f"<title>{name}</title>")
    assert leaderboard.main([str(root), "--html", str(root / "board.html")]) == 0
    return root / "board.html"


@pytest.mark.parametrize("width", [1280, 400])
def test_every_column_of_the_leaderboard_can_be_reached(tab, board, width):
    tab.open(board, width)
    assert tab.evaluate(FITS)
    reach = """Array.from(document.querySelectorAll(".wide"), (box) =>
      Array.from(box.querySelectorAll("thead th"), (th) => {
        th.scrollIntoView({ inline: "end", block: "nearest" });
        const { left, right } = th.getBoundingClientRect();
        return right <= innerWidth + 1 && left >= -1;
      })
    )"""
    pivot, table = tab.evaluate(reach)
    assert (len(pivot), len(table)) == (3, 16)
    assert all(pivot + table)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_the_leaderboard_can_be_read_by_day_and_by_night(tab, board, name):
    scheme(tab, name)
    tab.open(board, 400)
    assert tab.evaluate(CONTRASTS) == []
    scheme(tab, "")


def test_the_filter_leaves_the_rows_that_have_all_words(tab, board):
    tab.open(board, 1280)
    shown = (
        "(selector) => Array.from(document.querySelectorAll(selector))"
        ".filter(row => row.checkVisibility()).map(row => row.innerText.split(/\\s+/).join(' '))"
    )
    assert len(tab.evaluate(f"({shown})('.plot .arm')")) == 4
    tab.evaluate("document.querySelector('input').focus()")
    tab.call("Input.insertText", text="MUJOCO factorial")
    assert [row.split()[0] for row in sorted(tab.evaluate(f"({shown})('.plot .arm .name')"))] == ["pixels,", "vit,"]
    assert [row.split()[0] for row in tab.evaluate(f"({shown})('.pivot tbody tr')")] == ["pixels", "vit"]
    assert len(tab.evaluate(f"({shown})('.sortable tbody tr')")) == 2
    assert tab.evaluate(f"({shown})('.plot h3')")[0].startswith("mujoco")
    assert tab.evaluate("document.querySelector('[role=status]').innerText") == "2 of 4 arms"
    tab.call("Input.insertText", text=" nothing")
    assert tab.evaluate(f"({shown})('.plot .arm, .pivot tbody tr, .sortable tbody tr')") == []


def test_every_arm_leads_to_its_report(tab, board):
    tab.open(board, 1280)
    leads = tab.evaluate("Array.from(document.links, link => link.href)")
    assert len(leads) == 3 * 4  # in the pivot, in the plot and in the table
    assert set(leads) == {(board.parent / name / "report.html").as_uri() for name in "abc"}


# ---------------------------------------------------------------------------------------------------- comparison


def test_a_comparison_shows_its_plot_and_fits_its_window_by_day_and_by_night(tab, board):
    file = board.with_name("comparison.html")
    runs = [f"{board.parent / 'a'}:{assignment}" for assignment in ("factorial", "learned")]
    assert compare.main([*runs, "--html", str(file)]) == 0
    for name, width in (("light", 1280), ("dark", 400)):
        scheme(tab, name)
        tab.open(file, width)
        assert tab.evaluate("document.images.length === 1 && document.images[0].naturalWidth > 600")
        assert tab.evaluate(FITS)
        assert tab.evaluate(CONTRASTS) == []
    scheme(tab, "")
