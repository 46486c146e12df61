"""Help and mistakes are answered before anything heavy is imported: that is what makes them quick."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    *("jax", "flax", "optax", "orbax", "torch", "transformers", "mujoco"),
    *("matplotlib", "scipy.stats", "scipy.optimize", "zarr", "h5py", "pycocotools"),
)
"""Packages that take longer to import than the rest of a command line together. `import scipy` alone is quick."""

PROGRAM = """
import contextlib, io, json, runpy, sys
heavy, module, *lines = json.loads(sys.argv[1])
answers = []
for line in lines:
    sys.argv = [module, *line]
    err, code = io.StringIO(), 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as stop:
            code = stop.code
    answers.append((code or 0, err.getvalue(), [name for name in heavy if name in sys.modules]))
print(json.dumps(answers))
"""
"""Runs a command with one line of arguments after the other, and says what is imported after each."""

MISTAKES = {
    "bench": [
        (["--dataset", "shape3d"], "unknown dataset 'shape3d': did you mean 'shapes3d'?"),
        (["--encoder", "dinov4"], "unknown encoder 'dinov4': did you mean 'dinov3'?"),
        (["--readout", "sopf"], "unknown readout 'sopf': did you mean 'soopf'?"),
        (["--assignment", "factorial", "lerned"], "unknown assignment 'lerned': did you mean 'learned'?"),
        (["--objective", "cor"], "unknown objective 'cor': did you mean 'core'?"),
        (["--features", "tokens.npz", "--readout", "sopf"], "unknown readout 'sopf'"),
        (["--features", "tokens.npz"], "features file tokens.npz: there is no such file"),
        (["--features", "tokens.npz", "--encoder", "pixels"], "leave --encoder or --features out"),
        (["--edits", "three"], "unknown number of edits 'three'"),
        (["--weight", "mask=x"], "--weight takes NAME=VALUE"),
        (["--seeds", "many"], "--seeds"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--learning-rate", "-1"], "learning_rate must be a positive number"),
        (["--alignment", "sof"], "unknown alignment 'sof': did you mean 'soft'?"),
        (["--pairs-per-cell", "-1"], "--pairs-per-cell must be positive"),
        (["--fits-per-program", "-1"], "must not be negative"),
        (["--checkpoint-seconds", "-1"], "must not be negative"),
        (["--target", "h100"], "add --dry-run, or leave --target out"),
        (["--sedes", "3"], "unknown option --sedes: did you mean --seeds?"),
    ],
    "compare": [
        (["one", "two"], "one is not a finished run"),
        (["one"], "nothing to compare with"),
        (["report.html", "two"], "report.html is a file; name the folder of the run, ."),
        (["one", "two", "--score", "injj"], "unknown score 'injj'"),
        (["one", "two", "--skore", "inj"], "unknown option --skore: did you mean --score?"),
    ],
    "leaderboard": [
        (["nowhere"], "nowhere is not a folder"),
        ([], "FOLDER"),
        (["nowhere", "--cvs", "x"], "unknown option --cvs: did you mean --csv?"),
    ],
    "reproduce": [
        (["--table", "headlin"], "unknown table 'headlin': did you mean 'headline'?"),
        (["--dataset", "shape3d"], "unknown dataset 'shape3d'"),
        (["--encoder", "dinov4"], "unknown encoder 'dinov4'"),
        (["--max-hours", "-1"], "--max-hours must be positive"),
        (["--max-hors", "1"], "unknown option --max-hors: did you mean --max-hours?"),
    ],
    "features": [
        (["build", "--dataset", "shape3d"], "unknown dataset 'shape3d'"),
        (["build", "--encoder", "dinov4"], "unknown encoder 'dinov4'"),
        (["remove"], "no store named"),
        (["biuld"], "biuld"),
    ],
    "substrates": [
        (["shape3d"], "unknown dataset 'shape3d'"),
        (["--columns", "0"], "both must be at least 1"),
        (["--pairs-per-cell", "-1"], "--pairs-per-cell must be positive"),
        (["--out", "picture.jpg"], "is not the name of a PNG file"),
        (["--edits", "three"], "unknown number of edits 'three'"),
        (["fetch", "coc"], "unknown dataset to fetch 'coc'"),
    ],
}


@pytest.mark.parametrize("command", MISTAKES)
def test_help_and_mistakes_import_nothing_heavy(command, tmp_path):
    (tmp_path / "report.html").touch()
    lines = [["--help"], *(line for line, _ in MISTAKES[command])]
    request = json.dumps([HEAVY, f"soopf_jax.{command}", *lines])
    done = subprocess.run([sys.executable, "-c", PROGRAM, request], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (code, err, imported), *answers = json.loads(done.stdout)
    assert (code, err, imported) == (0, "", []), "--help"
    for (line, said), (code, err, imported) in zip(MISTAKES[command], answers, strict=True):
        assert (code, imported) == (2, []), f"{line}: {err}"
        assert err.startswith("error: "), line
        assert err.count("\n") == 1, line
        assert said in err, line


def test_the_search_finds_what_it_looks_for():
    request = json.dumps([HEAVY, "tests.heavy_command", []])
    done = subprocess.run([sys.executable, "-c", PROGRAM, request], capture_output=True, text=True)
    assert json.loads(done.stdout) == [[0, "", ["scipy.optimize"]]]
