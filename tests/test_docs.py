"""The documentation: links lead somewhere, code runs, tests and options that it names exist."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import nbformat
import pytest
from markdown.extensions.toc import slugify
from nbclient import NotebookClient

import soopf_jax
from soopf_jax.testing import check_readout

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\S*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's own headings, as Python-Markdown and GitHub make them."""
    return {slugify(title.strip("# ").replace("`", ""), "-") for title in re.findall(r"^#+ .*$", prose(page), re.M)}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere, in the repository."""
    broken = []
    for link in LINK.findall(prose(page)):
        address, _, anchor = link.partition("#")
        target = (page.parent / address).resolve() if address else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


# ---------------------------------------------------------------------------------------------------- links and names


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_anchors_lead_somewhere(page):
    assert broken_links(page) == []


def test_the_link_check_finds_broken_ones(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](gone.md) [e](https://x.org/#y)\n")
    assert broken_links(page) == ["#three", "gone.md"]


def test_every_page_is_in_the_navigation():
    navigation = re.search(r"^nav:\n((?:[ ].*\n)+)", text_of("mkdocs.yml"), re.MULTILINE)[1]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])


def test_every_test_that_a_page_names_exists():
    named_tests = re.findall(r"`(\w+\.py)(?:::(\w+))?", text_of("docs/robustness.md"))
    assert len(named_tests) > 20
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    for file, function in named_tests:
        assert file in sources, f"there is no tests/{file}"
        assert not function or f"def {function}(" in sources[file], f"tests/{file} has no {function}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_that_a_page_names_exists(page):
    for module in re.findall(r"python -m (soopf_jax\.\w+|benchmarks\.\w+)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
    for target in re.findall(r"(?:`|^    )make ([a-z-]+)", page.read_text(), re.MULTILINE):
        assert target in targets, f"there is no make {target}"


# ---------------------------------------------------------------------------------------------------------------- site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return folder


def test_the_site_loads_nothing_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) == len(PAGES), "one for every page but the README, and 404.html"
    for page in [*pages, *site.rglob("*.css")]:
        loaded = re.findall(
            r"""(?:src=["']?|<link[^>]*href=["']?|url\(["']?|@import ["']?)(\w*:?//[^"')\s]+)""", page.read_text()
        )
        assert loaded == [], page.name


def test_the_reference_shows_the_contract(site):
    contract = (site / "reference" / "contract.html").read_text()
    for name in ("types.FeatureTable.delta", "types.Substrate.grid", "types.Readout.apply", "grid.Grid.axes"):
        assert f'id="soopf_jax.{name}"' in contract, name
    assert "The innovation field, Eq. (1)" in contract, "the docstrings of fields are there"


# ---------------------------------------------------------------------------------------------------------------- code


def test_the_library_example_runs_and_reads_its_planted_grid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _ = [body for language, _, body in FENCED.findall(text_of("docs/api.md")) if language == "python"]
    scope = {}
    exec(compile(code, "docs/api.md", "exec"), scope)
    assert scope["result"].arms["factorial"].inj.mean >= 0.95
    assert capsys.readouterr().out.startswith("factorial ")


def test_the_page_shows_the_plug_in_example_as_it_is():
    shown = {title: body for _, title, body in FENCED.findall(text_of("docs/extending.md"))}
    assert shown["examples/my_parts.py"] == text_of("examples/my_parts.py")


def test_the_plug_in_example_runs_with_the_pages_own_command(tmp_path):
    command = re.search(
        r"    python (-m soopf_jax.bench --dataset my_parts.*?)\n\n", text_of("docs/extending.md"), re.DOTALL
    )
    run = subprocess.run(
        [sys.executable, *shlex.split(command[1].replace("\\\n", " ")), "--out", "out", "--cache-dir", "cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    factorial, sharp = result["arms"]
    assert factorial["inj"]["mean"] >= 0.95, "where and what can be read off these patches"
    assert sharp["assignment"] == "my_parts:SHARP"
    assert sharp["sees"] == []
    assert sharp["weights"] == {"cell": 1.0, "largest": 0.01}
    assert any("no masks" in warning for warning in result["warnings"]) is False, "this objective has no mask term"


@pytest.mark.parametrize("file", ["examples/my_parts.py", "soopf_jax/readouts/positional.py"])
def test_the_readouts_of_the_page_keep_the_contract(file):
    (code,) = [body for _, title, body in FENCED.findall(text_of("docs/extending.md")) if title == file]
    scope = {}
    exec(compile(code, file, "exec"), scope)
    check_readout(scope["READOUT"])


def apply_changes(page: str, folder: Path) -> list[str]:
    """Carry out a page's changes: write the files that it shows, and edit those of which it shows a difference."""
    changed = []
    for language, title, body in FENCED.findall(page):
        path = folder / title
        if language == "python":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        elif language == "diff":
            for hunk in body.split("@@\n"):
                before, after = (
                    "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in signs)
                    for signs in (" -", " +")
                )
                assert path.read_text().count(before) == 1, f"{title} does not hold this once:\n{before}"
                path.write_text(path.read_text().replace(before, after))
        changed.append(title)
    return changed


def test_a_readout_an_encoder_a_metric_and_a_panel_touch_two_files_each(tmp_path):
    for folder in ("soopf_jax", "assets", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    sections = re.split(r"^## ", text_of("docs/extending.md"), flags=re.MULTILINE)
    changes = {}
    for section in sections:
        if ": two files\n" in section:
            changes[section.partition("\n")[0]] = apply_changes(section, tmp_path)
    assert [len(set(files)) for files in changes.values()] == [2, 2, 2, 2]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def python(command):
        arguments = [sys.executable, *shlex.split(command)]
        run = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    parts = "--encoder moments --readout positional --assignment factorial"
    size = "--pairs-per-cell 5 --seeds 1 --restarts 1 --steps 2"
    printed = python(f"-m soopf_jax.bench {parts} {size} --out out --cache-dir cache")
    assert printed.splitlines()[1].endswith(" max"), "the metric has a column"
    (arm,) = json.loads((tmp_path / "out" / "result.json").read_text())["arms"]
    assert (arm["readout"], arm["max_cell"]) == ("positional", max(arm["inj"]["per_cell"].values()))
    assert '<section id="times"><h2>Times</h2><ul><li>factorial: ' in (tmp_path / "out" / "report.html").read_text()
    assert "1 passed" in python("-m pytest -q --noconftest tests/test_metrics.py -k two_cells_by_hand")


# ------------------------------------------------------------------------------------------------------------ notebook


def test_the_notebook_is_kept_without_outputs():
    for cell in nbformat.read(NOTEBOOK, 4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_notebook_uses_public_names_only():
    trees = [ast.parse(cell.source) for cell in nbformat.read(NOTEBOOK, 4).cells if cell.cell_type == "code"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"soopf_jax", "numpy"}
    assert not any(isinstance(node, ast.ImportFrom) for node in nodes)
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if getattr(node.value, "id", "") == "soopf"}
    assert {"benchmark", "evaluate", "load", "QUICK"} <= used <= set(soopf_jax.__all__)
    assert not [node.attr for node in attributes if node.attr.startswith("_")]


def test_the_notebook_runs_and_shows_tables_and_figures(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())  # or it would look at all fonts again
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    notebook = nbformat.read(NOTEBOOK, 4)
    NotebookClient(notebook, timeout=300, iopub_timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
    first, score, frame, figure, equal, mine, seeds = shown
    assert first["text/plain"].startswith("shapes3d-lite, pixels: 3 seeds")
    assert "<table" in first["text/html"]
    mean, per_seed, _ = ast.literal_eval(score["text/plain"])
    assert mean == pytest.approx(sum(per_seed) / 3)
    assert "invert" in frame["text/html"]
    assert "image/png" in figure
    assert equal["text/plain"] == "True"
    factorial = next(line.split() for line in mine["text/plain"].splitlines() if line.startswith("factorial "))
    assert factorial[1] == "1.000", "the tokens factor perfectly"
    assert "image/png" in seeds
    assert (tmp_path / "runs" / "quickstart" / "report.html").exists()
