"""The names of runs: whatever changes scores, or should make a reader careful, is in the name."""

from soopf_jax.experiments.naming import name_run, with_caveat
from soopf_jax.experiments.notes import uncertain_form
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.assignments import FACTORIAL
from soopf_jax.fitting.objectives import CORE
from soopf_jax.paper import paper_tables, published
from soopf_jax.readouts.bilinear import READOUT
from soopf_jax.report import page
from soopf_jax.studies.rows import Obstacle
from tests.report_result import dealt_result


def of_readout(readout):
    document = dealt_result().document
    for arm in document["arms"]:
        arm["readout"] = readout
    return document


def test_bilinear_is_marked_and_other_readouts_are_not():
    assert with_caveat("Bilinear, factorial Q", "bilinear") == "Bilinear, factorial Q (form unknown)"
    assert with_caveat("dense", "dense") == "dense"


def test_every_place_that_shows_a_readout_marks_bilinear():
    assert name_run(of_readout("bilinear")).readout == "bilinear (form unknown)", "leaderboard and comparison"
    assert name_run(of_readout("soopf")).readout == "soopf"
    assert "readout bilinear (form unknown), objective core" in page.facts(of_readout("bilinear"))
    (warning,) = uncertain_form(Arm(READOUT, FACTORIAL, CORE, "bilinear"))
    assert warning == "readout bilinear: form unknown; the paper gives no equation for it"
    assert uncertain_form(Arm(READOUT, FACTORIAL, CORE, "soopf")) == []


def test_the_papers_tables_mark_every_bilinear_row():
    paper = published.load()
    marked = 0
    for table in paper.tables.values():
        sheet = paper_tables.against_paper(paper, table, lambda row: Obstacle("no data", "get it"))
        titles = [row[0] for row in sheet.table.rows if row[0]]
        assert [title.endswith("(form unknown)") for title in titles] == [
            entry.row.readout == "bilinear" for entry in table.entries
        ]
        marked += sum(title.endswith("(form unknown)") for title in titles)
    assert marked == 5, "three data sets, the ablation and the appendix"


def test_another_scale_of_stripes_is_in_the_name_of_the_data_set():
    document = dealt_result().document
    assert name_run(document).substrate == "shapes3d-lite"
    document["config"] |= {"stripe_unit": "radians", "stripe_size": 128}
    assert name_run(document).substrate == "shapes3d-lite stripe unit radians stripe size 128"
