"""Two edits at once: combinations enumerated, images and scores by hand, planted grids, the command line."""

import hashlib
import itertools
import json
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax import bench
from soopf_jax.errors import UserError
from soopf_jax.experiments import options, results, two_edits
from soopf_jax.fitting import train
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.stats import FitStats
from soopf_jax.fitting.train import Session
from soopf_jax.grid import Grid
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.report import page
from soopf_jax.scoring import metrics, score
from soopf_jax.scoring.align import SlotMap
from soopf_jax.substrates import coco, edits, folder, pairs
from soopf_jax.substrates import shapes3d_lite as lite
from soopf_jax.types import SubstrateRequest
from tests.environment import optimised
from tests.planted import GRID, planted_table

TWO = SubstrateRequest("shapes3d-lite", edits=2)
ALIGNED = SlotMap(np.arange(3), np.arange(3))

# ----------------------------------------------------------------------------------------- combinations


@given(st.integers(2, 5), st.integers(2, 5))
def test_combinations_are_two_different_supports_and_any_two_operations(n_supports, n_operations):
    grid = Grid.of([f"s{s}" for s in range(n_supports)], [f"o{o}" for o in range(n_operations)])
    operations = range(n_operations)
    expected = {
        (grid.cell(s, o), grid.cell(t, p))
        for s, t in itertools.combinations(range(n_supports), 2)
        for o, p in itertools.product(operations, operations)
    }
    assert set(grid.combinations(2)) == expected
    assert list(grid.combinations(2)) == sorted(expected)
    assert len(expected) == n_supports * (n_supports - 1) // 2 * n_operations**2
    assert grid.combinations(1) == tuple((cell,) for cell in range(grid.n_cells))
    assert grid.combination_names(1) == grid.cell_names


def test_names_of_combinations():
    assert GRID.combination_names(2)[:4] == (
        "floor/hue+wall/hue",
        "floor/hue+wall/invert",
        "floor/hue+wall/pattern",
        "floor/hue+object/hue",
    )
    assert len(GRID.combination_names(2)) == 27


# ------------------------------------------------------------------------------------------------ images


