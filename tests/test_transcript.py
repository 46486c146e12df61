"""A run as its user sees it, in a terminal: every phase has its label. How long each takes is for benchmarks to say."""

import sys

import numpy as np

from benchmarks.transcript import Change, Transcript, record
from tests.planted import SMALL_OPTIONS, small_table


def test_a_run_names_its_phases_in_order_and_prints_tables_that_fit(tmp_path):
    table = small_table()
    np.savez(
        tmp_path / "tokens.npz",
        source=table.source,
        edited=table.source + table.delta,
        cell=table.cell,
        supports=table.grid.supports,
        operations=table.grid.operations,
    )
    command = [sys.executable, "-m", "soopf_jax.bench", "--features", str(tmp_path / "tokens.npz")]
    found = record([*command, "--out", str(tmp_path / "r"), "--assignment", "factorial", *SMALL_OPTIONS])
    assert found.code == 0, found.text
    order = ["loading", "opening", "preparing", "compiling", "training", "evaluating", "report"]
    assert [phase for phase in found.phases() if phase in order] == order
    assert "whole run" in found.text
    assert "(not shown: " in found.text, "the terminal has 80 columns"
    assert (tmp_path / "r" / "result.json").exists()


def test_the_longest_silence_is_found_and_a_spinner_is_no_news():
    """Nothing for 2 s, news, 7 s of a turning spinner, news, and 1 s until the end."""
    changes = [Change(2.0, "- compiling 0:00:01"), Change(5.0, "| compiling 0:00:01"), Change(9.0, "report")]
    found = Transcript(changes, 10.0, 0)
    assert [(seconds, change.text) for seconds, change in found.gaps()] == [
        (7.0, "- compiling 0:00:01"),
        (2.0, ""),
        (1.0, "report"),
    ]
    assert found.phases() == ["compiling", "report"]
