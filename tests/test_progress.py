import io
import sys

import pytest

from soopf_jax import progress


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second per call, ten units each: a line at every tenth call, and the rate of all calls but the first."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress.bar("encoding", 1000, "images") as advance:
        for now[0] in map(float, range(25)):
            advance(10)
    lines = stderr.getvalue().splitlines()
    assert [line.split(" images/s")[0] for line in lines] == ["encoding: 110/1000 10", "encoding: 210/1000 10"]
    assert lines[0].endswith("0:01:29 left")


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("fitting", 3, "steps") as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_bar_shows_count_and_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.bar("encoding", 64, "images") as advance:
        advance(32)
        advance(32)
    assert "64/64" in terminal.getvalue()
    assert "images" in terminal.getvalue()
