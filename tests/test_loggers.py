"""Finished runs in experiment loggers. Stand-ins that note every call take the place of trackio and wandb; one slow
test uses the real trackio, where it is installed."""

import json
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import soopf_jax as soopf
from soopf_jax import bench, plugins, study
from soopf_jax.experiments import options, results
from soopf_jax.report import loggers
from soopf_jax.studies import definition, rows
from tests.planted import small_table
from tests.result_folders import save_run

TINY = ("--seeds", "1", "--restarts", "1", "--steps", "2")
FAKE = """
import os
calls = []
fails_in = None
def note(name, /, *args, **options):
    print("a logger prints")
    calls.append((name, args, options, os.environ.get("WANDB_MODE")))
    if name == fails_in:
        raise RuntimeError("the server is gone\\nand more")
def init(**options): note("init", **options)
def log(values, step): note("log", values, step)
def finish(): note("finish")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """What makes a stand-in for a logger and returns it."""
    monkeypatch.setenv("WANDB_MODE", "")  # so that it is put back
    monkeypatch.delenv("WANDB_MODE")

    def install(name):
        folder = tmp_path / "loggers"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(FAKE)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    yield install
    for name in plugins.LOGGERS:
        sys.modules.pop(name, None)


@pytest.fixture
def result(tmp_path):
    """Two arms with scores .5 and .25. Of every fit the second restart counts; its loss is 1, 2, 3 by chunk."""
    scores = {name: (np.full((3, 9), mean), np.full((3, 9), 0.75)) for name, mean in (("a", 0.5), ("b", 0.25))}
    read = results.load(Path(save_run(tmp_path / "run", scores, steps=6)))
    selected = read.fits["selected"]
    read.fits["loss"] = np.where(selected[:, None], [[1.0, 2.0, 3.0]], 100.0) * (1 + read.fits["arm"][:, None])
    return read


def values_by_step(module):
    return {args[1]: args[0] for name, args, *_ in module.calls if name == "log"}


def test_the_curve_and_the_scores_of_every_arm_are_logged_by_step(fake, result, capsys):
    trackio = fake("trackio")
    loggers.log("trackio", result)
    assert [name for name, *_ in trackio.calls] == ["init", "log", "log", "log", "finish"]
    logged = values_by_step(trackio)
    assert list(logged) == [2, 4, 6], "the ends of the three parts of six steps"
    assert logged[2] == {"a/loss": 1.0, "b/loss": 2.0}
    assert logged[4] == {"a/loss": 2.0, "b/loss": 4.0}
    last = {"a/loss": 3.0, "b/loss": 6.0, "a/inj": 0.5, "b/inj": 0.25, "a/non_injective": 0.75, "b/failed_fits": 0}
    last |= {"a/laundering_gap": 0.25, "a/collapse_0.5": 0.0, "b/collapse_0.5": 1.0, "a/validation": 0.5}
    assert last.items() <= logged[6].items()
    assert not any("recovery" in name for name in logged[6]), "what is undefined is not logged"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "a logger prints" in printed.err, "tables alone go to stdout"


def test_the_configuration_and_the_provenance_are_the_configuration_of_the_logged_run(fake, result):
    trackio = fake("trackio")
    loggers.log("trackio", result)
    ((_, _, given, _), *_) = trackio.calls
    document = result.document
    assert given["project"] == "soopf_jax"
    assert given["name"].startswith("shapes3d-lite-pixels-soopf-")
    assert given["config"] == {
        **document["config"],
        "protocol_label": "custom",
        "provenance": document["provenance"],
        "warnings": [],
    }
    assert given["config"]["protocol"]["steps"] == 6


@pytest.mark.parametrize("place", ["init", "log", "finish"])
def test_a_logger_that_fails_costs_one_line(place, fake, result, capsys):
    fake("trackio").fails_in = place
    loggers.log("trackio", result)
    said = [line for line in capsys.readouterr().err.splitlines() if line != "a logger prints"]
    assert said == [
        "warning: trackio did not log the whole run (RuntimeError: the server is gone); the result itself is complete"
    ]


def test_wandb_stays_offline_unless_the_user_says_otherwise(fake, result, monkeypatch):
    wandb = fake("wandb")
    loggers.log("wandb", result)
    assert {mode for *_, mode in wandb.calls} == {"offline"}
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.calls.clear()
    loggers.log("wandb", result)
    assert {mode for *_, mode in wandb.calls} == {"online"}


def test_without_a_logger_none_is_imported(fake, result):
    trackio, wandb = fake("trackio"), fake("wandb")
    loggers.log("none", result)
    assert trackio.calls == wandb.calls == []


# ----------------------------------------------------------------------------------------------- in a run


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    table = small_table()
    path = tmp_path_factory.mktemp("features") / "tokens.npz"
    names = {"supports": table.grid.supports, "operations": table.grid.operations}
    np.savez(path, source=table.source, edited=table.source + table.delta, cell=table.cell, **names)
    return str(path)


def test_logging_changes_nothing_of_a_result(features, fake, tmp_path, monkeypatch, capsys, no_report):
    """Equal folder, configuration, command and fits. A finished run is shown, and not logged again."""
    trackio = fake("trackio")
    command = ["--features", features, "--assignment", "factorial", "--keep", "none", *TINY]
    found = {}
    for name, more in (("plain", ()), ("logged", ("--log", "trackio"))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert bench.main([*command, *more]) == 0
        (folder,) = Path("runs").iterdir()
        document = json.loads((folder / "result.json").read_text())
        for changing in ("seconds", "sha256"):
            del document["provenance"][changing]
        found[name] = (folder.name, document, (folder / "fits.npz").read_bytes())
    assert found["plain"] == found["logged"]
    assert [name for name, *_ in trackio.calls].count("init") == 1
    logged = values_by_step(trackio)
    arm = found["logged"][1]["arms"][0]
    assert max(logged) == found["logged"][1]["config"]["protocol"]["steps"]
    assert logged[max(logged)][f"{arm['assignment']}/inj"] == arm["inj"]["mean"]
    assert bench.main([*command, "--log", "trackio"]) == 0
    assert "already done" in capsys.readouterr().out
    assert [name for name, *_ in trackio.calls].count("init") == 1


def test_the_api_logs_what_it_returns(fake):
    trackio = fake("trackio")
    table = small_table()
    found = soopf.benchmark(table, assignments="factorial", progress=False, log="trackio", seeds=1, restarts=1, steps=2)
    logged = values_by_step(trackio)
    assert logged[2]["factorial/inj"] == found.arms["factorial"].inj.mean
    assert "log" not in found.document["config"]


def test_a_study_passes_the_logger_to_every_run(fake):
    fake("trackio")
    asked = study.Study(encoder=("pixels", "random-vit"), log="trackio")
    found = {
        name: definition.rows_of([study.options_of(replace(asked, log=name))], lambda encoder: None)
        for name in ("", "trackio")
    }
    assert [run.log for run in found["trackio"]] == ["trackio", "trackio"]
    for logged, plain in zip(found["trackio"], found[""], strict=True):
        assert plain.log == "none"
        assert rows.folder(logged) == rows.folder(plain)
        assert options.record(logged, ["key"]) == options.record(plain, ["key"])


# -------------------------------------------------------------------------------------------------- mistakes


def test_a_logger_that_is_missing_is_noticed_before_any_work(features, monkeypatch, capsys):
    monkeypatch.setattr(plugins.importlib.util, "find_spec", lambda name: None)
    assert bench.main(["--features", features, "--log", "wandb"]) == 2
    said = "error: logger 'wandb' needs wandb, which the extra wandb brings; pip install 'soopf_jax[wandb]'\n"
    assert capsys.readouterr().err == said
    with pytest.raises(soopf.UserError, match="pip install 'soopf_jax\\[trackio\\]'"):
        soopf.benchmark(small_table(), log="trackio")


def test_an_unknown_logger_has_a_nearest_name(features, capsys):
    assert bench.main(["--features", features, "--log", "trakio"]) == 2
    assert "unknown logger 'trakio': did you mean 'trackio'?" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ the real one


@pytest.mark.slow
def test_the_real_trackio_gives_back_what_was_logged(result, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed: it holds Pillow back")
    loggers.log("trackio", result)
    (run,) = trackio.Api().runs("soopf_jax")
    assert run.config["protocol"]["steps"] == 6
    with sqlite3.connect(tmp_path / "trackio" / "soopf_jax.db") as database:
        found = {step: json.loads(values) for step, values in database.execute("select step, metrics from metrics")}
    assert found == loggers.history(result)
    assert found[6]["b/inj"] == 0.25
