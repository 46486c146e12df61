"""The command line: what people and scripts rely on."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import bench, plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments import inputs, options, results
from soopf_jax.fitting.protocol import Choices, Protocol
from soopf_jax.report import run_folder  # noqa: F401  (a command that loads it first may take a while, and says so)
from tests.planted import SMALL_OPTIONS, small_table


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A small features file in the documented format."""
    table = small_table()
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
    assert run("--features", features, "--out", "r", *SMALL_OPTIONS) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("tokens.npz: 2 seeds x 9 cells x 1 restart, 20 steps (custom protocol")
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["factorial", "learned", "compressed"]
    assert {p.name for p in Path("r").iterdir()} == {
        *("result.json", "fits.npz", "predictions.npz", "report.html", "figures"),
    }
    document = json.loads(Path("r/result.json").read_text())
    assert document["protocol"] == "custom"
    assert document["config"]["protocol"]["steps"] == 20
    assert [p.name for p in Path.cwd().iterdir()] == ["r"], "no work folder is left behind"
    assert re.search(r"\d\.\d{3}", out.splitlines()[2])


@pytest.mark.usefixtures("no_report")
def test_a_finished_run_is_shown_not_repeated_and_never_overwritten_by_another(features, capsys):
    run("--features", features, "--out", "r", *SMALL_OPTIONS)
    first = capsys.readouterr().out.splitlines()
    before = Path("r/result.json").read_bytes()
    assert run("--features", features, "--out", "r", *SMALL_OPTIONS) == 0
    again = capsys.readouterr().out
    assert again.startswith("already done: r\n")
    assert set(first[2:5]) <= set(again.splitlines())
    more = one_line_error(capsys, "--features", features, "--out", "r", "--keep", "all", *SMALL_OPTIONS)
    assert "r is finished and has not kept params; add --overwrite to run it again" in more
    other = ("--features", features, "--out", "r", "--seeds", "1", *SMALL_OPTIONS[2:])
    assert "another configuration" in one_line_error(capsys, *other)
    assert Path("r/result.json").read_bytes() == before
    assert run(*other, "--overwrite") == 0
    assert json.loads(Path("r/result.json").read_text())["config"]["protocol"]["seeds"] == 1
    assert "keep" not in json.loads(Path("r/result.json").read_text())["config"], "what is kept changes no score"


@pytest.mark.usefixtures("no_report")
def test_a_result_from_when_the_coco_split_was_an_option_is_still_the_same_run(features, capsys):
    run("--features", features, "--out", "r", *SMALL_OPTIONS)
    document = json.loads(Path("r/result.json").read_text())
    document["config"]["coco_split"] = "train2017"
    Path("r/result.json").write_text(json.dumps(results.sealed(document, Path("r/fits.npz").read_bytes())))
    capsys.readouterr()
    assert run("--features", features, "--out", "r", *SMALL_OPTIONS) == 0
    assert capsys.readouterr().out.startswith("already done: r\n")
    assert results.today({"dataset": "coco", "coco_split": "val2017", "layer": 3}) == {
        "dataset": "coco:val2017",
        "layer": 3,
    }


@pytest.mark.usefixtures("no_report")
def test_equal_runs_give_equal_fits(features):
    for out in ("a", "b"):
        assert run("--features", features, "--out", out, "--assignment", "learned", "--no-resume", *SMALL_OPTIONS) == 0
    assert Path("a/fits.npz").read_bytes() == Path("b/fits.npz").read_bytes()


@pytest.mark.usefixtures("no_report")
def test_default_output_folder_and_pairs_per_cell(features):
    assert run("--features", features, "--assignment", "factorial", "--pairs-per-cell", "6", *SMALL_OPTIONS) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"tokens-soopf-[0-9a-f]{10}", folder.name)
    assert np.all(results.load(folder).fits["test_counts"].sum(axis=1) == 6)


def test_the_folder_s_name_is_short_whatever_the_plug_in():
    out = options.default_out(options.Bench(encoder="hf:../encoders/vits14", readout="my.module:READOUT"), {})
    assert re.fullmatch(r"shapes3d-lite-hf-vits14-my.module-READOUT-[0-9a-f]{10}", out.name)


