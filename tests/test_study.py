"""Studies: which runs a definition stands for, what they cost, and how they are carried out."""

import csv
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from soopf_jax import study
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.options import Bench
from soopf_jax.features import store_writer
from soopf_jax.fitting import compiled
from soopf_jax.fitting.protocol import PRESETS
from soopf_jax.studies import definition, outcome, planning, rows, running
from soopf_jax.studies.opening import Openers
from soopf_jax.studies.rows import Obstacle, Places
from tests import tiny_parts
from tests.faults.runs import LAYERED_PARTS
from tests.planted import GRID, SMALL_OPTIONS
from tests.programs import compilations
from tests.result_folders import save_run

TINY = Bench("tests.tiny_parts:open_substrate", "tests.tiny_parts:open_layered", assignment=("factorial",), quick=True)


def rows_of(*products, depth=12):
    return definition.rows_of(products, lambda encoder: None if encoder == "pixels" else depth)


# --------------------------------------------------------------------------------------------- the definition


def test_the_product_of_all_lists():
    runs = rows_of({"dataset": ["shapes3d-lite", "mujoco"], "encoder": ["pixels", "random-vit-s"], "layer": ["all"]})
    assert [(run.dataset, run.encoder, run.layer) for run in runs] == [
        (dataset, encoder, layer)
        for dataset in ("shapes3d-lite", "mujoco")
        for encoder, layers in (("pixels", [None]), ("random-vit-s", range(1, 13)))
        for layer in layers
    ]


def test_runs_are_planned_once_and_a_probe_has_one_assignment_and_objective():
    runs = rows_of({"readout": ["soopf", "mlp"], "objective": ["core", "enhanced"], "assignment": ["learned"]})
    assert [(run.readout, run.assignment, run.objective) for run in runs] == [
        ("soopf", ("learned",), "core"),
        ("soopf", ("learned",), "enhanced"),
        ("mlp", (), None),
    ]


def test_any_choice_of_the_protocol_can_be_varied():
    runs = rows_of(definition.parse_settings(["learning-rate=0.0025,0.01", "batch_size=32"]))
    assert [(run.choices.learning_rate, run.choices.batch_size) for run in runs] == [(0.0025, 32), (0.01, 32)]
    grids = rows_of({"operations": [["hue", "invert"], ["hue", "blur"]]})
    assert [run.operations for run in grids] == [("hue", "invert"), ("hue", "blur")]
    assert len({rows.folder(run) for run in (*runs, *grids)}) == 4


def test_a_preset_brings_its_choices():
    paper, ours, mixed = rows_of({"preset": ["paper", "ours"]}, {"preset": "ours", "alignment": "hard"})
    assert [run.protocol.preset for run in (paper, ours)] == ["paper", "ours"]
    assert ours.choices == PRESETS["ours"] != paper.choices
    assert mixed.choices == replace(PRESETS["ours"], alignment="hard")


def test_a_file_has_rows_that_are_laid_over_its_options(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        'encoder = ["random-vit-s"]\nlayer = [0.5, -1]\nsteps = 100\n[[row]]\n[[row]]\nencoder = "pixels"\nsteps = 50\n'
    )
    runs = definition.rows_of(definition.read_file(path, {"seeds": 2}), lambda name: 12 if "vit" in name else None)
    assert [(run.encoder, run.layer, run.steps, run.seeds) for run in runs] == [
        ("random-vit-s", 6, 100, 2),
        ("random-vit-s", 12, 100, 2),
        ("pixels", None, 50, 2),
    ]


