"""Names become plug-ins: known names without an import, unknown ones with a hint, missing packages with a command."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

import soopf_jax
from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.studies import opening
from soopf_jax.substrates import mujoco
from soopf_jax.types import SubstrateRequest

ROOT = Path(__file__).parents[1]
IMPORT_NAMES = {"pyopengl": "OpenGL"}
"""Packages that are imported under another name than they are installed by."""


@pytest.fixture
def without(monkeypatch):
    """Make packages look as if they were not installed."""

    def hide(*packages):
        for name in list(sys.modules):
            if name.partition(".")[0] in packages:
                monkeypatch.delitem(sys.modules, name)
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return hide


# ---------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("dinov3", "soopf_jax.encoders.hf:open_encoder"),
        ("hf:../some/folder", "soopf_jax.encoders.hf:open_encoder"),
        ("nobody.has.this:part", "nobody.has.this:part"),
    ],
)
def test_a_name_is_found_without_an_import(name, address, monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda module: pytest.fail(f"{module} was imported"))
    assert plugins.find("encoder", plugins.ENCODERS, name) == address


@pytest.mark.parametrize("name", ["dinov4", "nobody has:this", "a:b:c", "", ":"])
def test_an_unknown_name_is_refused_without_an_import(name, monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda module: pytest.fail(f"{module} was imported"))
    with pytest.raises(UserError, match=r"unknown encoder .* choose from .* package.module:attr"):
        plugins.find("encoder", plugins.ENCODERS, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody.has.this:part", "no module named nobody.has.this; check the spelling or PYTHONPATH"),
        ("soopf_jax.grid:nothing", "soopf_jax.grid has no attribute 'nothing'; check the spelling"),
    ],
)
def test_ones_own_part_must_be_there(name, said):
    with pytest.raises(UserError, match=said):
        plugins.resolve("encoder", plugins.ENCODERS, name)


# --------------------------------------------------------------------------------------------------- extras


@pytest.mark.parametrize(
    ("kind", "table", "name", "module", "package", "extra"),
    [
        ("encoder", plugins.ENCODERS, "dinov3", "soopf_jax.encoders.hf", "torch", "encoders"),
        ("dataset", plugins.SUBSTRATES, "coco", "soopf_jax.substrates.coco", "pycocotools", "coco"),
        ("dataset", plugins.SUBSTRATES, "shapes3d", "soopf_jax.substrates.shapes3d", "h5py", "shapes3d"),
    ],
)
def test_a_missing_package_names_the_command_that_brings_it(
    kind, table, name, module, package, extra, without, monkeypatch
):
    monkeypatch.delitem(sys.modules, module, raising=False)
    without(package)
    with pytest.raises(UserError) as caught:
        plugins.resolve(kind, table, name)
    wanted = f"{kind} '{name}' needs {package}, which the extra {extra} brings; pip install 'soopf_jax[{extra}]'"
    assert str(caught.value) == wanted


def test_mujoco_is_asked_for_before_a_renderer(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None if package == "mujoco" else package)
    with pytest.raises(UserError, match=r"^dataset 'mujoco' needs mujoco, .* pip install 'soopf_jax\[mujoco\]'$"):
        mujoco.open_substrate(SubstrateRequest("mujoco"))


def test_a_package_that_no_extra_brings_is_named():
    assert str(plugins.missing_package("readout 'x'", "left_pad.core")) == (
        "readout 'x' needs the package left_pad; install it"
    )


def test_the_table_of_extras_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {
        IMPORT_NAMES.get(requirement.partition(">")[0], requirement.partition(">")[0]): extra
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in ("all", "cuda12", "dev", "docs")
        for requirement in requirements
    }
    assert found == plugins.EXTRAS
    of_places = {"s3", "gcs", "http"}  # what one's own storage needs
    usual = set(found.values()) - of_places - set(plugins.LOGGERS)
    assert project["optional-dependencies"]["all"] == [f"soopf_jax[{','.join(sorted(usual))}]"]
    core = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert not core & {requirement.lower() for requirement in found}


def test_a_plan_names_the_extra_before_what_else_is_missing(without):
    without("huggingface_hub")
    assert opening.missing_weights("dinov3").remedies[0].endswith("pip install 'soopf_jax[encoders]'")
    missing = plugins.missing_package("dataset 'mujoco'", "mujoco")
    assert opening._lacks("mujoco", missing).remedies[0].endswith("pip install 'soopf_jax[mujoco]'")
    assert opening._lacks("mujoco", UserError("cannot render; look")).remedies == (
        "EGL or OSMesa: Debian: apt install libegl1 libgl1",
    )


# -------------------------------------------------------------------------------------------- public names


def test_type_checkers_see_the_names_that_are_imported_on_use():
    tree = ast.parse(Path(soopf_jax.__file__).read_text())
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "soopf_jax.plugins")
        for alias in node.names
    }
    assert seen == soopf_jax._ADDRESSES
    assert sorted(seen) == sorted(soopf_jax.__all__), "in the order that ruff checks"
    assert set(seen) <= set(dir(soopf_jax))


@pytest.mark.parametrize("name", sorted({*soopf_jax.__all__} - {"features"}))
def test_every_public_name_can_be_imported(name):
    assert getattr(soopf_jax, name) is plugins.load(soopf_jax._ADDRESSES[name])


def test_the_folder_of_features_is_called_as_the_function_of_its_name(monkeypatch):
    assert soopf_jax._ADDRESSES["features"] == "soopf_jax.api.run:features"
    monkeypatch.setattr("soopf_jax.api.run.features", lambda *args, **kwargs: (args, kwargs))
    assert soopf_jax.features("mujoco", encoder="pixels") == (("mujoco",), {"encoder": "pixels"})


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'soopf_jax' has no attribute 'bench_mark'"):
        _ = soopf_jax.bench_mark
