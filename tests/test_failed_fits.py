"""Numbers that cannot be trusted are never printed as if they could, from a failed fit to a result's first line."""

import json
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import bench, compare, leaderboard
from soopf_jax.errors import UserError
from soopf_jax.experiments import results, training
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.report import summary
from soopf_jax.runtime.arrays import npz_bytes
from tests.faults.runs import tokens
from tests.planted import SMALL as PROTOCOL
from tests.planted import small_table

SMALL = ["--assignment", "factorial", "learned", "--seeds", "2", "--restarts", "2", "--steps", "3"]


@pytest.fixture
def failing(monkeypatch):
    """Let rows of the learned arm fail, with a validation accuracy that would win if it counted."""

    def let_fail(rows):
        original = training.train_arm

        def train_arm(job, *rest):
            columns = original(job, *rest)
            if job.arm.assignment_name == "learned":
                columns["failed"], columns["validation"] = columns["failed"].copy(), columns["validation"].copy()
                columns["failed"][rows], columns["validation"][rows] = True, 2.0
            return columns

        monkeypatch.setattr(training, "train_arm", train_arm)

    return let_fail


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features = str(tokens(tmp_path))
    return lambda: bench.main(["--features", features, *SMALL, "--out", "runs/r"])


@pytest.mark.usefixtures("no_report")
def test_a_failed_restart_is_not_selected_and_the_first_line_says_so(run, failing, capsys):
    failing([4])  # seed 0, cell 2, restart 0
    assert run() == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("1 FIT FAILED: tokens.npz: 2 seeds")
    assert "warning: learned: 1 fit failed with a non-finite loss or gradient" in out
    document, fits, *_ = results.load(Path("runs/r"))
    learned = (fits["arm"] == 1) & (fits["seed"] == 0) & (fits["held_out"] == 2)
    assert fits["selected"][learned].tolist() == [False, True]
    assert [arm["failed_fits"] for arm in document["arms"]] == [0, 1]
    assert document["arms"][1]["inj"]["mean"] == pytest.approx(np.mean(document["arms"][1]["inj"]["per_seed"]))


def test_a_fold_without_a_restart_is_null_and_incomplete_in_every_output(run, failing, capsys):
    failing([4, 5])
    assert run() == 0
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("2 FITS FAILED, learned INCOMPLETE: tokens.npz: 2 seeds")
    assert [row.split()[:2] for row in rows[1:2]] == [["learned", "-"]]
    factorial, learned = json.loads(Path("runs/r/result.json").read_text())["arms"]
    assert factorial["inj"]["mean"] is not None
    assert learned["inj"]["mean"] is None
    assert learned["inj"]["per_seed"][0] is None
    assert learned["inj"]["per_seed"][1] is not None
    assert learned["inj"]["per_cell"]["floor/pattern"] is None, "never an average over the rest"
    assert (learned["laundering_gap"], learned["min_cell"], learned["collapse"]["0.5"]) == (None, None, None)
    document = results.load(Path("runs/r")).document
    assert any(warning.startswith("learned: incomplete") for warning in document["warnings"])
    assert all(test["p"] is None for test in document["tests"] if "learned" in test["a"] + test["b"])
    html = Path("runs/r/report.html").read_text()
    assert "<h1>2 FITS FAILED, learned INCOMPLETE: tokens.npz" in html
    assert run() == 0
    assert capsys.readouterr().out.startswith("2 FITS FAILED, learned INCOMPLETE: already done")
    assert leaderboard.main(["runs"]) == 0
    (shown,) = (line for line in capsys.readouterr().out.splitlines() if " learned " in line)
    assert shown.split("custom 2 x 2 x 3")[1].split()[:5] == ["-"] * 5
    assert compare.main(["runs/r:factorial", "runs/r:learned", "--json", "c.json"]) == 0
    (compared,) = json.loads(Path("c.json").read_text())["comparisons"]
    assert (compared["mean_difference"], compared["paired_t"]["p"]) == (None, None)
    assert compared["undefined"] == "a fold has no restart that could be selected"


@pytest.mark.usefixtures("no_report")
def test_a_run_that_can_be_trusted_has_no_caveat(run, capsys):
    assert run() == 0
    assert capsys.readouterr().out.startswith("tokens.npz: 2 seeds")
    assert summary.caveat(results.load(Path("runs/r")).document) == ""


@pytest.mark.usefixtures("no_report")
def test_a_seed_with_a_missing_fold_is_undefined_in_a_comparison(run, capsys):
    assert run() == 0
    folder = Path("runs/r")
    document, fits, *_ = results.load(folder)
    kept = ~((fits["arm"] == 1) & (fits["seed"] == 1) & (fits["held_out"] == 8))
    data = npz_bytes({name: column[kept] for name, column in fits.items()})
    (folder / "fits.npz").write_bytes(data)
    (folder / "result.json").write_text(json.dumps(results.sealed(document, data)))
    capsys.readouterr()
    assert compare.main(["runs/r:factorial", "runs/r:learned"]) == 0
    assert "a fold has no restart that could be selected" in capsys.readouterr().out


def small_run(table):
    return benchmark(table, assignments=["learned"], protocol=PROTOCOL).document


def test_constant_channels_are_reported():
    table = small_table()
    table.source[:, :, [3, 7]], table.delta[:, :, [3, 7]] = 1.5, 0.0
    table.source[:, :, 5] = 0.25  # its delta still varies
    table.delta[-1, -1, 7] = 1.0  # the very last value
    (warning,) = small_run(table)["warnings"]
    assert warning == "1 of 16 channels are constant over all images: they tell nothing"
    assert small_run(small_table())["warnings"] == []


def test_a_cell_without_test_pairs_is_refused():
    table = small_table()
    kept = table.cell != 4
    fewer = table._replace(**{n: getattr(table, n)[kept] for n in ("source", "delta", "region", "cell")})
    with pytest.raises(UserError, match="cell wall/invert has 0 pairs"):
        small_run(fewer)
