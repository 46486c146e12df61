"""Ctrl-C: raised at once, remembered where the exception is dropped, ignored where the process ignores it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soopf_jax.fitting import checkpoint
from soopf_jax.fitting.lanes import side_by_side
from soopf_jax.runtime import cli, interrupt


@pytest.fixture(autouse=True)
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c_where_it_is_dropped():
    class Dropping:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    Dropping()


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_ctrl_c_that_a_destructor_drops_ends_the_work_at_its_next_check(lanes, capsys, monkeypatch):
    done, tracebacks = [], []
    monkeypatch.setattr(sys, "unraisablehook", tracebacks.append)

    def work(item, check):
        check()
        done.append(item)

    def program():
        press_ctrl_c_where_it_is_dropped()
        side_by_side(work, range(4), lanes)

    assert cli.run(program, interrupted="stopped") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "stopped"
    assert not done
    assert not tracebacks


def test_other_exceptions_that_a_destructor_drops_are_still_reported(monkeypatch):
    class Failing:
        def __del__(self):
            raise ValueError("a library's own mistake")

    tracebacks = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: tracebacks.append(dropped.exc_type))
    assert cli.run(Failing) == 0
    assert tracebacks == [ValueError]


def test_what_a_full_disk_makes_orbax_drop_is_silent_in_every_run_of_a_process(monkeypatch):
    class Callback:
        def __del__(self):
            raise RuntimeError("Event loop is closed")

    tracebacks = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: tracebacks.append(dropped.exc_type))
    assert cli.run(checkpoint._orbax) == 0
    assert [cli.run(Callback), cli.run(Callback)] == [0, 0]
    Callback()  # the last threads of a failed write may end after the run
    assert tracebacks == []


def test_it_is_raised_at_once_where_nothing_drops_it():
    reached = []
    assert cli.run(lambda: (signal.raise_signal(signal.SIGINT), reached.append(1))) == 130
    assert not reached


def test_it_is_forgotten_by_the_next_program():
    cli.run(lambda: signal.raise_signal(signal.SIGINT))
    assert cli.run(interrupt.check) == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_it_goes_on_ignoring_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert cli.run(lambda: (signal.raise_signal(signal.SIGINT), interrupt.check())) == 0


def test_work_that_is_kept_ends_at_its_own_check_and_says_what_is_left(capsys):
    steps = []

    def program():
        with interrupt.keeping():
            for step in range(10):
                try:
                    interrupt.check()
                except KeyboardInterrupt:
                    interrupt.kept("learned", f"{len(steps)} of 10 steps of learned")
                    raise
                steps.append(step)
                if step == 3:
                    signal.raise_signal(signal.SIGINT)

    interrupt.kept("factorial", "of an earlier command")
    assert cli.run(program, interrupted="stopped") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "interrupted; kept 4 of 10 steps of learned; run the same command again to go on"


def test_an_exception_that_follows_from_it_counts_as_it(capsys):
    """NumPy, for one, turns an interrupted import into an ImportError."""

    def program():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("a part of numpy cannot be imported") from error

    assert cli.run(program, interrupted="stopped") == 130
    assert capsys.readouterr().err == "stopped\n"


def started(program: str, tmp_path: Path) -> subprocess.Popen[str]:
    """A process that runs a program under `cli.run` and has come to the point where it writes the file `busy`."""
    whole = f"""
import hashlib, pathlib, sys, time
from soopf_jax.runtime import cli, interrupt
def program():
    pathlib.Path("busy").touch()
    {program}
sys.exit(cli.run(program, "stopped"))
"""
    own = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job may ignore it
    process = subprocess.Popen([sys.executable, "-c", whole], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    signal.signal(signal.SIGINT, own)
    while not (tmp_path / "busy").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_it_ends_a_process_whose_main_thread_does_not_come_back(tmp_path):
    """A compiler, or here a hash of hours, runs no Python in the main thread."""
    process = started("hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)", tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "stopped\n")


def test_a_second_one_does_not_wait_for_what_is_being_kept(tmp_path):
    process = started("with interrupt.keeping(): time.sleep(10_000)", tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline().startswith("Ctrl-C: keeping what was done")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "stopped at once; run the same command again to go on from what was finished\n"


def test_during_an_import_the_process_ends_at_once(tmp_path):
    """An import that is broken off can crash in compiled code, or be swallowed by the module that asked for it."""
    (tmp_path / "swallowing.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
    )
    program = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from soopf_jax.runtime import cli
def program():
    import swallowing
    print("went on")
sys.exit(cli.run(program, "stopped"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")
