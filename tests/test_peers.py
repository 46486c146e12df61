"""One process notices the death of another. With real processes of JAX: `tests/slurm/test_processes.py`."""

import contextlib
import subprocess
import sys
import threading

import pytest

from soopf_jax.errors import UserError
from soopf_jax.fitting import peers
from soopf_jax.runtime import interrupt, last_words


class Ended(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def pair(monkeypatch):
    """A connection of two processes, and what ends this one."""

    def end(line, code):
        raise Ended(line, code)

    monkeypatch.setattr(interrupt, "end_at_once", end)
    monkeypatch.setattr(peers, "GRACE", 0.05)
    with peers._listen() as listener:
        port = listener.getsockname()[1]
        other = peers.socket.create_connection(("127.0.0.1", port))
        own, _ = listener.accept()
    with own, other:
        yield own, other


def test_a_connection_that_closes_ends_this_process(pair):
    own, other = pair
    other.close()
    with pytest.raises(Ended, match=r"error: process 3 of this run has died, .*; start all processes again") as ended:
        peers.watch(3, own, threading.Event())
    assert ended.value.args[1] == 2


def test_a_process_that_has_finished_does_not(pair):
    own, other = pair
    other.sendall(peers.FINISHED)
    other.close()
    peers.watch(3, own, threading.Event())


def test_a_process_that_has_failed_itself_reports_its_own_error(pair):
    own, other = pair
    other.close()
    failed = threading.Event()
    failed.set()
    peers.watch(3, own, failed)


@pytest.mark.parametrize("error", [None, UserError("the disk is full; free some")])
def test_a_process_says_that_it_has_finished_unless_it_has_failed(pair, monkeypatch, error):
    own, other = pair
    monkeypatch.setattr(peers.jax, "process_count", lambda: 2)
    monkeypatch.setattr(peers, "_connect", lambda: [(1, own)])
    monkeypatch.setattr(peers, "_end_soon", lambda: None)
    monkeypatch.setattr(peers, "watch", lambda *_: None)
    fails = contextlib.nullcontext() if error is None else pytest.raises(UserError, match="the disk is full")
    with fails, peers.watched():
        if error:
            raise error
    assert other.recv(1) == (peers.FINISHED if error is None else b"")


def test_only_those_who_know_the_token_count():
    token = b"t" * peers.TOKEN_BYTES
    with peers._listen() as listener:
        port = listener.getsockname()[1]
        stranger, peer = (peers.socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        stranger.sendall(b"x" * (peers.TOKEN_BYTES + 4))
        peer.sendall(token + (5).to_bytes(4, "big"))
        ((number, connection),) = peers._accept(listener, token, 1)
    assert number == 5
    for each in (stranger, peer, connection):
        each.close()


def test_the_dump_of_an_abort_becomes_one_line():
    said = (
        b"a line\nE1118 20:47:00 1570 agent.cc:289] Polled an error from coordination service (this can ...)\n"
        b"F1118 20:47:00 1570 client.h:80] Terminating process\n*** Check failure stack trace: ***\n"
    )
    program = [sys.executable, "-I", "-S", last_words.__file__, "the first process has died"]
    done = subprocess.run(program, input=said, capture_output=True)
    assert done.stderr == b"a line\nthe first process has died\n"
    assert subprocess.run(program, input=b"all\nof it", capture_output=True).stderr == b"all\nof it"
