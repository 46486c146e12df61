"""The README is short, its code runs, and it names nothing that a reader does not have."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.planted import planted_tokens

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLE = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]


def test_it_fits_on_a_few_screens():
    assert len(README.splitlines()) <= 150


def test_your_own_model_takes_three_lines():
    assert len([line for line in EXAMPLE.splitlines() if line and not line.startswith(("import", "from"))]) == 3


def test_it_names_no_private_path():
    assert "../" not in README
    assert "/work" not in README


@pytest.mark.usefixtures("optimised")
def test_the_example_runs_and_reads_its_planted_grid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = planted_tokens(np.random.default_rng(0))
    scope["support"], scope["operation"] = np.divmod(scope.pop("cell"), 2)
    exec(compile(EXAMPLE, "README.md", "exec"), scope)
    scores = {name: arm.inj.mean for name, arm in scope["result"].arms.items()}
    assert list(scores) == ["factorial", "learned", "compressed"]
    assert scores["factorial"] >= 0.95
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["factorial", f"{scores['factorial']:.3f}"] in printed
    assert (tmp_path / "runs" / "mine" / "report.html").exists()


def test_the_citation_has_the_papers_title_and_authors():
    entry = re.search(r"```bibtex\n(.*?)```", README, re.DOTALL)[1]
    assert "author = {Wang, Zhongyao and Ouyang, Wanli and Cui, Taoyong and Heng, Pheng Ann}" in entry
    title = re.sub(r"\s+", " ", re.search(r"title\s+= \{(.*?)\},\n", entry, re.DOTALL)[1]).replace("{$\\times$}", "×")
    assert title in README, "the text and the entry give one title"
    assert "year" not in entry, "the preprint shows none"
