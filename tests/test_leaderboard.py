"""The leaderboard: every readable result, in an order that ranks only what may be ranked, in three forms."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from soopf_jax import leaderboard
from soopf_jax.experiments import results
from soopf_jax.experiments.naming import name_run
from soopf_jax.report import tables
from tests.result_folders import save_run


def arm(mean, seeds=3):
    inj = np.full((seeds, 9), mean) + np.linspace(-0.03, 0.03, seeds)[:, None]
    return inj, np.minimum(inj + 0.1, 1)


def run(*args):
    return leaderboard.main([str(arg) for arg in args])


def csv_rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


class Cells(HTMLParser):
    """The text of every table cell, and the tags that occur."""

    def __init__(self, page):
        super().__init__()
        self.cells, self.tags, self.inside = [], set(), False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.inside = tag == "td"
        if self.inside:
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "td"

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


# --------------------------------------------------------------------------------------------------------- the page


def board(tmp_path, where="pages/board.html"):
    """The page of all runs below tmp_path/runs."""
    assert run(tmp_path / "runs", "--html", tmp_path / where) == 0
    return (tmp_path / where).read_text()


def test_the_pivot_has_encoders_in_rows_and_what_may_be_ranked_in_columns(tmp_path):
    for name, dataset, encoder, mean in (
        ("a", "mujoco", "vit", 0.4),
        ("b", "mujoco", "pixels", 0.5),
        ("c", "shapes3d-lite", "pixels", 0.6),
    ):
        save_run(tmp_path / "runs" / name, {"learned": arm(mean)}, config={"dataset": dataset, "encoder": encoder})
    save_run(tmp_path / "runs/d", {"learned": arm(0.7)}, config={"dataset": "mujoco", "encoder": "vit"}, steps=9)
    html = board(tmp_path)
    table = html[html.index('<table class="pivot">') : html.index("</table>")]
    heads = re.findall(r"<th scope=\"col\">([^<]*)(?:<small>([^<]*))?", table)
    assert heads == [
        ("encoder", ""),
        ("mujoco", "3 x 3, 180 pairs, custom 3 x 2 x 3"),
        ("mujoco", "3 x 3, 180 pairs, custom 3 x 2 x 9"),
        ("shapes3d-lite", "3 x 3, 180 pairs, custom 3 x 2 x 3"),
    ]
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in table.split('<tr class="group">')[1:]]
    assert rows == [
        ["pixels", "0.500", "learned", "-", "0.600", "learned"],
        ["vit", "0.400", "learned", "0.700", "learned", "-"],
    ]


def test_links_lead_to_reports_from_wherever_the_page_is(tmp_path):
    folder = Path(save_run(tmp_path / "runs/odd: name #1", {"learned": arm(0.5)}))
    save_run(tmp_path / "runs/no report", {"learned": arm(0.6)})
    (folder / "report.html").touch()
    for where in ("pages/board.html", "runs/board.html", "board.html"):
        links = set(re.findall(r'href="([^"]*)"', board(tmp_path, where)))
        assert len(links) == 1
        target = (tmp_path / where).parent / unquote(links.pop())
        assert target.resolve() == folder / "report.html"


def test_the_page_has_no_path_of_this_machine(tmp_path):
    config = {"encoder": "hf:/home/someone/vit", "layer": 3, "dataset": "folder:/data/mine"}
    folder = Path(save_run(tmp_path / "runs/a", {"learned": arm(0.5)}, config=config))
    (folder / "report.html").touch()
    html = board(tmp_path)
    assert "hf:vit layer 3" in html
    assert "folder:mine" in html
    for path in ("/home/someone", "/data", str(tmp_path)):
        assert path not in html


def score_end(mean, end):
    """An end of the score interval of three seeds with SD .03: a root of (mean - mu)^2 = k mu (1 - mu)."""
    k = 4.302653**2 * 0.03**2 / 3 / (mean * (1 - mean))
    return end(np.roots([1 + k, -(2 * mean + k), mean**2]))


def test_the_plot_draws_means_and_intervals_best_first(tmp_path):
    """Seed means .92 .95 .98: half the t interval is 4.302653 * .03 / sqrt(3) = .0745, so its upper end is cut at 1."""
    save_run(tmp_path / "runs/a", {"learned": arm(0.3), "factorial": arm(0.95)})
    html = board(tmp_path)
    drawn = re.findall(r'class="interval" x1="([\d.]*)%" x2="([\d.]*)%".*?cx="([\d.]*)%"', html)
    found = np.array(drawn, float)
    low, high = 100 * score_end(0.95, min), 100 * score_end(0.3, max)
    np.testing.assert_allclose(found, [[low, 100, 95], [22.55, high, 30]], atol=0.011)
    assert low < 87.55
    assert high > 37.45
    assert html.count('class="chance" x1="11.11%"') == 2


# ------------------------------------------------------------------------------------------------ the table and CSV


def test_every_arm_is_a_row_with_its_scores_in_full(tmp_path):
    inj, many = arm(0.55)
    save_run(tmp_path / "runs/deep/a", {"learned": (inj, many)})
    assert run(tmp_path / "runs", "--csv", tmp_path / "l.csv") == 0
    (row,) = csv_rows(tmp_path / "l.csv")
    said = ("substrate", "grid", "pairs", "encoder", "readout", "objective", "assignment", "seeds", "result")
    assert [row[name] for name in said] == [
        *("shapes3d-lite", "3 x 3", "180", "pixels", "soopf", "core", "learned", "3", "deep/a"),
    ]
    # Seed means .52 .55 .58: SD .03. The t interval has the half width 4.302653 * .03 / sqrt(3). The lower end of the
    # score interval is a little farther out.
    half = 4.302653 * 0.03 / np.sqrt(3)
    low = score_end(0.55, min)
    assert low < 0.55 - half
    expected = {"inj": 0.55, "inj_ci95_low": low, "inj_ci95_high": 0.55 + half, "non_injective": 0.65}
    expected |= {"laundering_gap": 0.1, "collapse_0.4": 0, "collapse_0.5": 0, "collapse_0.6": 1}
    assert {name: float(row[name]) for name in expected} == pytest.approx(expected)
    assert row["inj_ci95_method"] == "approximate t and score"
    assert row["recovery"] == "", "undefined is empty"


def test_csv_has_the_columns_of_every_result(tmp_path):
    """The first row is of a result from before INJ was recorded by alignment."""
    save_run(tmp_path / "old", {"learned": arm(0.9)})
    new = Path(save_run(tmp_path / "new", {"learned": arm(0.5)}))
    document = json.loads((new / "result.json").read_text())
    (found,) = document["arms"]
    found["inj_by_alignment"] = {"raw": found["non_injective"]}
    (new / "result.json").write_text(json.dumps(results.sealed(document, (new / "fits.npz").read_bytes())))
    assert run(tmp_path, "--csv", tmp_path / "l.csv") == 0
    rows = csv_rows(tmp_path / "l.csv")
    assert [row["result"] for row in rows] == ["old", "new"]
    assert rows[0]["inj_raw"] == ""
    assert float(rows[1]["inj_raw"]) == pytest.approx(0.6)
    assert float(rows[0]["chance"]) == pytest.approx(1 / 9)


def test_runs_are_ranked_within_their_protocol_only(tmp_path, capsys):
    save_run(tmp_path / "a", {"learned": arm(0.3, 10)}, restarts=5, steps=2000)
    save_run(tmp_path / "b", {"learned": arm(0.5, 10), "factorial": arm(0.7, 10)}, restarts=5, steps=2000)
    save_run(tmp_path / "c", {"learned": arm(0.9)}, restarts=2, steps=500)
    save_run(tmp_path / "d", {"learned": arm(0.8, 10)}, restarts=5, steps=2000, batch_size=32)
    save_run(tmp_path / "e", {"learned": arm(0.6)})
    assert run(tmp_path, "--csv", tmp_path / "l.csv") == 0
    rows = [(row["protocol"], row["result"], row["assignment"]) for row in csv_rows(tmp_path / "l.csv")]
    assert rows == [
        ("custom 3 x 2 x 3", "e", "learned"),
        ("full", "b", "factorial"),
        ("full", "b", "learned"),
        ("full", "a", "learned"),
        ("full batch size 32", "d", "learned"),
        ("quick", "c", "learned"),
    ]
    header, *lines = capsys.readouterr().out.splitlines()[1:]
    assert "protocol" in header
    assert len(lines) == 6


def test_an_undefined_score_comes_last_and_is_a_dash(tmp_path, capsys):
    inj, many = arm(0.9)
    inj[0, 0] = np.nan
    save_run(tmp_path / "a", {"learned": (inj, many), "factorial": arm(0.1)})
    assert run(tmp_path) == 0
    first, last = capsys.readouterr().out.splitlines()[2:]
    assert "factorial" in first
    assert "learned" in last
    assert " -  " in last


def test_whatever_changes_the_scores_changes_the_name():
    document = {
        "protocol": "full",
        "config": {"dataset": "coco", "encoder": "dinov3", "data_seed": 2, "layer": 12, "dtype": "float32"}
        | {"weight": ["mask=0.5"], "protocol": {"tau_end": 0.1}},
        "provenance": {"grid": {"supports": ["a", "b"], "operations": ["x", "y", "z"]}, "pairs": 60},
        "arms": [{"readout": "dense", "objective": "enhanced"}],
    }
    assert name_run(document) == (
        *("coco data seed 2", "2 x 3", "60", "dinov3 layer 12 dtype float32", "dense", "enhanced mask=0.5"),
        "full tau end 0.1",
    )
    document["config"] |= {"features": "tokens.npz", "protocol": {}}
    assert (name_run(document).substrate, name_run(document).protocol) == ("tokens.npz data seed 2", "full")


def test_what_cannot_be_read_is_said_and_left_out(tmp_path, capsys):
    save_run(tmp_path / "good", {"learned": arm(0.5)})
    save_run(tmp_path / "two", {"factorial": arm(0.5)}, config={"edits": "two"})
    save_run(tmp_path / "strange", {"factorial": arm(0.5)})
    document = json.loads((tmp_path / "strange/result.json").read_text())
    del document["config"]["protocol"]
    (tmp_path / "strange/result.json").write_text(json.dumps(document))
    for name in ("broken", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text("{")
    assert run(tmp_path) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2 + 1
    assert [line.split()[2].rpartition("/")[2] for line in printed.err.splitlines()] == ["broken", "strange", "two"]


def test_a_folder_without_results_is_a_mistake(tmp_path, capsys):
    for folder, said in ((tmp_path, "holds no result"), (tmp_path / "nowhere", "is not a folder")):
        assert run(folder) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_html_shows_names_from_files_as_text(tmp_path):
    evil = "</td><script>alert(1)</script>"
    save_run(tmp_path / "a", {evil: arm(0.5)}, config={"encoder": "<b>bold</b>", "dataset": "x&y"})
    assert run(tmp_path, "--html", tmp_path / "l.html") == 0
    page = (tmp_path / "l.html").read_text()
    seen = Cells(page)
    assert {evil, "<b>bold</b>", "x&y"} <= set(seen.cells)
    assert "b" not in seen.tags
    assert page.count("<script") == 1
    assert "<script src" not in page
    assert "https:" not in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-x", "'-x"),
        (" =1", "' =1"),
        ("-inf", "'-inf"),
        ("-1.5e-3", "-1.5e-3"),
        ("+2", "+2"),
        ("pixels", "pixels"),
        ("", ""),
        (-0.25, -0.25),
        (None, None),
    ],
)
def test_csv_cells_that_a_spreadsheet_would_run_are_made_harmless(value, shown):
    assert tables.harmless(value) == shown


def test_csv_survives_commas_and_quotes_and_its_text_cells_are_harmless(tmp_path):
    inj = arm(0.5)[0]
    save_run(tmp_path / "a", {'=HYPERLINK("x")': (inj, inj - 0.01)}, config={"encoder": 'a,"b"'})
    assert run(tmp_path, "--csv", tmp_path / "l.csv") == 0
    (row,) = csv_rows(tmp_path / "l.csv")
    assert row["assignment"] == '\'=HYPERLINK("x")'
    assert row["encoder"] == 'a,"b"'
    assert float(row["laundering_gap"]) == pytest.approx(-0.01), "a negative number stays a number"
