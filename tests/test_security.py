"""Nothing that is read can run code, leave its folder or reach a page as markup.

The tests of archives, downloads and checkpoints are beside those modules: test_unpack, test_download, test_fetch,
test_hf_checkpoint; the policy of a page is in test_report.
"""

import ast
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from soopf_jax import bench, compare, leaderboard
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.features.npz import load_npz
from tests import test_npz
from tests.faults.runs import tokens
from tests.planted import SMALL_OPTIONS
from tests.result_folders import save_run

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*ROOT.glob("soopf_jax/**/*.py"), *ROOT.glob("benchmarks/*.py")])

# ------------------------------------------------------------------------------------ what code may not say

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
"""Readers that run what they read."""
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen", "tempfile.mktemp"}
CALLS |= {"subprocess.getoutput", "subprocess.getstatusoutput", "pd.read_pickle", "hub.load", "torch.hub.load"}
KEYWORDS = {"allow_pickle": False, "trust_remote_code": False, "shell": False, "weights_only": True}
"""Keywords that may be given with this value only."""
NEEDED = {"np.load": "allow_pickle", "AutoConfig.from_pretrained": "trust_remote_code"}


def name_of(node):
    """`np.load` of the expression np.load, the last two parts of anything longer; `.load` of something else's."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value).rpartition('.')[2]}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults_in(source):
    """What a source may not say."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in MODULES)
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if name in CALLS:
                yield f"calls {name}"
            if name in NEEDED and NEEDED[name] not in given:
                yield f"calls {name} without {NEEDED[name]}"
            for keyword in KEYWORDS.keys() & given.keys():
                value = given[keyword]
                if not isinstance(value, ast.Constant) or value.value is not KEYWORDS[keyword]:
                    yield f"calls {name} with another {keyword}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_source_reads_nothing_that_runs_and_starts_no_shell(path):
    assert list(faults_in(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import numpy as np; np.load(f)",
        "import numpy as np; np.load(f, allow_pickle=True)",
        "np.savez(f, allow_pickle=flag)",
        "import torch; torch.load(f)",
        "eval(text)",
        "exec(text)",
        "import yaml",
        "import subprocess; subprocess.run(text, shell=True)",
        "import os; os.system(text)",
        "transformers.AutoConfig.from_pretrained(folder)",
        "Model.from_pretrained(folder, trust_remote_code=True)",
    ],
)
def test_the_scan_finds_what_it_looks_for(source):
    assert list(faults_in(source))


def test_only_plug_in_names_are_imported_and_only_the_downloader_opens_addresses():
    users = {"importlib.import_module": {"plugins.py"}, "urllib.request": {"download.py"}}
    for word, allowed in users.items():
        assert {path.name for path in SOURCES if word in path.read_text()} == allowed


def test_weights_are_loaded_from_safetensors_only():
    tree = ast.parse((ROOT / "soopf_jax" / "encoders" / "hf_checkpoint.py").read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and name_of(n.func).endswith("from_pretrained")]
    models = [call for call in calls if not name_of(call.func).startswith("AutoConfig")]
    assert models
    for call in models:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given["use_safetensors"] == "True"
        assert given["local_files_only"] == "True", "what was checked is what is loaded"


# --------------------------------------------------------------------------------------- files that attack


class Bomb:
    """A pickle of this makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_pickle_in_an_array_file_is_refused_unread(tmp_path):
    bomb = np.array([Bomb(tmp_path / "ran")], object)
    np.savez(tmp_path / "tokens.npz", **test_npz.arrays(supports=bomb))
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        load_npz(tmp_path / "tokens.npz")
    folder = Path(save_run(tmp_path / "run", {"learned": np.full((2, 2, 9), 0.5)}))
    np.savez(folder / "fits.npz", seed=bomb)
    document = json.loads((folder / "result.json").read_text())
    sealed = results.sealed(document, (folder / "fits.npz").read_bytes())
    (folder / "result.json").write_text(json.dumps(sealed))
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        results.load(folder)
    assert not (tmp_path / "ran").exists()


def test_no_plug_in_that_a_file_names_is_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "evil_plug_in.py").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})")
    monkeypatch.syspath_prepend(tmp_path)
    evil = "evil_plug_in:PART"
    config = {"dataset": evil, "encoder": evil, "readout": evil, "objective": evil}
    scores = np.random.default_rng(0).random((2, 3, 9))
    folder = save_run(tmp_path / "runs" / "run", {"learned": scores, evil: scores}, config=config)
    assert leaderboard.main([str(tmp_path / "runs")]) == 0
    assert compare.main([f"{folder}:learned", f"{folder}:{evil}"]) == 0
    assert evil in capsys.readouterr().out, "the name is shown"
    names = {"supports": np.array([evil, "b"]), "operations": np.array([evil, "d"])}
    np.savez(tmp_path / "tokens.npz", **test_npz.arrays(**names))
    assert evil in load_npz(tmp_path / "tokens.npz").grid.supports
    assert "evil_plug_in" not in sys.modules
    assert not (tmp_path / "ran").exists()


SCRIPT = "<script>alert(1)</script>"


def test_names_from_a_features_file_are_text_in_every_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"supports": [SCRIPT, "b", "c"], "operations": [f"{SCRIPT}2", "d", "e"]}
    features = tokens(tmp_path, "<script>alert(1)<.npz", **names)  # a slash cannot be part of a file's name
    small = ["--assignment", "factorial", "learned", *SMALL_OPTIONS]
    assert bench.main(["--features", str(features), *small, "--out", "runs/r"]) == 0
    assert leaderboard.main(["runs", "--html", "all.html"]) == 0
    assert compare.main(["runs/r:factorial", "runs/r:learned", "--html", "two.html"]) == 0
    assert SCRIPT in capsys.readouterr().out, "a terminal shows it as it is"
    pages = [Path("runs/r/report.html").read_text(), Path("all.html").read_text(), Path("two.html").read_text()]
    for page in pages:
        assert "<script>alert" not in page
        assert page.count("<script>") == 1, "the page's own"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[0]
    assert "&lt;script&gt;alert(1)&lt;.npz" in pages[0]
    assert "&lt;script&gt;alert(1)&lt;.npz" in pages[1]


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\x07", "\u202e\u2066", "\ud800"])
def test_names_that_a_terminal_would_obey_are_refused(name, tmp_path):
    np.savez(tmp_path / "tokens.npz", **test_npz.arrays(supports=np.array([name, "b"])))
    with pytest.raises(UserError, match="cannot be printed; rename it") as caught:
        load_npz(tmp_path / "tokens.npz")
    assert str(caught.value).isprintable()
