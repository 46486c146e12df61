"""The tables of the documentation come from result folders: every table has a place, and every place its table."""

import json
from pathlib import Path

from docs import evidence
from docs import matching_tables as matching
from docs import result_tables as shown
from docs import results as documents
from soopf_jax.experiments.options import Bench, record
from soopf_jax.report.tables import Table
from soopf_jax.studies.rows import Obstacle, Places
from tests.test_reproduce import arm, document

ROOT = Path(__file__).parent.parent


def test_every_table_has_a_place_and_every_place_a_table():
    text = "".join((ROOT / page).read_text() for page in documents.PAGES)
    begun = [line.split()[2] for line in text.splitlines() if line.startswith("<!-- results ")]
    assert set(begun) == set(documents.TABLES)
    assert len(begun) == text.count("<!-- end -->")


def test_a_place_takes_its_table_and_the_rest_of_the_page_stays(monkeypatch):
    run = Bench("mujoco")
    table = evidence.ResultTable([run], lambda found: Table("", ("a", "b"), [("x\\1", "0.5")]))
    monkeypatch.setattr(documents, "TABLES", {"t": table})
    page = "before\n<!-- results t -->\nold\n<!-- end -->\nafter\n<!-- end -->"
    filled = documents.filled(page, {run: {}})
    wanted = "\n| a | b |\n| --- | ---: |\n| x\\1 | 0.5 |\n\n"
    assert filled == f"before\n<!-- results t -->\n{wanted}<!-- end -->\nafter\n<!-- end -->"
    assert documents.filled(filled, {run: {}}) == filled


def test_a_table_says_what_was_not_run(monkeypatch):
    run, gone = Bench("mujoco"), Bench("mujoco", shown.VIT)
    table = evidence.ResultTable([run, gone], lambda found: Table("", ("a",), [("new",)]))
    monkeypatch.setattr(documents, "TABLES", {"t": table})
    page, found = "<!-- results t -->\nold\n<!-- end -->", {run: {}, gone: evidence.NOT_RUN}
    assert documents.filled(page, found) == (
        "<!-- results t -->\n\n| a |\n| --- |\n| new |\n\n1 of 2 runs of this table were not done.\n\n<!-- end -->"
    )
    assert documents.missing_runs(found) == ["t: 1 of 2 runs are missing"]
    nothing = dict.fromkeys(found, evidence.NOT_RUN)
    assert "\n\n2 of 2 runs of this table were not done.\n\n" in documents.filled(page, nothing)
    assert documents.missing_runs({run: {}, gone: {}}) == []


def test_every_table_can_be_shown_without_some_of_its_results():
    """A table of which nothing was run is not shown, see above."""
    for table in shown.TABLES.values():
        found = {source: evidence.read(source) for source in table.sources}
        done = [source for source, result in found.items() if not isinstance(result, Obstacle)]
        for kept in range(1, len(done) + 1):
            table.show({source: found[source] if source in done[:kept] else evidence.NOT_RUN for source in found})


def test_rows_come_from_the_results():
    run, gone = Bench("mujoco", "pixels"), Bench("mujoco", shown.VIT)
    arms = [arm("learned", [0.5, 0.7]) | {"exact_recovery": 0.25, "validation": 0.9}]
    table = shown.arms_table(shown.ENCODER | shown.ASSIGNMENT)
    header, (row,) = table({run: document(*arms, provenance={"pairs": 900}), gone: evidence.NOT_RUN})[1:]
    row = dict(zip(header, row, strict=True))
    assert (row["encoder"], row["assignment"], row["INJ"], row["validation"]) == (
        *("pixels", "learned", "0.600", "0.900"),
    )


def decided(**names):
    """What benchmarks/matching.py says about some grids."""
    shares = {"recovery": 0.5, "exact": 0.25, "unidentifiable": 0.7, "search_gap": 0.05, "best_of_all": 0.95}
    return names | shares | {"lead": 4.125}


