"""Files that are whole or not there, and locks that one process holds at a time."""

import os
import threading

import pytest

from soopf_jax.errors import UserError
from soopf_jax.runtime import atomic


@pytest.mark.parametrize("fails", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, fails):
    path = tmp_path / "file"
    atomic.write_bytes(path, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, refuse)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_refused_or_waited_for_while_another_holds_it(tmp_path, capsys):
    held, release, got = threading.Event(), threading.Event(), []

    def hold():
        with atomic.only_process(tmp_path / "work", "busy") as waited:
            got.append(waited)
            held.set()
            release.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    with pytest.raises(UserError, match="busy"), atomic.locked(tmp_path / "work" / atomic.LOCK, "busy", wait=False):
        pass
    threading.Timer(0.2, release.set).start()
    with atomic.only_process(tmp_path / "work", "busy") as waited:
        got.append(waited)
    holder.join()
    assert got == [False, True]
    assert capsys.readouterr().err == "busy\n"


def test_a_folder_is_removed_although_another_process_makes_its_lock_meanwhile(tmp_path, monkeypatch):
    work, rmdir = tmp_path / "work", os.rmdir
    work.mkdir()
    (work / atomic.LOCK).touch()

    def another_is_quicker(*args, **options):
        work.mkdir(exist_ok=True)
        (work / atomic.LOCK).touch()
        rmdir(*args, **options)

    monkeypatch.setattr(os, "rmdir", another_is_quicker)
    atomic.remove(work)
    assert [path.name for path in tmp_path.iterdir()] == ["work"], "that of the other process"
    monkeypatch.undo()
    atomic.remove(work)
    atomic.remove(work)
    assert not list(tmp_path.iterdir())


def test_clearing_a_folder_keeps_its_lock(tmp_path):
    (tmp_path / "group").mkdir()
    for name in ("plan.json", "group/part", atomic.LOCK):
        (tmp_path / name).write_text("x")
    atomic.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [atomic.LOCK]
