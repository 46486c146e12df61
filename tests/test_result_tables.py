"""The tables of the documentation come from result folders: every table has a place, and every place its table."""

import json
from pathlib import Path

from docs import results as documents
from soopf_jax.experiments.options import Bench, record
from soopf_jax.report.tables import Table
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


def test_a_table_stays_until_all_its_runs_are_there(monkeypatch):
    run, gone = Bench("mujoco"), Bench("mujoco", documents.VIT)
    table = documents.ResultTable([run, gone], lambda found: Table("", ("a",), [("new",)]))
    monkeypatch.setattr(documents, "TABLES", {"t": table})
    page, found = "<!-- results t -->\nold\n<!-- end -->", {run: {}, gone: documents.NOT_RUN}
    assert documents.filled(page, found) == page
    assert documents.missing_runs(found) == ["t: 1 of 2 runs are missing; the table stays as it is"]
    assert "old" not in documents.filled(page, {run: {}, gone: {}})
    assert documents.missing_runs({run: {}, gone: {}}) == []


def test_rows_come_from_the_results():
    run, gone = Bench("mujoco", "pixels"), Bench("mujoco", documents.VIT)
    arms = [arm("learned", [0.5, 0.7]) | {"exact_recovery": 0.25, "validation": 0.9}]
    table = documents.arms_table(documents.ENCODER | documents.ASSIGNMENT)
    header, (row,) = table({run: document(*arms, provenance={"pairs": 900}), gone: documents.NOT_RUN})[1:]
    shown = dict(zip(header, row, strict=True))
    assert (shown["encoder"], shown["assignment"], shown["INJ"], shown["validation"]) == (
        *("pixels", "learned", "0.600", "0.900"),
    )


def test_a_run_is_read_from_the_evidence_if_it_has_the_choices_of_today(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "EVIDENCE", tmp_path)
    run = Bench("mujoco")
    assert documents.read(run) is documents.NOT_RUN
    config = record(run, ["key of the features"])
    kept = {"config": config, "arms": [arm("learned", [0.5, 0.7])]}
    documents.evidence(run).write_text(json.dumps(kept))
    assert documents.read(run) == kept
    config["protocol"]["query_sd"] = 0.125
    documents.evidence(run).write_text(json.dumps(kept))
    assert documents.read(run) is documents.NOT_RUN


def test_the_evidence_is_of_runs_that_tables_show():
    wanted = {documents.evidence(run) for table in documents.TABLES.values() for run in table.runs}
    assert set(documents.EVIDENCE.glob("*.json")) <= wanted
