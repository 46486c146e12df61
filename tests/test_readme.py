"""The README's own code runs, and says what it should."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from soopf_jax.testing import check_readout

README = Path(__file__).parent.parent / "README.md"
LIBRARY, PARTS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_library_example_runs_and_reads_its_planted_grid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(LIBRARY, str(README), "exec"), scope)
    scores = {arm["assignment"]: arm["inj"]["mean"] for arm in scope["result"].document["arms"]}
    assert scores["factorial"] >= 0.95
    assert capsys.readouterr().out.startswith("factorial ")


def test_the_plug_in_example_runs_with_the_readmes_own_command(tmp_path):
    (tmp_path / "my_parts.py").write_text(PARTS)
    command = re.search(r"    python (-m soopf_jax.bench --dataset my_parts.*?)\n\n", README.read_text(), re.DOTALL)
    arguments = shlex.split(command[1].replace("\\\n", " "))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, *arguments, "--out", "out", "--cache-dir", "cache"],
        cwd=tmp_path,
        env=environment,
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


def test_the_readout_of_the_plug_in_example_keeps_the_contract():
    scope = {}
    exec(compile(PARTS, str(README), "exec"), scope)
    check_readout(scope["READOUT"])
