"""A TCP proxy on the loopback address that breaks connections after some bytes, as networks do."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

HOST = "127.0.0.1"


class Proxy:
    """Hands bytes on to a server, and cuts every connection when the allowance is used up."""

    def __init__(self, port_of_server: int) -> None:
        self._server = (HOST, port_of_server)
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent, self.received, self.cuts = 0, 0, 0
        """Bytes to the server, bytes from it, and connections that were cut."""
        self._upload_left: int | None = None
        self._download_left: int | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def allow(self, upload: int | None = None, download: int | None = None) -> Self:
        """So many more bytes pass in each direction, however many connections share them; None: without limit."""
        with self._lock:
            self._upload_left, self._download_left = upload, download
            self.sent = self.received = self.cuts = 0
        return self

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, upload: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 14):
                allowed = self._take(len(data), upload)
                target.sendall(data[:allowed])
                if allowed < len(data):
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _take(self, wanted: int, upload: bool) -> int:
        with self._lock:
            left = self._upload_left if upload else self._download_left
            taken = wanted if left is None else min(wanted, left)
            self.cuts += taken < wanted
            if upload:
                self.sent += taken
                self._upload_left = None if left is None else left - taken
            else:
                self.received += taken
                self._download_left = None if left is None else left - taken
            return taken


@contextmanager
def running(port_of_server: int) -> Iterator[Proxy]:
    """A proxy for the length of a block. It cuts nothing until it is told to."""
    proxy = Proxy(port_of_server)
    try:
        yield proxy
    finally:
        proxy.close()