def test_the_example_is_a_study(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    assert study.main([str(path), "--init"]) == 0
    assert len(definition.rows_of(definition.read_file(path, {}), {"random-vit-s": 12}.get)) == 12 + 1 + 1
    assert study.main([str(path), "--init"]) == 2, "an existing file is not overwritten"
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learning_rat": [0.1]}, "did you mean 'learning_rate'"),
        ({"out": "x"}, "unknown option of a run"),
        ({"steps": [1.5]}, "steps takes a whole number"),
        ({"quick": "yes"}, "quick takes true or false"),
        ({"encoder": []}, "encoder has no value"),
        ({"encoder": "random-vit-s", "layer": "13"}, "there is no layer '13'"),
        ({"readout": "soop"}, "did you mean 'soopf'"),
        ({"encoder": 3}, "encoder takes text, not 3"),
        ({"dataset": {"name": "mujoco"}}, "dataset takes text"),
        ({"assignment": 1}, "assignment takes a list of names"),
        ({"assignment": ["factorial", ["learned"]]}, "assignment takes a list of names"),
        ({"operations": [1, 2]}, "operations takes a list of names"),
        ({"preset": "our"}, "did you mean 'ours'"),
        ({"dry_run": True}, "unknown option of a run"),
    ],
)
def test_mistakes_in_a_definition(options, said):
    with pytest.raises(UserError, match=said):
        rows_of(options)


# ------------------------------------------------------------------------------------------- plan and runner


def planned_layers(tmp_path):
    places, openers = Places(tmp_path / "study", "data", str(tmp_path / "cache")), Openers()
    runs = [replace(TINY, layer=layer) for layer in (1, 2, None)]
    return planning.plan(dict.fromkeys(runs, ()), places, 1e9, openers=openers), places, openers


def test_layers_share_one_pass_and_each_has_its_store(tmp_path):
    planned, _, _ = planned_layers(tmp_path)
    assert [p.encoding > 0 for p in planned] == [True, False, False]
    tokens = 54 * tiny_parts.PATCHES * tiny_parts.CHANNELS
    regions = 54 * tiny_parts.PATCHES * GRID.n_supports * 4
    assert [p.disk for p in planned] == [2 * 2 * tokens + regions + 54 * 4] * 3
    assert planned[0].workload.table_bytes == 2 * 4 * tokens


@pytest.mark.parametrize(("keep", "left"), [("all", 3), ("study", 3), ("none", 0)])
def test_a_run_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, keep, left):
    planned, places, openers = planned_layers(tmp_path)
    stores = []

    def carry_out(bench, bar, given):
        stores.append(len(store_writer.list_stores(places.cache_dir)))
        if bench.layer == 2:
            raise UserError("no luck; try again")
        with bar("factorial", 10) as advance:
            advance(10)

    monkeypatch.setattr(running, "carry_out", carry_out)
    monkeypatch.setattr(running.results, "load", lambda folder: SimpleNamespace(document={"folder": folder.name}))
    found = running.carry_out_all(planned, places, openers, keep)
    first, second, third = found.values()
    assert "layer-1" in first["folder"]
    assert second == Obstacle("no luck", ("no luck; try again",))
    assert "folder" in third
    assert stores[0] == 3, "all layers were made before the first run"
    assert len(store_writer.list_stores(places.cache_dir)) == left


def test_features_that_were_there_before_are_never_removed(tmp_path, monkeypatch):
    planned, places, openers = planned_layers(tmp_path)
    running.Features(places, openers, "all").build(planned[0].run, [], lambda *_: nullcontext(lambda n: None))
    (places.runs / running.LEDGER).unlink()
    monkeypatch.setattr(running, "carry_out", lambda *_: None)
    monkeypatch.setattr(running.results, "load", lambda folder: SimpleNamespace(document={"done": True}))
    running.carry_out_all(planned, places, openers, "none")
    (kept,) = store_writer.list_stores(places.cache_dir)
    assert kept.state == "ready"


def test_one_bar_ends_where_the_plan_ends():
    shown = []
    bar = running.StudyBar(shown.append)
    for seconds in (10.6, 20.6):
        with (
            bar.row(planning.Planned(TINY, (), None, seconds, 0.0, None)) as shares,
            shares.training("x", 4) as advance,
        ):
            advance(2)
    assert sum(shown) == 31
    assert shown[0] == 5