def test_twenty_pairs_of_each_combination_unless_more_are_asked_for():
    substrate = lite.open_substrate(TWO)
    np.testing.assert_array_equal(substrate.cell, np.arange(540) // 20)
    assert substrate.identity["edits"] == 2
    assert "edits" not in lite.open_substrate(TWO._replace(edits=1)).identity
    assert len(lite.open_substrate(TWO._replace(pairs_per_cell=3)).cell) == 81


def by_hand(name: str, number: int, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, edited image and region: two edits one after the other, in their order or (-1) the other way round."""
    stream = hashlib.sha256(f"0/{name}/{number}".encode()).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(stream, "big")))
    scene = lite.Scene(*(int(size * rng.random()) for size in lite.FACTOR_SIZES))
    source, region = lite.draw_scene(scene), lite.view(*scene[3:]).region
    steps = []
    for cell in name.split("+"):
        support, operation = cell.split("/")
        if operation == "hue":
            hue = (scene[lite.SUPPORTS.index(support)] + 1 + int(9 * rng.random())) % 10
            edit = partial(painted_over, lite.draw_scene(scene._replace(**{f"{support}_hue": hue})))
        else:
            edit = edits.draw_edit(operation, rng, edits.SHAPES3D_STRIPES, 64)
        steps.append((edit, region == lite.SUPPORTS.index(support)))
    image = source
    for edit, mask in steps[::order]:
        image = edit(image, mask)
    return source, image, region


def painted_over(recoloured: np.ndarray, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask[:, :, None], recoloured, image)


@pytest.mark.parametrize("order", [1, -1])
def test_two_edits_at_once_are_one_after_the_other_in_any_order(order):
    substrate = lite.open_substrate(TWO._replace(pairs_per_cell=2))
    rendered = substrate.render(range(54))
    for pair, cell in enumerate(substrate.cell):
        expected = by_hand(substrate.grid.combination_names(2)[cell], pair % 2, order)
        for found, image in zip(rendered, expected, strict=True):
            np.testing.assert_array_equal(found[pair], image)


def test_every_operation_changes_both_regions_and_nothing_else():
    five = TWO._replace(operations=edits.OPERATIONS, pairs_per_cell=1)
    substrate = lite.open_substrate(five)
    assert len(substrate.cell) == 75
    rendered = substrate.render(range(75))
    support, _ = substrate.grid.axes(np.array(substrate.grid.combinations(2))[substrate.cell])
    changed = (rendered.source != rendered.edited).any(axis=3)
    inside = [rendered.region == edited[:, None, None] for edited in support.T]
    assert not (changed & ~inside[0] & ~inside[1]).any()
    assert all((changed & region).any(axis=(1, 2)).all() for region in inside)


def test_a_pair_does_not_depend_on_what_else_is_asked_for():
    some = lite.open_substrate(TWO._replace(pairs_per_cell=2)).render([0, 53, 11])
    fewer = lite.open_substrate(TWO._replace(pairs_per_cell=6)).render([0, 26 * 6 + 1, 5 * 6 + 1])
    for one, other in zip(some, fewer, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_overlay_starts_from_the_source_whatever_else_was_edited():
    """A blur would carry the other edit's new colours over the edge if it came after it."""
    grid = Grid.of(lite.SUPPORTS, ("hue", "blur"))
    plan = pairs.PairPlan(grid, 1, 0, n_edits=2)
    (pair,) = np.flatnonzero(np.array(grid.combination_names(2)) == "floor/hue+wall/blur")
    drawn = pairs.draw(plan, int(pair), lite.make_stage(lite.FACTOR_SIZES))
    ((support, blur),) = drawn.overlays
    source, edited, region = pairs.render_draw(drawn, lite.draw_scene, lite.region_of)
    mask = region == support
    np.testing.assert_array_equal(edited[mask], blur(source, mask)[mask])


@pytest.mark.parametrize("dataset", [coco, folder])
def test_data_sets_of_single_edits_say_which_have_two(dataset):
    with pytest.raises(UserError, match="--edits two works on shapes3d-lite, shapes3d and mujoco"):
        dataset.open_substrate(SubstrateRequest("some", edits=2))


# ------------------------------------------------------------------------------------------------ scores

CASES = {
    # Energies by cell, and (joint, at least one, support pair, support pair of the top two) for edited cells 0 and 4.
    "both cells": ({0: 0.5, 4: 0.4, 8: 0.1}, (True, True, True, True)),
    "top two in one support": ({0: 0.35, 1: 0.33, 4: 0.3, 8: 0.02}, (False, True, True, False)),
    "energy spread over a third support": (
        {0: 0.3, 4: 0.25, 6: 0.15, 7: 0.15, 8: 0.15},
        (True, True, False, True),
    ),
    "right supports, wrong operations": ({1: 0.5, 3: 0.4, 8: 0.1}, (False, False, True, True)),
    "one cell right, one support wrong": ({4: 0.5, 8: 0.4, 0: 0.1}, (False, True, False, False)),
    "all wrong": ({7: 0.5, 8: 0.4, 0: 0.1}, (False, False, False, False)),
}


def energies() -> np.ndarray:
    """Those of CASES, a row each."""
    rows = np.zeros((len(CASES), 9), np.float32)
    for row, (energy, _) in zip(rows, CASES.values(), strict=True):
        row[list(energy)] = list(energy.values())
    return rows


def combination(*cells: int) -> int:
    return GRID.combinations(2).index(cells)


def expected_hits() -> np.ndarray:
    return np.array([hits for _, hits in CASES.values()]).T


def test_scores_of_energies_written_by_hand():
    found = two_edits.score_pairs(energies(), np.full(len(CASES), combination(0, 4)), ALIGNED, GRID)
    np.testing.assert_array_equal(np.stack(list(found.values())), expected_hits())


def test_permuted_slots_are_put_in_order_first():
    slots = SlotMap(np.array([2, 0, 1]), np.array([1, 2, 0]))
    permuted = np.empty_like(energies())
    for cell in range(9):
        permuted[:, slots.slot(cell, GRID)] = energies()[:, cell]
    edited = np.full(len(CASES), combination(0, 4))
    in_order, out_of_order = (two_edits.score_pairs(permuted, edited, bound, GRID) for bound in (slots, ALIGNED))
    np.testing.assert_array_equal(np.stack(list(in_order.values())), expected_hits())
    assert not np.array_equal(np.stack(list(out_of_order.values())), expected_hits())


def test_of_equal_values_the_first_count():
    values = np.array([[1, 3, 3, 3], [2, 2, 5, 2], [0, 0, 0, 0]], float)
    np.testing.assert_array_equal(two_edits.top_two(values), [[1, 2], [0, 2], [0, 1]])


def test_chance_is_the_mean_over_all_pairs_of_cells_and_of_supports():
    cells = list(itertools.combinations(range(9), 2))
    energy = np.array([np.isin(range(9), drawn) for drawn in cells], np.float32)
    hits = two_edits.score_pairs(energy, np.full(36, combination(2, 6)), ALIGNED, GRID)
    chance = metrics.chance(metrics.TWO_EDITS, GRID)
    for name in ("joint", "at_least_one", "support_pair_of_top_two"):
        assert chance[name] == pytest.approx(hits[name].mean())
    assert chance["joint"] == 1 / 36
    assert chance["support_pair"] == 1 / 3


def test_the_best_restart_of_each_seed_counts():
    """Two seeds of two restarts; of 27 pairs, one per combination, each fit names all, none or the first nine."""
    edited = np.array(GRID.combinations(2))
    right, wrong = np.zeros((2, 27, 9), np.float32)
    right[np.arange(27)[:, None], edited] = 1
    wrong[:, [0, 1]] = 1  # two operations on one support: never both right
    first_nine = np.concatenate([right[:9], wrong[9:]])
    fits = Fits(*np.array([[0, 0, 1, 1], [-1] * 4, [0, 1, 0, 1]], np.int32))
    stats = FitStats(
        validation=np.array([0.6, 0.9, 0.8, 1.0], np.float32),
        c_sup=np.tile(np.eye(3, dtype=np.float32), (4, 1, 1)),
        c_op=np.tile(np.eye(3, dtype=np.float32), (4, 1, 1)),
        q=np.tile(np.eye(9, dtype=np.float32), (4, 1, 1)),
        test_counts=np.zeros((4, 9), np.int32),
        failed=np.array([False, False, False, True]),
    )
    energy = np.stack([wrong, right, first_nine, np.full_like(right, np.nan)])
    shares = two_edits.score_fits(energy, np.arange(27), stats, GRID)
    np.testing.assert_allclose(shares["joint"].mean(axis=1), [0, 1, 1 / 3, np.nan])
    selected = np.array([False, True, True, False])
    np.testing.assert_array_equal(score.select_restarts(fits, stats), selected)
    joint = two_edits.spread(fits, selected, shares["joint"], GRID)
    assert joint["per_seed"] == pytest.approx([1, 1 / 3])
    assert (joint["mean"], joint["sd"]) == pytest.approx((2 / 3, 1 / 3))
    assert joint["ci95"] is None, "two seeds"
    assert list(joint["per_combination"]) == list(GRID.combination_names(2))
    assert list(joint["per_combination"].values()) == [1] * 9 + [0.5] * 18


def test_a_seed_without_a_fit_leaves_the_scores_undefined():
    fits = Fits(*np.array([[0, 1], [-1, -1], [0, 0]], np.int32))
    shares = np.array([np.ones(27), np.full(27, np.nan)])
    found = two_edits.spread(fits, np.array([True, False]), shares, GRID)
    assert (found["mean"], found["ci95"], found["per_seed"]) == (None, None, [1.0, None])


def test_seeds_that_read_everything_have_the_error_of_counting_the_test_pairs():
    fits = Fits(*np.array([[0, 1, 2], [-1] * 3, [0] * 3], np.int32))
    found = two_edits.spread(fits, np.ones(3, bool), np.ones((3, 27)), GRID, pairs=540)
    assert found["ci95"] == pytest.approx([1 / (1 + 4.302653**2 / (3 * 540)), 1])  # t of 2 degrees


# -------------------------------------------------------------------------------------------- experiments

PROTOCOL = Protocol(seeds=2, restarts=2, steps=300)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def planted(work):
    shown = []
    test = planted_table(4, edits=2)
    session = Session(work, on_arm=shown.append)
    with optimised():
        result = two_edits.benchmark(planted_table(), test, protocol=PROTOCOL, session=session)
    assert shown == result.document["arms"]
    return result


def test_a_readout_of_single_edits_reads_both_of_two(planted):
    (arm,) = planted.document["arms"]
    scores = arm["two_edits"]
    assert scores["joint"]["mean"] >= 0.95
    assert all(scores[name]["mean"] >= scores["joint"]["mean"] for name in ("at_least_one", "support_pair_of_top_two"))
    assert scores["support_pair"]["mean"] >= 0.95
    assert arm["assignment"] == "factorial"
    assert arm["validation"] >= 0.99
    assert (arm["n_fits"], arm["distinct_support_rate"]) == (2, 1.0)


def test_the_result_keeps_to_the_schema_and_no_cell_was_held_out(planted):
    document = planted.document
    jsonschema.validate(document, results.schema())
    json.dumps(document, allow_nan=False)
    (arm,) = document["arms"]
    for name in ("inj", "non_injective"):
        assert (arm[name]["mean"], arm[name]["per_cell"]) == (None, {})
    assert (document["protocol"], document["tests"], document["warnings"]) == ("custom", [], [])
    assert document["provenance"]["test_pairs"] == 108
    assert document["provenance"]["effective_batch_size"] == 72
    assert document["provenance"]["features"]["geometry"]["where_probe"] == 1  # of the single edits
    assert "geometry" not in document["provenance"]["test_features"]
    assert set(planted.fits["held_out"]) == {-1}
    assert len(planted.fits["joint"]) == 4
    selected = planted.fits["joint"][planted.fits["selected"]]
    assert arm["two_edits"]["joint"]["per_seed"] == pytest.approx(selected)


def test_the_report_shows_every_combination(planted):
    files = page.pages(planted)
    names = ("two_edit_scores", "training_curves")
    assert set(files) == {"report.html", *(f"figures/{name}.{kind}" for name in names for kind in ("svg", "png"))}
    html = files["report.html"].decode()
    assert "two edits, 2 seeds x 2 restarts on all 9 cells, 300 steps" in html
    assert html.count("not the paper&#x27;s 5 seeds") == 1
    assert all(f"<td>{name}</td>" in html for name in GRID.combination_names(2))


def test_labels_dealt_at_random_are_met_by_chance_and_trained_fits_are_not_trained_again(planted, work, monkeypatch):
    monkeypatch.setattr(train.GroupOfFits, "train", lambda *_: pytest.fail("trained again"))
    test = planted_table(4, edits=2)
    dealt = test._replace(cell=np.random.default_rng(0).permutation(test.cell))
    result = two_edits.benchmark(planted_table(), dealt, protocol=PROTOCOL, session=Session(work))
    # A perfect reading meets one label in 27: 4 of 108 pairs, with a deviation of 2.
    assert result.document["arms"][0]["two_edits"]["joint"]["mean"] < 0.1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"assignments": ["learned"]}, "leave --assignment out, or factorial"),
        ({"assignments": ["factorial", "learned"]}, "leave --assignment out, or factorial"),
        ({"readout": "mlp"}, "with --readout soopf, dense or bilinear"),
        ({"readout": "oracle"}, "not told the edited support"),
        ({"readout": READOUT._replace(sees=("support",))}, "not told the edited support"),
        ({"readout": READOUT._replace(sees=("region",))}, "needs region maps"),
        ({"test": planted_table(2)}, "all 27 combinations, such as floor/invert\\+object/hue"),
        ({"test": planted_table(2, edits=2, channels=12)}, "differ in grid, patches or channels"),
        ({"table": planted_table(4)._replace(region=None)}, "at least 5"),
    ],
)
def test_what_cannot_be_tested_gets_one_line(parts, message):
    tables = {"table": planted_table(6)._replace(region=None), "test": planted_table(2, edits=2)}
    with pytest.raises(UserError, match=message):
        two_edits.benchmark(**(tables | parts))


