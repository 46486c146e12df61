"""The wheel is whole, and works in an environment that holds the core's packages and none of the extras."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from tests.planted import planted_table

ROOT = Path(__file__).parents[1]
TINY = ("--assignment", "factorial", "--seeds", "1", "--restarts", "1", "--steps", "2")
SHIPPED = (".py", ".json", ".xml", ".typed")
COMMANDS = ("bench", "compare", "features", "leaderboard", "reproduce", "substrates")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, because setuptools would put what an earlier build left behind into the wheel as well."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("soopf_jax", "assets", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    (built,) = out.iterdir()
    return built


def add_required(requirements, extras, found):
    """Add to `found`, by name, the distributions that these requirements bring, and all that those need in turn."""
    for requirement in map(Requirement, requirements or ()):
        marker = requirement.marker
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras))):
            continue
        found[name] = metadata.distribution(name)
        add_required(found[name].requires, requirement.extras, found)


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of an environment that has the wheel and, as links, the packages that its metadata asks for.

    Installing JAX anew would take a minute in every test run.
    """
    folder, links = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("links")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        requirements = message_from_bytes(archive.read(name)).get_all("Requires-Dist")
    found = {}
    add_required(requirements, (), found)
    for distribution in found.values():
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (links / top).exists():
                (links / top).symlink_to(distribution.locate_file(top))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "core.pth").write_text(f"{links}\n")
    return python


def run(python, folder, *args):
    """A process far from the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *args], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "soopf_jax").rglob("*") if path.suffix in SHIPPED
    } | {"soopf_jax/py.typed"}
    assets = {"soopf_jax/assets/mujoco_scene.xml", "soopf_jax/assets/paper.json"}
    assert inside == package | assets


def test_the_core_runs_without_extras(python, tmp_path):
    table = planted_table(pairs_per_cell=6)
    tokens = {"source": table.source, "edited": table.source + table.delta, "cell": table.cell}
    np.savez(tmp_path / "tokens.npz", **tokens, supports=table.grid.supports, operations=table.grid.operations)
    done = run(python, tmp_path, "-m", "soopf_jax.bench", "--features", "tokens.npz", "--out", "r", *TINY)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "r" / "result.json").read_text())
    assert [arm["assignment"] for arm in document["arms"]] == ["factorial"]
    assert {path.name for path in (tmp_path / "r").iterdir()} == {
        *("result.json", "fits.npz", "predictions.npz", "report.html", "figures"),
    }


def test_every_command_says_how_it_is_used(python, tmp_path):
    for command in COMMANDS:
        done = run(python, tmp_path, "-m", f"soopf_jax.{command}", "--help")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert f"soopf_jax.{command}" in done.stdout
    script = python.with_name("soopf-bench")
    assert run(script, tmp_path, "--help").stdout.count("--features") >= 1


@pytest.mark.parametrize(
    ("option", "name", "package", "extra"),
    [
        ("encoder", "dinov3", "torch", "encoders"),
        ("dataset", "mujoco", "mujoco", "mujoco"),
        ("dataset", "coco", "pycocotools", "coco"),
        ("dataset", "shapes3d", "h5py", "shapes3d"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_the_command(option, name, package, extra, python, tmp_path):
    done = run(python, tmp_path, "-m", "soopf_jax.bench", f"--{option}", name)
    needs = f"{option} '{name}' needs {package}, which the extra {extra} brings"
    *progress, error = done.stderr.splitlines()
    assert error == f"error: {needs}; pip install 'soopf_jax[{extra}]'"
    assert all(line.startswith("loading JAX: ") for line in progress), "on a slow machine, the phase is shown"
    assert (done.returncode, done.stdout) == (2, "")
