"""A web server on the loopback address that behaves as a test wants: well, badly or not at all."""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from soopf_jax.substrates.originals.download import Remote

CONTENT = bytes(range(256)) * 1200  # 307,200 bytes, more than a socket takes at once
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HOST = "127.0.0.1"

Answer = Callable[[BaseHTTPRequestHandler, int], None]
"""What the server does with a request for all bytes from a number on."""


class Server(ThreadingHTTPServer):
    """Answers as `answer` says and notes what it was asked for."""

    daemon_threads = True
    answer: Answer
    asked: list[str | None]

    def remote(self, size: int = len(CONTENT), sha256: str = SHA256) -> Remote:
        return Remote(f"http://{HOST}:{self.server_port}/file", size, sha256)


class Handler(BaseHTTPRequestHandler):
    """Hands requests on to the server's `answer`."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        wanted = self.headers["Range"]
        self.server.asked.append(wanted)
        self.server.answer(self, int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0)  # type: ignore[index]

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Server]:
    """A server for the length of a block."""
    with Server((HOST, 0), Handler) as server:
        server.answer, server.asked = well, []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def well(handler: BaseHTTPRequestHandler, first: int, content: bytes = CONTENT, cut: int | None = None) -> None:
    """A server that knows ranges; with `cut` it sends so many bytes of those it promises."""
    rest = content[first:]
    if first and not rest:
        send(handler, 416, {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"})
        return
    place = {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if first else {}
    send(handler, 206 if first else 200, {"Content-Length": str(len(rest)), **place}, rest[:cut])


def without_ranges(handler: BaseHTTPRequestHandler, first: int, cut: int | None = None) -> None:
    send(handler, 200, {"Content-Length": str(len(CONTENT))}, CONTENT[:cut])


def status(code: int) -> Answer:
    return lambda handler, first: send(handler, code, {"Content-Length": "0"})


def redirect(url: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, first: int) -> None:
        if handler.path == "/file":
            send(handler, 302, {"Location": url, "Content-Length": "0"})
        else:
            well(handler, first)

    return answer