def test_quick_changes_defaults_only():
    assert bench.parse(["--quick"]).protocol == Protocol(3, 2, 500)
    assert bench.parse(["--steps", "7", "--quick"]).protocol == Protocol(3, 2, 7)
    assert bench.parse([]).protocol == Protocol(10, 5, 2000)


def test_an_option_that_is_not_given_is_none_and_its_default_is_recorded():
    bench_, config = bench.parse([]), options.record(bench.parse([]), ["key"])
    assert (bench_.dataset, bench_.encoder, bench_.readout, bench_.seeds) == (None, None, None, None)
    assert (config["dataset"], config["encoder"], config["readout"]) == ("shapes3d-lite", "pixels", "soopf")
    assert list(config) == [
        *("dataset", "encoder", "features", "readout", "assignment", "objective", "weight", "operations", "edits"),
        *("layer", "dtype", "pairs_per_cell", "data_seed", "router", "preset", "protocol", "features_key"),
    ]
    assert config["protocol"] == asdict(Protocol())
    assert config["preset"] == "paper"


def test_the_scale_of_stripes_is_recorded_and_named_only_if_it_is_given():
    parsed = bench.parse(["--stripe-unit", "radians", "--stripe-size", "224"])
    request = inputs.substrate_request(parsed)
    assert (request.stripe_unit, request.stripe_size) == ("radians", 224)
    config = options.record(parsed, ["key"])
    assert (config["stripe_unit"], config["stripe_size"]) == ("radians", 224)
    assert options.arguments(options.given(parsed)) == ["--stripe-unit", "radians", "--stripe-size", "224"]
    usual = inputs.substrate_request(bench.parse([]))
    assert usual[:1] + usual[5:] == ("shapes3d-lite", 1, "cycles", None)