def test_grids_before_training_are_shown_beside_a_random_one():
    vit, *rest = reversed(matching.PLACEMENTS)
    row = decided(dataset="mujoco", encoder=shown.VIT)
    made = {"chance": {"recovery": 0.4183, "exact": 0.0001}, "rows": [row]}
    header, (first, last) = matching.placement({vit: made} | dict.fromkeys(rest, evidence.NOT_RUN))[1:]
    assert header == (
        *("data set/encoder", "recovery", "exact", "a wrong grid fits better", "search gap", "best of all grids"),
    )
    assert first == ("mujoco/ViT-S/14", "0.500", "0.250", "0.700", "0.050", "0.950")
    assert last == ("a random grid", "0.418", "0.000", "", "", "")


def test_ways_to_recognise_an_operation_are_rows():
    table = matching.ways({matching.WAYS: {"rows": [decided(way="by its smell")]}})
    assert table.header[0::6] == ("how an operation is recognised", "lead in SDs")
    assert table.rows == [("by its smell", "0.500", "0.250", "0.700", "0.050", "0.950", "4.12")]


def test_searches_have_their_sizes_side_by_side():
    rows = [
        {"method": method, "channels": 16, "side": side, "found": side, "trials": 9, "cpu_seconds": seconds}
        | {"unidentifiable": side - 4 if method == "one" else 0}
        for method, seconds in (("one", 0.25), ("other", 1.5))
        for side in (4, 6)
    ]
    header, rows = matching.searches({matching.SEARCHES: {"rows": rows}})[1:]
    assert header == ("method", "channels", "4 x 4", "6 x 6", "seconds, 4 x 4", "seconds, 6 x 6")
    assert rows == [
        ("one", "16", "4/9", "6/9", "0.250", "0.250"),
        ("other", "16", "4/9", "6/9", "1.500", "1.500"),
        ("(a wrong grid fits better)", "16", "0/9", "2/9", "", ""),
    ]


def test_a_run_is_read_from_the_evidence_if_it_has_the_choices_of_today(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    run = Bench("mujoco", assignment=("learned",))
    assert evidence.read(run) is evidence.NOT_RUN
    config = record(run, ["key of the features"]) | {"assignment": ["learned"], "objective": "core"}
    kept = {"config": config, "arms": [arm("learned", [0.5, 0.7])]}
    evidence.path(run).write_text(json.dumps(kept))
    assert evidence.read(run) == kept
    config["protocol"]["query_sd"] = 0.125
    evidence.path(run).write_text(json.dumps(kept))
    assert evidence.read(run) is evidence.NOT_RUN


def test_a_run_with_the_usual_assignments_is_known_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    names = {"assignment": ["factorial", "learned", "compressed"], "objective": "core"}
    kept = {"config": record(Bench(), ()) | names}
    evidence.path(Bench()).write_text(json.dumps(kept))
    assert evidence.read(Bench()) == kept


def test_a_command_leaves_its_file_as_evidence_and_a_failing_one_leaves_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path / "evidence")
    source = tmp_path / "made.json"
    source.write_text('{"rows": [1]}')
    copy, wrong = (
        evidence.Command(("json.tool", str(name)), "copy.json", (f"{evidence.OUT}/copy.json",))
        for name in (source, tmp_path / "nothing")
    )
    for command in (copy, wrong):
        assert evidence.read(command) is evidence.NOT_RUN
        evidence.carry_out(command, Places(tmp_path / "runs", "data"))
    assert evidence.read(copy) == {"rows": [1]}
    assert evidence.read(wrong) is evidence.NOT_RUN
    assert "not run: python -m json.tool" in capfd.readouterr().err


def test_rows_of_a_csv_file_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    command = evidence.Command(("a", "b"), "rows.csv")
    evidence.path(command).write_text("inj,layer\n0.5,\n")
    assert evidence.read(command) == {"rows": [{"inj": "0.5", "layer": ""}]}


def test_the_evidence_is_of_runs_that_tables_show():
    wanted = {evidence.path(source) for table in shown.TABLES.values() for source in table.sources}
    assert set(evidence.EVIDENCE.glob("*")) <= wanted
