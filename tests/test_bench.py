"""The command line: what people and scripts rely on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import bench, plugins, results
from soopf_jax.protocol import Protocol
from tests.planted import planted_table

TINY = ["--seeds", "2", "--restarts", "1", "--steps", "4"]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A small features file in the documented format."""
    table = planted_table(pairs_per_cell=8)
    path = tmp_path_factory.mktemp("features") / "tokens.npz"
    np.savez(
        path,
        source=table.source,
        edited=table.source + table.delta,
        cell=table.cell,
        supports=table.grid.supports,
        operations=table.grid.operations,
    )
    return str(path)


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*args):
    return bench.main([str(arg) for arg in args])


def one_line_error(capsys, *args):
    """The message of a command that must fail with exit code 2 and a single line on stderr."""
    assert run(*args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if line]
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_run_prints_its_table_and_writes_its_folder(features, capsys):
    assert run("--features", features, "--out", "r", *TINY) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("tokens.npz: 2 seeds x 9 cells x 1 restarts, 4 steps (custom protocol")
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["factorial", "learned", "compressed"]
    assert {p.name for p in Path("r").iterdir()} == {"result.json", "fits.npz", "report.html", "figures"}
    document = json.loads(Path("r/result.json").read_text())
    assert document["protocol"] == "custom"
    assert document["config"]["protocol"]["steps"] == 4
    assert [p.name for p in Path.cwd().iterdir()] == ["r"], "no work folder is left behind"
    assert re.search(r"\d\.\d{3}", out.splitlines()[2])


def test_a_finished_run_is_shown_not_repeated_and_never_overwritten_by_another(features, capsys):
    run("--features", features, "--out", "r", *TINY)
    first = capsys.readouterr().out.splitlines()
    before = Path("r/result.json").read_bytes()
    assert run("--features", features, "--out", "r", *TINY) == 0
    again = capsys.readouterr().out
    assert again.startswith("already done: r\n")
    assert set(first[2:5]) <= set(again.splitlines())
    assert "another configuration" in one_line_error(
        capsys, "--features", features, "--out", "r", *TINY, "--steps", "5"
    )
    assert Path("r/result.json").read_bytes() == before
    assert run("--features", features, "--out", "r", *TINY[:-1], "5", "--overwrite") == 0
    assert json.loads(Path("r/result.json").read_text())["config"]["protocol"]["steps"] == 5


def test_equal_runs_give_equal_fits(features):
    for out in ("a", "b"):
        assert run("--features", features, "--out", out, "--assignment", "learned", "--no-resume", *TINY) == 0
    assert Path("a/fits.npz").read_bytes() == Path("b/fits.npz").read_bytes()


def test_default_output_folder_and_pairs_per_cell(features):
    assert run("--features", features, "--assignment", "factorial", "--pairs-per-cell", "6", *TINY) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"tokens-soopf-[0-9a-f]{10}", folder.name)
    assert np.all(results.load(folder).fits["test_counts"].sum(axis=1) == 6)


def test_the_folder_s_name_is_short_whatever_the_plug_in():
    out = bench.default_out(bench.Bench(encoder="hf:../encoders/vits14", readout="my.module:READOUT"), {})
    assert re.fullmatch(r"shapes3d-lite-hf-vits14-my.module-READOUT-[0-9a-f]{10}", out.name)


def test_quick_changes_defaults_only():
    assert bench.parse(["--quick"]).protocol == Protocol(3, 2, 500)
    assert bench.parse(["--steps", "7", "--quick"]).protocol == Protocol(3, 2, 7)
    assert bench.parse([]).protocol == Protocol(10, 5, 2000)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--dataset", "shapes3d-light"], "did you mean 'shapes3d-lite'?"),
        (["--encoder", "pixel"], "did you mean 'pixels'?"),
        (["--readout", "soop"], "did you mean 'soopf'?"),
        (["--assignment", "factorial", "lerned"], "did you mean 'learned'?"),
        (["--objective", "cor"], "did you mean 'core'?"),
        (["--weight", "masq=1"], "did you mean 'mask'?"),
        (["--weight", "mask"], "NAME=VALUE"),
        (["--weight", "mask=nan"], "finite"),
        (["--sedes", "3"], "did you mean --seeds?"),
        (["--seeds", "three"], "--seeds"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--batch-size", "-1"], "batch size"),
        (["--pairs-per-cell", "4"], "at least 5"),
        (["--readout", "no_such_package.readout:R"], "no module named no_such_package"),
        (["--readout", "soopf_jax.readouts.soopf:NOTHING"], "has no attribute 'NOTHING'"),
        (["--features", "missing.npz"], "missing.npz"),
        (["--features", "x.npz", "--dataset", "shapes3d-lite"], "leave --dataset or --features out"),
        (["--operations", "hue", "sharpen"], "unknown operation 'sharpen'"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(args, said, capsys):
    assert said in one_line_error(capsys, *args)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_a_mistake(features, capsys, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "cannot write" in one_line_error(capsys, "--features", features, "--out", "closed/r", *TINY)


def test_an_output_folder_below_a_file_is_a_mistake(features, capsys):
    Path("file").write_text("")
    assert "cannot write" in one_line_error(capsys, "--features", features, "--out", "file/r", *TINY)


def test_something_else_at_the_output_folder_is_left_alone(features, capsys):
    Path("notes").mkdir()
    Path("notes/diary.txt").write_text("dear diary")
    assert "not a finished run" in one_line_error(capsys, "--features", features, "--out", "notes", *TINY)
    assert Path("notes/diary.txt").read_text() == "dear diary"


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in {*bench.Bench.__dataclass_fields__, *Protocol.__dataclass_fields__} - {"protocol"}:
        assert f"--{option.replace('_', '-')}" in text
    for table in (plugins.ENCODERS, plugins.SUBSTRATES, plugins.READOUTS, plugins.ASSIGNMENTS, plugins.OBJECTIVES):
        for name in table:
            assert re.search(rf"(?<![\w-]){re.escape(name)}", text), f"--help does not name {name}"


def test_ctrl_c_leaves_one_line_no_result_and_a_run_that_goes_on(features, tmp_path):
    command = [sys.executable, "-m", "soopf_jax.bench", "--features", features, "--out", "r", "--assignment", "learned"]
    command += ["--seeds", "2", "--restarts", "1", "--steps", "200000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert "tokens.npz" in process.stderr.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted; run the same command again to go on"
    assert "Traceback" not in err
    assert not (tmp_path / "r").exists()