def test_a_preset_changes_the_defaults_of_choices_only():
    ours = bench.parse(["--preset", "ours", "--alignment", "hard"])
    assert ours.protocol == Protocol(router_input="rms", alignment="hard")
    assert bench.parse(["--preset=ours"]).protocol.preset == "ours"
    assert options.record(ours, ["key"])["preset"] is None, "a changed preset is none"
    assert options.command(ours) == "python -m soopf_jax.bench --preset ours --alignment hard"
    assert bench.parse(shlex.split(options.command(ours))[3:]) == ours
    with pytest.raises(UserError, match="unknown preset 'mine': choose from ours, paper"):
        bench.parse(["--preset", "mine"])


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--dataset", "coco:val2017", "--data-root", "/my data", "--assignment", "factorial", "learned", "--no-resume"],
        ["--quick", "--seeds", "10", "--tau-start", "1", "--learning-rate", "0.0025", "--ties", "last", "--router"],
        ["--edits", "two", "--layer", "3", "--weight", "mask=0.5", "loc=1", "--checkpoint-seconds", "0.5"],
    ],
)
def test_a_run_is_the_command_that_does_it(args):
    words = shlex.split(options.command(bench.parse(args)))
    assert words[:3] == ["python", "-m", "soopf_jax.bench"]
    assert sorted(words[3:]) == sorted(args)
    assert bench.parse(words[3:]) == bench.parse(args)


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
        (["--keep", "prediction"], "did you mean 'predictions'?"),
        (["--sedes", "3"], "did you mean --seeds?"),
        (["--seeds", "three"], "--seeds takes a whole number, not 'three' (see python -m soopf_jax.bench --help)"),
        (["--learning-rate=fast"], "--learning-rate takes a number, not 'fast'"),
        (["--seeds", "--quick"], "--seeds takes a whole number; none was given"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--batch-size", "-1"], "batch size"),
        (["--pairs-per-cell", "4"], "at least 5"),
        (["--readout", "no_such_package.readout:R"], "no module named no_such_package"),
        (["--readout", "soopf_jax.readouts.soopf:NOTHING"], "has no attribute 'NOTHING'"),
        (["--features", "missing.npz"], "missing.npz"),
        (["--features", "x.npz", "--dataset", "shapes3d-lite"], "leave --dataset or --features out"),
        (["--features", "x.npz", "--encoder=pixels"], "leave --encoder or --features out"),
        (["--features", "x.npz", "--data-root", "d"], "leave --data-root or --features out"),
        (["--operations", "hue", "sharpen"], "unknown operation 'sharpen'"),
        (["--dataset", "coco", "--coco-split", "val2017"], "write coco:val2017"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(args, said, capsys):
    assert said in one_line_error(capsys, *args)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_a_mistake(features, capsys, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "cannot write" in one_line_error(capsys, "--features", features, "--out", "closed/r", *SMALL_OPTIONS)


def test_an_output_folder_below_a_file_is_a_mistake(features, capsys):
    Path("file").write_text("")
    assert "cannot write" in one_line_error(capsys, "--features", features, "--out", "file/r", *SMALL_OPTIONS)


def test_something_else_at_the_output_folder_is_left_alone(features, capsys):
    Path("notes").mkdir()
    Path("notes/diary.txt").write_text("dear diary")
    assert "not a finished run" in one_line_error(capsys, "--features", features, "--out", "notes", *SMALL_OPTIONS)
    assert Path("notes/diary.txt").read_text() == "dear diary"


def help_text(capsys, option):
    with pytest.raises(SystemExit) as stop:
        run(option)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_help_teaches(capsys):
    text = help_text(capsys, "--help-all")
    for option in {*options.Bench.__dataclass_fields__, *Protocol.__dataclass_fields__} - {"choices"}:
        assert f"--{option.replace('_', '-')}" in text
    for table in (plugins.ENCODERS, plugins.SUBSTRATES, plugins.READOUTS, plugins.ASSIGNMENTS, plugins.OBJECTIVES):
        for name in table:
            assert re.search(rf"(?<![\w-]){re.escape(name)}", text), f"--help-all does not name {name}"


def test_help_is_one_screen_in_groups(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_text(capsys, "--help")
    lines = text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line in options.HELP.names]
    assert titles == ["data", "encoder", "readout", "protocol", "where and how"]
    for name in (*plugins.ENCODERS, *plugins.SUBSTRATES, *plugins.READOUTS, *plugins.ASSIGNMENTS):
        assert re.search(rf"(?<![\w-]){re.escape(name)}", text), f"--help does not name {name}"
    assert "--matmul-precision" not in text, "that is for --help-all"


def test_every_option_has_its_group():
    known = {name for names in options.HELP.names.values() for name in names}
    there = {*options.Bench.__dataclass_fields__, *Choices.__dataclass_fields__} - {"choices"}
    assert known <= there
    assert set(options.HELP.usual) <= known


def started(command, cwd):
    """A process with pipes that reacts to Ctrl-C as in a terminal; a shell's background job may ignore it."""
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    finally:
        signal.signal(signal.SIGINT, own)


def test_ctrl_c_says_what_is_kept_and_leaves_no_result(features, tmp_path):
    command = [sys.executable, "-m", "soopf_jax.bench", "--features", features, "--out", "r", "--assignment", "learned"]
    command += ["--seeds", "2", "--restarts", "1", "--steps", "20000"]
    process = started(command, tmp_path)
    while not re.match("training learned: [1-9]", process.stderr.readline()):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert re.fullmatch(r"interrupted; kept \d+ of 20000 steps of learned; run the same command again to go on", last)
    assert "Traceback" not in err
    assert not (tmp_path / "r").exists()
    assert list(tmp_path.glob(".r.work-*/learned-*.checkpoint"))


def test_ctrl_c_during_imports_is_one_line(tmp_path):
    """The module writes a file as soon as its own imports are done; the heavy ones follow."""
    program = """
import pathlib, sys
from soopf_jax import bench
pathlib.Path("begun").touch()
sys.exit(bench.main(["--seeds", "1"]))
"""
    process = started([sys.executable, "-c", program], tmp_path)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "interrupted; run the same command again to go on\n")
