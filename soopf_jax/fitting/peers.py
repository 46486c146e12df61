"""Notice at once when another process of a distributed run has died, and end with one line instead of hanging.

JAX's own service notices after 100 s that a process has died, and at once if that is the first one, where the service
runs. It then aborts the others with a dump. Until then they wait for numbers that never come. So the processes also
hold a plain connection: the first one accepts one from every other. The kernel closes the connections of a process that
dies, however it dies. Where a whole machine is lost, the probes of TCP find out within about half a minute. A process
that has done its work says so before it ends. The dump is replaced by a line (`runtime/last_words.py`).
"""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import jax
import numpy as np
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

from soopf_jax.errors import UserError
from soopf_jax.runtime import interrupt, last_words

CODE = 2
"""The exit code of a process that ends because another one has died."""
GRACE = 1.0
"""Seconds that a process has to come to an end of its own after another one has ended. If all processes meet the same
error, each of them should report it."""
PATIENCE = 10.0
"""Seconds that a process which has failed may take to end. JAX would have it wait for the others."""
FINISHED = b"F"
TOKEN_BYTES = 16
_helpers: list[subprocess.Popen[bytes]] = []
"""Processes that end with this one."""
PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Seconds of silence before the first probe, seconds between probes, and how many may remain without an answer."""


DIED = (
    "error: process {} of this run has died, see what it has printed; start all processes again: the run goes on where"
    " it stopped"
)


@contextmanager
def watched() -> Iterator[None]:
    """In this block, end this process with one line if another process of the run dies.

    An error in this process ends the others in the same way.
    """
    if jax.process_count() == 1:
        yield
        return
    if jax.process_index() > 0:
        _replace_dump(DIED.format(0))
    connections, own_end = _connect(), threading.Event()
    for number, connection in connections:
        watcher = threading.Thread(target=watch, args=(number, connection, own_end), name="other process", daemon=True)
        watcher.start()
    try:
        yield
        for _, connection in connections:
            with suppress(OSError):
                connection.sendall(FINISHED)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, UserError):
            time.sleep(2 * GRACE)  # it may be about a process that has died: then `watch` ends this one
        own_end.set()
        for _, connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=_end_soon, name="end of a failed process", daemon=True).start()
        raise


def watch(number: int, connection: socket.socket, own_end: threading.Event) -> None:
    """Wait for the end of another process, and end this one unless the other has finished or this one has failed."""
    said = b""
    with suppress(OSError):
        said = connection.recv(1)
    if said != FINISHED and not own_end.wait(GRACE):
        interrupt.end_at_once(DIED.format(number), CODE)


def _replace_dump(line: str) -> None:
    """Let stderr of this process pass through `last_words`."""
    program = [sys.executable, "-I", "-S", last_words.__file__, line]
    helper = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert helper.stdin is not None
    sys.stderr.flush()
    os.dup2(helper.stdin.fileno(), 2)
    helper.stdin.close()
    _helpers.append(helper)


def _end_soon() -> None:
    time.sleep(PATIENCE)
    sys.stdout.flush()
    os._exit(CODE)


def _connect() -> Sequence[tuple[int, socket.socket]]:
    """The number of each process that this one is connected to, and the connection."""
    main = jax.process_index() == 0
    listener = _listen() if main else None
    # Others may find the port. Only processes of this run know the token.
    told = [listener.getsockname()[1] if listener else 0, *secrets.token_bytes(TOKEN_BYTES)]
    port, *token = (int(number) for number in multihost_utils.broadcast_one_to_all(np.array(told, np.int32)))
    if listener is not None:
        with listener:
            connections = _accept(listener, bytes(token), jax.process_count() - 1)
    else:
        host = str(global_state.coordinator_address).rpartition(":")[0].strip("[]")
        connection = socket.create_connection((host, port), timeout=60)
        connection.sendall(bytes(token) + jax.process_index().to_bytes(4, "big"))
        connections = [(0, connection)]
    for _, connection in connections:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connections


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _accept(listener: socket.socket, token: bytes, count: int) -> list[tuple[int, socket.socket]]:
    """The connections of the other processes; any other that does not know the token is closed."""
    found: list[tuple[int, socket.socket]] = []
    listener.settimeout(60)
    while len(found) < count:
        connection, _ = listener.accept()
        connection.settimeout(10)
        said = b""
        with suppress(OSError):
            said = connection.recv(TOKEN_BYTES + 4, socket.MSG_WAITALL)
        if secrets.compare_digest(said[:TOKEN_BYTES], token) and len(said) == TOKEN_BYTES + 4:
            found.append((int.from_bytes(said[TOKEN_BYTES:], "big"), connection))
        else:
            connection.close()
    return found
