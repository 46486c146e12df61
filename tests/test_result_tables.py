"""The tables of the documentation come from result folders: every table has a place, and every place its table."""

from pathlib import Path

import numpy as np

from docs import results as documents
from soopf_jax.experiments.options import Bench
from soopf_jax.report.tables import Table
from soopf_jax.studies.rows import Places, folder
from tests.result_folders import save_run
from tests.test_reproduce import arm, document

ROOT = Path(__file__).parent.parent


def test_every_table_has_a_place_and_every_place_a_table():
    text = "".join((ROOT / page).read_text() for page in documents.PAGES)
    begun = [line.split()[2] for line in text.splitlines() if line.startswith("<!-- results ")]
    assert set(begun) == set(documents.TABLES)
    assert len(begun) == text.count("<!-- end -->")


def test_a_place_takes_its_table_and_the_rest_of_the_page_stays(monkeypatch):
    run = Bench("mujoco")
    table = documents.ResultTable([run], lambda found: Table("", ("a", "b"), [("x\\1", "0.5")]))
    monkeypatch.setattr(documents, "TABLES", {"t": table})
    page = "before\n<!-- results t -->\nold\n<!-- end -->\nafter\n<!-- end -->"
    filled = documents.filled(page, {run: {}})
    wanted = "\n| a | b |\n| --- | ---: |\n| x\\1 | 0.5 |\n\n"
    assert filled == f"before\n<!-- results t -->\n{wanted}<!-- end -->\nafter\n<!-- end -->"
    assert documents.filled(filled, {run: {}}) == filled
    missing = documents.filled(page, {run: documents.NOT_RUN})
    assert "1 of 1 runs of this table were not done." in missing


def test_rows_come_from_the_results():
    run, gone = Bench("mujoco", "pixels"), Bench("mujoco", documents.VIT)
    arms = [arm("learned", [0.5, 0.7]) | {"exact_recovery": 0.25, "validation": 0.9}]
    table = documents.arms_table(documents.ENCODER | documents.ASSIGNMENT)
    header, (row,) = table({run: document(*arms, provenance={"pairs": 900}), gone: documents.NOT_RUN})[1:]
    shown = dict(zip(header, row, strict=True))
    assert (shown["encoder"], shown["assignment"], shown["INJ"], shown["validation"]) == (
        *("pixels", "learned", "0.600", "0.900"),
    )


def test_runs_are_read_from_the_folder_that_they_are_written_to(tmp_path):
    run = Bench("mujoco")
    places = Places(tmp_path, "data")
    assert documents.read(run, places) is documents.NOT_RUN
    save_run(tmp_path / folder(run), {"learned": (np.full((3, 9), 0.5), np.full((3, 9), 0.6))})
    assert documents.read(run, places)["arms"][0]["assignment"] == "learned"