def test_an_encoder_that_is_missing_is_reported(tmp_path):
    planned = planning.plan({Bench(encoder="hf:nobody/nothing"): ()}, Places(tmp_path, ""), 1e9)
    assert planned[0].obstacle.reason.startswith("needs hf:nobody/nothing")
    assert "not run: needs" in str(planning.plan_sheet(planned))


def test_a_damaged_result_is_the_problem_of_its_row_alone(tmp_path):
    damaged = tmp_path / "study" / rows.folder(replace(TINY, layer=2))
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text("{")
    (first, second, third), _, _ = planned_layers(tmp_path)
    assert [p.obstacle for p in (first, third)] == [None, None]
    assert second.obstacle.reason.startswith("its result cannot be read as a run: ")
    assert str(tmp_path) not in second.obstacle.reason, "the page can be published"
    assert second.obstacle.remedies[0].startswith(f"{damaged}: its result")


# ---------------------------------------------------------------------------------------------- what comes out


def test_a_result_without_a_column_is_left_out_of_the_page(tmp_path):
    """A run whose fits.npz has nothing to align, as save_run writes it, beside none at all."""
    inj = np.full((3, 9), 0.5)
    save_run(tmp_path / rows.folder(TINY), {"factorial": (inj, inj)})
    found = {TINY: {"done": True}, replace(TINY, layer=1): Obstacle("too long")}
    made, damaged = outcome.outcomes(found, tmp_path, {})
    assert made == []
    assert list(damaged) == [TINY]
    assert damaged[TINY].reason == "its fits.npz has no column C_sup"


def test_where_the_errors_lie_by_hand():
    """Of ten pairs of cell 0 (floor/hue): 5 right, 2 wall/hue, 1 floor/invert, 2 wall/invert; the other cells right."""
    counts = 10 * np.eye(9, dtype=int)
    counts[0] = [5, 1, 0, 2, 2, 0, 0, 0, 0]
    fits = {
        "arm": np.zeros(9, int),
        "seed": np.zeros(9, int),
        "selected": np.ones(9, bool),
        "held_out": np.arange(9),
        "C_sup": np.tile(np.eye(3), (9, 1, 1)),
        "C_op": np.tile(np.eye(3), (9, 1, 1)),
        "test_counts": counts,
    }
    assert outcome.errors_of(fits, 0, GRID) == pytest.approx((0.2 / 9, 0.1 / 9, 0.2 / 9))
    support, operation = outcome.by_axis(fits, 0, GRID)
    assert support == pytest.approx([(8 + 0.6) / 9])
    assert operation == pytest.approx([(8 + 0.7) / 9])


def test_a_study_goes_on_where_it_was_and_its_page_says_what_is_missing(tmp_path, monkeypatch, no_report):
    """First one row, then the plan of two, then both: a second row of equal shape compiles nothing more."""
    monkeypatch.setattr("soopf_jax.studies.cost.machine_rate", lambda: 1e11)
    places = ("--out", str(tmp_path / "study"), "--cache-dir", str(tmp_path / "cache"))
    command = (*LAYERED_PARTS, "--assignment", "learned", "--pairs-per-cell", "10", *SMALL_OPTIONS, *places)
    page, every = tmp_path / "study" / "study.html", ("--layer", "1", "last")
    compiled.forget()
    with compilations() as first:
        assert study.main([*command, "--layer", "1"]) == 0
    assert {"init", "advance", "evaluate"} <= set(first)
    assert "missing here" not in page.read_text()
    page.unlink()
    assert study.main([*command, *every, "--dry-run"]) == 0
    assert "1 run of this study is missing here" in page.read_text()
    with compilations() as more:
        assert study.main([*command, *every]) == 0
    assert not set(more) & set(first)
    assert "missing here" not in page.read_text()
    with (tmp_path / "study" / "study.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == ["1", "last"]
    for row in rows:
        fits = results.load(tmp_path / "study" / row["result"]).fits
        inj = fits["inj"][fits["selected"]].reshape(2, 9)
        assert float(row["inj"]) == pytest.approx(inj.mean())
        assert f">{inj.mean():.3f}<" in page.read_text()
