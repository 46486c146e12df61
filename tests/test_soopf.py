"""The command `soopf`: one word for each command, its help, its mistakes, and what the doctor finds."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from soopf_jax import doctor, plugins
from soopf_jax.__main__ import COMMANDS, main
from soopf_jax.doctor import Doctor, Finding


def test_without_a_word_every_command_is_listed(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {word} " in listed for word in COMMANDS)


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_is_the_installed_one(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out == f"soopf_jax {metadata.version('soopf_jax')}\n"


def test_names_are_listed(capsys):
    assert main(["readouts"]) == 0
    assert capsys.readouterr().out.split() == list(plugins.READOUTS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rum"], "unknown command 'rum': did you mean 'run'?"),
        (["--quick"], "--quick comes before any command; see soopf --help"),
        (["run", "--stpes", "3"], "unknown option --stpes: did you mean --steps? (see soopf run --help)"),
        (["data", "fetch", "shapes3d", "--rot", "x"], "(see soopf data fetch --help)"),
        (["board", "no-such-folder"], "no-such-folder is not a folder"),
        (["features", "remove"], "no store named"),
        (["encoders", "chek", "dinov3"], "unknown action 'chek': did you mean 'check'?"),
        (["encoders", "check", "dinov3", "--data-root", "nowhere"], "there is no nowhere/val2017/000000039769.jpg"),
    ],
)
def test_a_mistake_is_one_line_that_speaks_of_the_command_as_it_was_typed(words, message, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("word", COMMANDS)
def test_every_command_has_help_under_its_own_name(word, capsys):
    with pytest.raises(SystemExit) as stop:
        main([word, "--help"])
    assert stop.value.code == 0
    assert f"usage: soopf {word}" in capsys.readouterr().out


def test_plug_ins_of_the_working_folder_are_found_by_the_installed_command(tmp_path: Path):
    """The script in bin/ does not put the working folder on the path, as `python -m` does."""
    (tmp_path / "mine.py").write_text("READOUT = 1\n")
    soopf = Path(sys.executable).parent / "soopf"
    words = [soopf, "run", "--readout", "mine:READOUTS", "--pairs-per-cell", "5", "--cache-dir", "cache"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "mine has no attribute 'READOUTS'" in done.stderr, done.stderr


# --------------------------------------------------------------------------------------------- the doctor


def test_what_is_missing_comes_with_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "renderer", lambda: Finding("data mujoco", "renders"))
    monkeypatch.setattr(doctor, "weights", lambda: iter([Finding("weights dinov2-s", "at hand")]))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "h5py" else object())
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_train2017.json").touch()
    doctor.run(Doctor(data_root=str(tmp_path), cache_dir=str(tmp_path / "cache")))
    lines = {line[:24].strip(): line[25:] for line in capsys.readouterr().out.splitlines()}
    assert lines["extra shapes3d"] == "lacks h5py  -> pip install 'soopf_jax[shapes3d]'"
    assert lines["extra encoders"] == "installed"
    assert lines["data coco"] == "at hand"
    assert lines["data shapes3d"].endswith(f"-> soopf data fetch shapes3d --data-root {tmp_path}")
    assert "GFLOP/s" in lines["float32 products"]
    assert lines["features"].startswith("0 stores, 0.0 GB")
    assert lines["next: soopf run --quick"[:24]] == "-encoder dinov2-s"


def test_without_weights_the_next_step_needs_none():
    missing = Finding("weights dinov3", "not downloaded", "hf download")
    assert doctor.next_step([missing]) == "soopf run --quick"


def test_the_renderer_and_the_weights_are_really_looked_at(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    found = {finding.part: finding for finding in doctor.weights()}
    assert found["weights siglip2"].remedy == "hf download google/siglip2-large-patch16-256"
    assert "accept the licence" in found["weights dinov3"].remedy
    rendered = doctor.renderer()
    assert rendered.part == "data mujoco"
    assert rendered.state.startswith("renders: ") != bool(rendered.remedy)
