"""What a result keeps of its fits: enough to compute every score again, here with plain NumPy and SciPy."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy

from soopf_jax.errors import UserError
from soopf_jax.experiments import keeping, results, two_edits
from soopf_jax.experiments.experiment import Data
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.experiments.predictions import arrays_of
from soopf_jax.fitting import kept
from soopf_jax.fitting.checkpoint import digest_of_tree
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.train import GroupOfFits, Session
from soopf_jax.runtime.arrays import npz_bytes
from tests.planted import GRID, SMALL, planted_table, small_table

PROTOCOL = Protocol(seeds=2, restarts=2, steps=20, alignment="raw")
OPTIMISATION, VALIDATION, UNUSED = 1, 2, 0


def noisy_table():
    """A planted grid under so much noise that fits of a few steps are right about some pairs only."""
    table = planted_table(10)
    noise = np.random.default_rng(1).normal(size=(2, *table.delta.shape)).astype(np.float32)
    scale = np.random.default_rng(2).uniform(0.3, 3, size=(len(table.cell), 1, 1)).astype(np.float32)
    return table._replace(source=table.source + 2 * noise[0], delta=scale * (table.delta + 1.5 * noise[1]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with everything kept, as it is on the disk, and its table."""
    table = noisy_table()
    result = benchmark(table, assignments=["factorial", "learned"], protocol=PROTOCOL, session=Session(keep="all"))
    folder = tmp_path_factory.mktemp("kept") / "run"
    results.save(result, folder, {}, replace=False)
    return folder, table


# -------------------------------------------------------------------------------- every score, by other means


def hungarian(c):
    return scipy.optimize.linear_sum_assignment(-c)[1]


def alignment_matrix(energy, value, counted):
    return np.stack([energy[counted & (value == v)].mean(axis=0) for v in range(3)])


