"""The README's own code runs, and says what it should."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_library_example_runs_and_reads_its_planted_grid(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(example, str(README), "exec"), scope)
    scores = {arm["assignment"]: arm["inj"]["mean"] for arm in scope["result"].document["arms"]}
    assert scores["factorial"] >= 0.95
    assert capsys.readouterr().out.startswith("factorial ")