# -------------------------------------------------------------------------------------------- command line


def test_five_seeds_unless_others_are_asked_for():
    for args in (["--edits", "two"], ["--edits=two"]):
        assert bench.parse(args).protocol == Protocol(5, 5, 2000)
    assert bench.parse(["--edits", "two", "--seeds", "2"]).protocol.seeds == 2
    assert bench.parse(["--quick", "--edits", "two"]).protocol.seeds == 3
    assert bench.parse(["--edits", "one"]).protocol.seeds == 10
    assert two_edits.TWO_EDITS.label(Protocol(5, 5, 2000)) == "full"
    assert two_edits.TWO_EDITS.label(Protocol(3, 2, 500)) == "quick"
    assert two_edits.TWO_EDITS.label(Protocol(10, 5, 2000)) == "custom"


def test_the_configuration_names_the_features_of_both_tables():
    config = options.record(bench.parse([]), ["key"])
    assert (config["edits"], config["features_key"]) == ("one", "key")
    assert "test_features_key" not in config
    assert options.record(bench.parse(["--edits", "two"]), ["a", "b"])["test_features_key"] == "b"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--edits", "tow"], "did you mean 'two'?"),
        (["--edits", "two", "--features", "x.npz"], "leave --edits or --features out"),
        (["--edits", "two", "--assignment", "learned"], "leave --assignment out, or factorial"),
        (["--edits", "two", "--dataset", "coco"], "--edits two works on shapes3d-lite, shapes3d and mujoco"),
        (["--edits", "two", "--dataset", "folder:x"], "--edits two works on shapes3d-lite, shapes3d and mujoco"),
        (["--edits", "two", "--dataset", "tests.tiny_parts:open_substrate"], "has no pairs with two edits"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(args, said, capsys):
    assert bench.main(args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err


def test_a_run_from_the_command_line(tmp_path, capsys):
    args = ["--edits", "two", "--pairs-per-cell", "5", "--seeds", "2", "--restarts", "1", "--steps", "3"]
    args += ["--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]
    assert bench.main(args) == 0
    out = capsys.readouterr().out
    assert out.startswith("shapes3d-lite, pixels: two edits, 2 seeds x 1 restart on all 9 cells, 3 steps (custom")
    assert "chance: joint 0.028, at least one 0.417, support pair 0.333, pair of top two 0.250" in out
    document = results.load(tmp_path / "run").document
    assert document["config"]["edits"] == "two"
    assert document["provenance"]["test_pairs"] == 540
    assert bench.main(args) == 0
    again = capsys.readouterr().out
    assert again.startswith("already done: ")
    assert out.splitlines()[2] in again
