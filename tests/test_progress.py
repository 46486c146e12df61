"""What a user sees while a command works: rows on a terminal, lines elsewhere, and estimates that add up."""

import io
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from soopf_jax.runtime import progress


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True

    def said(self) -> str:
        """Everything, without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@contextmanager
def terminal(columns: int = 120) -> Iterator[Terminal]:
    """A terminal on stderr; not a fixture, because pytest takes stderr back before the test begins."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", shown := Terminal())
        patched.setenv("TERM", "xterm")
        patched.setenv("COLUMNS", str(columns))
        yield shown


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the test moves."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@contextmanager
def log_file() -> Iterator[io.StringIO]:
    """A file on stderr."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", written := io.StringIO())
        yield written


def test_without_a_terminal_a_line_now_and_then(now: list[float]) -> None:
    """A second per call, ten units each: a line at every fourth call, and the rate of all calls but the first."""
    with log_file() as stderr, progress.bar("encoding", 1000, "images") as advance:
        for now[0] in map(float, range(11)):
            advance(10)
    lines = stderr.getvalue().splitlines()
    assert [line.split(" images/s")[0] for line in lines] == ["encoding: 50/1000 10", "encoding: 90/1000 10"]
    assert lines[0].endswith("0:01:35 left"), "950 images at 10 a second"


def test_a_phase_that_reports_nothing_still_gives_a_line(now: list[float]) -> None:
    with log_file() as stderr, progress.shown(), progress.phase("compiling advance"):
        now[0] = 12.0
        for _ in range(100):
            if stderr.getvalue():
                break
            time.sleep(0.1)  # the thread that speaks looks twice a second
    assert stderr.getvalue() == "compiling advance: 0:00:12\n"


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown(), progress.phase("loading"), progress.bar("fitting", 3, "steps") as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_bar_shows_count_and_unit() -> None:
    with terminal() as screen, progress.bar("encoding", 64, "images") as advance:
        advance(32)
        advance(32)
        progress._screen._progress.refresh()
    assert "64/64" in screen.said()
    assert "images" in screen.said()


def test_rows_of_several_threads_stand_side_by_side() -> None:
    """One lane compiles while another trains."""
    begun, seen = threading.Event(), threading.Event()

    def compile_() -> None:
        with progress.phase("compiling evaluate"):
            begun.set()
            seen.wait(30)

    with terminal() as screen, progress.shown(), progress.bar("training learned", 10, "fit-steps") as advance:
        lane = threading.Thread(target=compile_)
        lane.start()
        begun.wait(30)
        advance(5)
        progress._screen._progress.refresh()
        drawn = screen.said().rpartition("training")[2]
        seen.set()
        lane.join()
    assert "5/10 fit-steps" in drawn
    assert "compiling evaluate" in drawn


def test_phases_are_shown_only_where_they_are_asked_for() -> None:
    with terminal() as screen, progress.phase("compiling"), progress.shown(False), progress.phase("training"):
        pass
    assert screen.said() == ""


def test_a_long_description_leaves_room_for_the_numbers() -> None:
    with (
        terminal(80) as screen,
        progress.bar("training my_package.my_module:ASSIGNMENT", 27000, "fit-steps") as advance,
    ):
        advance(100)
        progress._screen._progress.refresh()
    assert "100/27000 fit-steps" in screen.said()
    assert "training my_package.my_mo..." in screen.said()


def test_what_is_printed_during_a_bar_stays_on_its_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """A table that goes to a file through stdout must not end up on the terminal."""
    with terminal() as screen, progress.bar("encoding", 2, "images") as advance:
        advance(1)
        print("a row of a table")
    assert capsys.readouterr().out == "a row of a table\n"
    assert "a row of a table" not in screen.said()


def test_the_whole_run_is_estimated_from_its_parts(now: list[float]) -> None:
    """Three arms of 54 fits and a diagnostic of 6, worked out by hand."""
    run = progress._WholeRun([54, 54, 54, 6])
    assert run.seconds_left(None) is None, "nothing is known yet"
    now[0] = 10.0  # the first arm was compiled for 10 s, and its bar says 44 s more: 54 s in all, 1 s per fit
    assert run.seconds_left(44.0) == pytest.approx(44 + 54 + 54 + 6)
    now[0] = 54.0
    run.part_is_done()
    now[0] = 60.0  # the second arm is compiled for 6 s so far
    assert run.seconds_left(None) == pytest.approx(48 + 54 + 6)
    assert run.seconds_left(40.0) == pytest.approx(40 + 54 + 6)


def test_parts_that_an_earlier_run_did_say_nothing_about_the_others(now: list[float]) -> None:
    run = progress._WholeRun([10, 10, 10])
    now[0] = 0.01
    run.part_is_done()
    now[0] = 5.01
    assert run.seconds_left(15.0) == pytest.approx(15 + 20)


def test_the_estimate_stands_beside_that_of_the_phase(now: list[float]) -> None:
    with (
        terminal() as screen,
        progress.shown(),
        progress.whole_run([1, 1]),
        progress.bar("training factorial", 100, "fit-steps") as advance,
    ):
        for now[0] in (0.0, 1.0, 2.0):
            advance(10)
        progress._screen._progress.refresh()
        assert "30/100 10 fit-steps/s, 0:00:07 left" in screen.said()
        assert "whole run" in screen.said()
        assert "0:00:02, about 0:00:16 left" in screen.said(), "7 s, and an arm of 9 s"
