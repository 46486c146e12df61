"""What a report offers to copy: the command gives the same configuration again, the BibTeX is that of the README."""

import re
import shlex
from pathlib import Path

import pytest

from soopf_jax.experiments import options
from soopf_jax.experiments.options import Bench
from soopf_jax.report import citation
from soopf_jax.report.subject import Subject
from soopf_jax.runtime import cli

from .report_result import dealt_result

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--quick",
        "--quick --seeds 10",
        "--edits two --seeds 2 --assignment factorial",
        "--dataset mujoco --encoder hf:'my folder/vit' --layer 3 --dtype float32 --data-seed 2 --pairs-per-cell 20",
        "--readout mlp --objective native --assignment native --router",
        "--weight mask=0.5 loc=1 --operations hue blur --query-sd 0.02 --router-input layernorm --tau-end 1",
    ],
)
def test_the_command_of_a_run_gives_its_configuration_again(arguments):
    def recorded(bench):
        """As a run writes it: with its arms and its objective spelt out."""
        arms = {"assignment": list(bench.assignment or options.ASSIGNMENTS), "objective": bench.objective or "core"}
        return options.record(bench, ["key"]) | arms

    config = recorded(cli.parse(Bench, "bench", shlex.split(arguments)))
    python, *words = shlex.split(citation.command(config))
    assert (python, *words[:2]) == ("python", "-m", "soopf_jax.bench")
    assert recorded(cli.parse(Bench, "bench", words[2:])) == config


def test_a_run_of_features_has_their_file(tmp_path):
    file = tmp_path / "tokens.npz"
    file.touch()
    config = options.record(Bench(features=str(file)), ["key"])
    assert "--features tokens.npz" in citation.command(config)
    assert "--dataset" not in citation.command(config)


def test_a_run_from_python_has_no_command():
    result = dealt_result()
    del result.document["config"]["encoder"]
    assert citation.command({"edits": "one", "protocol": result.document["config"]["protocol"]}) == ""
    assert "<h3>BibTeX" in citation.panel(Subject(result, {}, {}, None))


def test_the_bibtex_is_that_of_the_readme_and_of_this_version():
    (entry,) = re.findall("```bibtex\n(.*?)\n```", README.read_text(), re.DOTALL)
    text = citation.bibtex(dealt_result().document)
    assert text.startswith(entry + "\n\n@software{soopf_jax,")
    assert "version = {0.1.0}" in text
    assert "author  = {{the soopf_jax authors}}" in text
    holder = re.search(r"Copyright \(c\) (\d+) (.*)", (README.parent / "LICENSE").read_text())
    assert holder
    assert f"year    = {{{holder[1]}}}" in text
    assert f"{{{{{holder[2]}}}}}" in text
    assert text.count("{") == text.count("}")
