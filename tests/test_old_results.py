"""Results that earlier commits wrote (tests/data/README.md) are read, shown and compared by today's program."""

import csv
import json
import shutil
from pathlib import Path

import pytest

import soopf_jax as soopf
from soopf_jax import compare, leaderboard
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.naming import name_run
from soopf_jax.report import summary

OLD = Path(__file__).parent / "data"
FIRST, NEXT = OLD / "result-64dab90", OLD / "result-320fa28"


def raw(folder):
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("folder", [FIRST, NEXT], ids=lambda folder: folder.name)
def test_every_score_of_an_old_result_is_read_as_it_was_written(folder):
    written, read = raw(folder), results.load(folder).document
    assert written["schema_version"] == 1
    assert {**read, "config": None} == {**written, "config": None}
    inj = soopf.load(folder).arms["factorial"].inj
    assert (inj.mean, inj.per_seed[0], inj.per_cell["left/blur"]) == pytest.approx((0.675, 0.75, 0.8))


def test_what_an_old_protocol_does_not_name_is_what_the_run_did_and_not_what_is_usual_today():
    assert "alignment" not in raw(FIRST)["config"]["protocol"]
    assert "query_sd" not in raw(NEXT)["config"]["protocol"]
    for folder in (FIRST, NEXT):
        named = name_run(results.load(folder).document)
        assert named.protocol == "custom 2 x 2 x 5 query sd 0.0 alignment soft"


def test_the_board_lists_old_results(tmp_path):
    assert leaderboard.main([str(OLD), "--csv", str(tmp_path / "board.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "board.csv").open()))
    found = {(row["result"], row["assignment"]): float(row["inj"]) for row in rows}
    expected = {"factorial": 0.675, "learned": 0.55}
    assert found == pytest.approx({(f.name, name): inj for f in (FIRST, NEXT) for name, inj in expected.items()})


def test_two_old_results_with_one_protocol_are_compared(tmp_path, capsys):
    """Both commits computed the same scores, one with its alignment named and one without: all differences are zero."""
    assert compare.main([str(FIRST), str(NEXT), "--json", str(tmp_path / "c.json")]) == 0, capsys.readouterr().err
    pairs = json.loads((tmp_path / "c.json").read_text())["comparisons"]
    assert [pair["mean_difference"] for pair in pairs] == [0.0, 0.0]


def test_an_old_result_is_printed_and_reported(tmp_path):
    result = soopf.load(FIRST)
    printed = next(line for line in summary.text(result.document).splitlines() if line.startswith("factorial "))
    assert "0.675" in printed
    result.report(tmp_path / "report.html")
    assert "0.675" in (tmp_path / "report.html").read_text()


# --------------------------------------------------------------------------------------------------- later versions


@pytest.fixture
def later(tmp_path):
    """A result that a later version has written."""
    folder = shutil.copytree(NEXT, tmp_path / "runs" / "later")
    document = raw(folder) | {"schema_version": 2, "something": "new"}
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def test_a_result_of_a_later_version_is_refused_in_one_line(later, capsys):
    with pytest.raises(UserError) as refused:
        results.load(later)
    said = str(refused.value)
    assert "newer version of soopf_jax" in said
    assert "schema version 2" in said
    assert said.endswith("upgrade soopf_jax")
    assert "--overwrite" not in said, "running it again would lose a good result"
    assert compare.main([str(NEXT), str(later)]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


def test_the_board_leaves_out_what_a_later_version_wrote(later, capsys):
    shutil.copytree(NEXT, later.parent / "old")
    assert leaderboard.main([str(later.parent)]) == 0
    printed = capsys.readouterr()
    assert "left out: " in printed.err
    assert "newer version" in printed.err
    assert "later" not in printed.out


@pytest.mark.parametrize("version", [0, "1", None, True, 1.5])
def test_what_is_no_version_is_damage(later, version):
    document = raw(NEXT) | {"schema_version": version}
    (later / "result.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="cannot be read as a run"):
        results.load(later)