def fold_scores(kept_, row):
    """Every score of one fold, from its row of the predictions."""
    energy, cell, role = kept_.energy[row].astype(float), kept_.cell, kept_.role[row]
    held_out, prediction = kept_.held_out[row], kept_.energy[row].argmax(axis=1)
    np.testing.assert_array_equal(prediction, kept_.prediction[row])
    np.testing.assert_allclose(energy.sum(axis=1), 1, atol=1e-5)
    observed, tested = cell != held_out, prediction[cell == held_out]
    matched_on = {"raw": energy * kept_.scale[row][:, None], "soft": energy, "hard": np.eye(9)[prediction]}
    scores = {}
    for name, values in matched_on.items():
        grid, counted = values.reshape(-1, 3, 3), observed & (role == OPTIMISATION)
        matrices = [
            alignment_matrix(grid.sum(axis=2), cell // 3, counted),
            alignment_matrix(grid.sum(axis=1), cell % 3, counted),
        ]
        for kind, bind in (("inj", hungarian), ("many", lambda c: c.argmax(axis=1))):
            support, operation = map(bind, matrices)
            scores[kind, name] = np.mean(tested == 3 * support[held_out // 3] + operation[held_out % 3])
        scores["distinct", name] = len(set(matrices[0].argmax(axis=1))) == 3
    q = kept_.q[row].astype(float)
    read = np.where(np.arange(9) == held_out, -np.inf, energy @ q.T).argmax(axis=1)
    validating = observed & (role == VALIDATION)
    scores["validation"] = np.mean(read[validating] == cell[validating])
    permutations = list(itertools.permutations(range(3)))
    scores["recovery"] = max(
        np.mean([q[c].argmax() == 3 * s[c // 3] + o[c % 3] for c in range(9) if c != held_out])
        for s in permutations
        for o in permutations
    )
    return scores


def as_matrix(folds, key):
    """Seeds x held-out cells."""
    return np.array([[folds[seed, cell][key] for cell in range(9)] for seed in range(PROTOCOL.seeds)], float)


def check_spread(found, matrix):
    by_seed = matrix.mean(axis=1)
    assert found["mean"] == pytest.approx(by_seed.mean())
    assert found["sd"] == pytest.approx(by_seed.std())
    assert found["per_seed"] == pytest.approx(by_seed)
    assert list(found["per_cell"].values()) == pytest.approx(matrix.mean(axis=0))


@pytest.mark.parametrize("number", [0, 1])
def test_every_score_of_an_arm_follows_from_its_predictions(finished, number):
    folder, _ = finished
    kept_ = results.predictions(folder)
    arm = json.loads((folder / "result.json").read_text())["arms"][number]
    rows = np.flatnonzero(kept_.arm == number)
    folds = {(kept_.seed[row], kept_.held_out[row]): fold_scores(kept_, row) for row in rows}
    assert len(folds) == len(rows) == 18
    inj = as_matrix(folds, ("inj", PROTOCOL.alignment))
    assert 0.05 < inj.mean() < 0.95, "a table on which every score is 0 or 1 would show nothing"
    check_spread(arm["inj"], inj)
    check_spread(arm["non_injective"], as_matrix(folds, ("many", PROTOCOL.alignment)))
    for alignment in ("raw", "soft", "hard"):
        check_spread(arm["inj_by_alignment"][alignment], as_matrix(folds, ("inj", alignment)))
    assert arm["laundering_gap"] == pytest.approx((as_matrix(folds, ("many", PROTOCOL.alignment)) - inj).mean())
    assert arm["min_cell"] == pytest.approx(inj.mean(axis=0).min())
    assert arm["collapse"] == pytest.approx({str(limit): (inj < limit).mean() for limit in (0.4, 0.5, 0.6)})
    assert arm["distinct_support_rate"] == pytest.approx(as_matrix(folds, ("distinct", PROTOCOL.alignment)).mean())
    assert arm["validation"] == pytest.approx(as_matrix(folds, "validation").mean())
    if number == 1:
        assert arm["recovery"] == pytest.approx(as_matrix(folds, "recovery").mean())
        assert arm["exact_recovery"] == pytest.approx((as_matrix(folds, "recovery") == 1).mean())


def test_a_row_is_that_of_the_selected_fit(finished):
    folder, table = finished
    kept_, fits = results.predictions(folder), results.load(folder).fits
    assert fits["selected"][kept_.fit].all()
    for name in ("arm", "seed", "held_out", "restart"):
        np.testing.assert_array_equal(getattr(kept_, name), fits[name][kept_.fit])
    np.testing.assert_array_equal(kept_.q, fits["Q"][kept_.fit])
    np.testing.assert_array_equal(kept_.cell, table.cell)
    counts = [
        np.bincount(p[kept_.cell == h], minlength=9) for p, h in zip(kept_.prediction, kept_.held_out, strict=True)
    ]
    np.testing.assert_array_equal(counts, fits["test_counts"][kept_.fit])


def test_the_labels_are_those_under_which_a_learned_assignment_met_the_cells(finished):
    """Q's row of a cell is the softmax of the logits at the cell's label."""
    folder, _ = finished
    kept_, params = results.predictions(folder), results.params(folder)
    rows = np.flatnonzero(kept_.arm == 1)
    logits = params["learned"]["assignment"]["logits"].astype(float)
    for row, own in zip(rows, logits, strict=True):
        observed = np.arange(9) != kept_.held_out[row]
        expected = scipy.special.softmax(own[kept_.labels[row]], axis=1)[observed]
        np.testing.assert_allclose(kept_.q[row][observed], expected, atol=1e-5)
    assert (kept_.labels[kept_.arm == 0] == np.arange(9)).all(), "factorial sees the axes"


def test_the_example_of_the_documentation_gives_the_recorded_accuracy(finished):
    text = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    (code,) = [body for body in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "load_predictions" in body]
    scope = {}
    exec(compile(code, "docs/api.md", "exec"), scope)
    folder, _ = finished
    recorded = results.load(folder).fits["inj"][results.predictions(folder).fit]
    assert PROTOCOL.alignment == "raw"
    np.testing.assert_allclose(scope["recompute"](folder, 3), recorded, atol=1e-12)


# -------------------------------------------------------------------------------------- routers, from parameters


def masks_of(params, fold, source):
    """softmax_s <W_z z_n + p_n, q_s>, Eq. (2), pairs x patches x slots."""
    w_z, p, q = (params["readout"]["router"][name][fold].astype(float) for name in ("W_z", "p", "q"))
    return scipy.special.softmax((source @ w_z + p) @ q.T, axis=2)


def router_scores(masks, table, cell, role, held_out):
    """Mean IoU over unused pairs and agreement; regions of the planted table have one support to a patch."""
    counted, scored = (role == OPTIMISATION) & (cell != held_out), role == UNUSED
    overlap = np.einsum("pnr,pns->rs", table.region[counted].astype(float), masks[counted])
    slot = hungarian(overlap)
    hard, region = masks[scored].argmax(axis=2), table.region[scored].argmax(axis=2)
    iou = [
        [((h == slot[s]) & (r == s)).sum() / ((h == slot[s]) | (r == s)).sum() for s in range(3)]
        for h, r in zip(hard, region, strict=True)
    ]
    edited = [pair[support] for pair, support in zip(iou, cell[scored] // 3, strict=True)]
    return {"iou": np.mean(iou), "iou_edited": np.mean(edited), "agreement": np.mean(slot[region] == hard)}


def test_router_figures_follow_from_the_parameters(finished):
    folder, table = finished
    kept_, params = results.predictions(folder), results.params(folder)["learned"]
    arm = results.load(folder).document["arms"][1]
    rows, source = np.flatnonzero(kept_.arm == 1), table.source.astype(float)
    found = []
    for fold, row in enumerate(rows):
        masks = masks_of(params, fold, source)
        state = {
            "saturated": np.mean(masks.max(axis=2) > 0.99),
            "entropy": -np.mean(np.sum(masks * np.log(masks), axis=2)) / np.log(3),
            "spread": np.mean(np.ptp(np.log(masks), axis=2)),
        }
        found.append(router_scores(masks, table, kept_.cell, kept_.role[row], kept_.held_out[row]) | state)
    for name in ("iou", "iou_edited", "agreement"):
        assert arm["router"][name]["mean"] == pytest.approx(np.mean([f[name] for f in found]), abs=1e-5)
    for name in ("saturated", "entropy", "spread"):
        assert arm["router_state"][name]["end"]["mean"] == pytest.approx(np.mean([f[name] for f in found]), abs=1e-4)


# ------------------------------------------------------------------------------------------------- two edits


def test_scores_of_two_edits_follow_from_the_predictions(tmp_path):
    table = noisy_table()
    test = planted_table(2, edits=2)
    noise = np.random.default_rng(3).normal(size=test.delta.shape).astype(np.float32)
    test = test._replace(delta=test.delta + 2 * noise)
    result = two_edits.benchmark(
        table, test, protocol=Protocol(2, 1, 20, alignment="raw"), session=Session(keep="predictions")
    )
    results.save(result, tmp_path / "run", {}, replace=False)
    kept_ = results.predictions(tmp_path / "run")
    joint = []
    for row in range(2):
        energy = kept_.energy[row].astype(float) * kept_.scale[row][:, None]
        grid, counted = energy.reshape(-1, 3, 3), kept_.role[row] == OPTIMISATION
        support = hungarian(alignment_matrix(grid.sum(axis=2), kept_.cell // 3, counted))
        operation = hungarian(alignment_matrix(grid.sum(axis=1), kept_.cell % 3, counted))
        slots = [3 * support[cell // 3] + operation[cell % 3] for cell in range(9)]
        top = np.argsort(-kept_.test_energy[row][:, slots], axis=1)[:, :2]
        edited = [set(GRID.combinations(2)[c]) for c in kept_.test_cell]
        joint.append(np.mean([set(pair) == cells for pair, cells in zip(top.tolist(), edited, strict=True)]))
    assert 0 < np.mean(joint) < 1
    assert result.document["arms"][0]["two_edits"]["joint"]["per_seed"] == pytest.approx(joint)


# ------------------------------------------------------------------------------------------- what is kept when


class Interrupted(Exception):
    """Raised in place of Ctrl-C."""


def test_a_resumed_run_keeps_the_same_bytes(tmp_path):
    def run(session):
        result = benchmark(small_table(), assignments=["learned"], protocol=SMALL, session=session)
        return npz_bytes(arrays_of(result.kept.predictions)), result.kept.params

    undisturbed, params = run(Session(keep="all", lanes=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("soopf_jax.fitting.train.GroupOfFits.evaluate", _fails_the_second_time())
        with pytest.raises(Interrupted):
            run(Session(tmp_path, keep="all", lanes=1))
    assert len(list(tmp_path.glob("learned-*.npz"))) == 1
    resumed, again = run(Session(tmp_path, keep="all", lanes=1))
    assert resumed == undisturbed
    assert digest_of_tree(params) == digest_of_tree(again)


def _fails_the_second_time():
    usual, calls = GroupOfFits.evaluate, []

    def evaluate(self, state):
        calls.append(1)
        if len(calls) > 1:
            raise Interrupted
        return usual(self, state)

    return evaluate


def test_a_group_that_kept_something_else_is_trained_again(tmp_path):
    def run(keep):
        return benchmark(
            small_table(), assignments=["learned"], protocol=SMALL, session=Session(tmp_path, keep=keep)
        ).kept

    assert run("none") is None
    assert run("predictions").params is None
    assert run("all").params["learned"]["readout"]["router"]["q"].shape[:2] == (18, 3)


def test_beaten_restarts_become_zeros_and_the_best_stays():
    fits = Fits(np.zeros(4, int), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    columns = {
        "validation": np.array([0.5, 0.7, 0.6, 0.6]),
        "failed": np.array([False, False, False, False]),
        "pair_scale": np.arange(1.0, 9.0).reshape(4, 2),
        "params/readout/q": np.ones((4, 2, 2)),
    }
    first = kept.without_beaten_restarts(columns, fits, "first")
    assert first["pair_scale"].tolist() == [[0, 0], [3, 4], [5, 6], [0, 0]]
    assert first["params/readout/q"].sum(axis=(1, 2)).tolist() == [0, 4, 4, 0]
    assert first["validation"] is columns["validation"]
    assert kept.without_beaten_restarts(columns, fits, "last")["pair_scale"].tolist() == [
        [0, 0],
        [3, 4],
        [0, 0],
        [7, 8],
    ]


def test_predictions_are_kept_unless_they_are_large():
    assert keeping.what_to_keep(None, 37_000_000) == "predictions"
    assert keeping.what_to_keep(None, 300_000_000) == "none"
    assert keeping.what_to_keep("predictions", 300_000_000) == "predictions"
    with pytest.raises(UserError, match="did you mean 'predictions'"):
        keeping.what_to_keep("prediction", 0)


def test_the_size_that_is_told_is_that_of_the_arrays(finished):
    folder, table = finished
    kept_ = results.predictions(folder)
    by_pair = (kept_.energy, kept_.scale, kept_.prediction, kept_.role)
    assert keeping.bytes_of_predictions(36, Data(table)) == sum(array.nbytes for array in by_pair)
    said = keeping.announcement(None, "all", 270, Data(table), 100_000)
    assert said == "keeps predictions (2 MB) and parameters (27 MB) of 270 selected fits"
    assert keeping.announcement("none", "none", 270, Data(table), 0) == ""


# --------------------------------------------------------------------------------------------- reading it back


def test_what_was_not_kept_or_is_damaged_is_one_line(finished, tmp_path):
    folder, _ = finished
    result = results.load(folder)
    results.save(result, tmp_path / "bare", {}, replace=False)
    with pytest.raises(UserError, match=r"has not kept predictions.npz; run it again with --keep predictions"):
        results.predictions(tmp_path / "bare")
    with pytest.raises(UserError, match=r"has not kept params; run it again with --keep all"):
        results.params(tmp_path / "bare")


def test_damage_is_noticed(finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    data = bytearray((folder / "predictions.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "predictions.npz").write_bytes(data)
    with pytest.raises(UserError, match=r"predictions.npz is not as it was written"):
        results.predictions(folder)
    files = [path for path in (folder / "params").rglob("*") if path.is_file() and path.parent.name == "d"]
    largest = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    with pytest.raises(UserError, match="params"):
        results.params(folder)
    (folder / "predictions.npz").unlink()
    with pytest.raises(UserError, match=r"no predictions.npz"):
        results.predictions(folder)
    results.load(folder)  # the scores do not depend on them
