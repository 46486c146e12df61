"""Downloads from a server on the loopback address that behaves well, badly or not at all."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from soopf_jax.errors import UserError
from soopf_jax.substrates.originals import download
from soopf_jax.substrates.originals.download import Remote
from tests.loopback_server import (
    CONTENT,
    HOST,
    SHA256,
    Handler,
    Server,
    redirect,
    running,
    send,
    status,
    well,
    without_ranges,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as server:
        yield server


def get(server: Server, target: Path, remote: Remote | None = None) -> None:
    download.download(remote or server.remote(), target, http_hosts=(HOST,))


def refused(server: Server, target: Path, remote: Remote | None = None) -> str:
    """The message of a download that must fail."""
    with pytest.raises(UserError) as caught:
        get(server, target, remote)
    assert not target.exists()
    return str(caught.value)


# ---------------------------------------------------------------------------------------------- downloads


def test_a_file_comes_in_whole(server: Server, tmp_path: Path) -> None:
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert server.asked == [None]


def test_a_file_that_is_there_is_checked_and_not_fetched_again(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT)
    get(server, target)
    for wrong, said in ((CONTENT[:-1], "has 307199 bytes instead of 307200"), (CONTENT[::-1], "has the SHA-256")):
        target.write_bytes(wrong)
        with pytest.raises(UserError, match=f"{said}.*; move .* away"):
            get(server, target)
        assert target.read_bytes() == wrong  # a user's file is a user's file
    assert server.asked == []


def test_an_interrupted_download_goes_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_connection_that_is_cut_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    server.answer = partial(well, cut=100_000)
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


def test_a_server_that_sends_nothing_is_given_up_but_not_what_it_sent(server: Server, tmp_path: Path) -> None:
    cuts = iter([5000, 0])
    server.answer = lambda handler, first: well(handler, first, cut=next(cuts))
    message = refused(server, tmp_path / "file")
    assert f"{HOST} ended the download of file after 5000 of 307200 bytes; run the same command again" in message
    server.answer = well
    get(server, tmp_path / "file")
    assert server.asked[-1] == "bytes=5000-"
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_silence_is_a_cut(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, first: int) -> None:
        well(handler, first, cut=None if first else 5000)
        if not first:
            handler.wfile.flush()
            done.wait(10)

    monkeypatch.setattr(download, "SECONDS_OF_SILENCE", 0.2)
    server.answer = answer
    get(server, tmp_path / "file")
    done.set()
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=5000-"]


def test_a_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    server.answer = without_ranges
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_server_without_ranges_that_always_stops_at_the_same_place_is_given_up(
    server: Server, tmp_path: Path
) -> None:
    server.answer = partial(without_ranges, cut=5000)
    assert "after 5000 of 307200 bytes" in refused(server, tmp_path / "file")
    assert server.asked == [None, "bytes=5000-"]


def test_other_content_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    server.answer = partial(well, content=CONTENT[::-1])
    message = refused(server, tmp_path / "file")
    assert f"has the SHA-256 {hashlib.sha256(CONTENT[::-1]).hexdigest()} instead of {SHA256}" in message
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_beginning_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    assert "SHA-256" in refused(server, tmp_path / "file")
    get(server, tmp_path / "file")
    assert server.asked == ["bytes=1000-", None]


@pytest.mark.parametrize("length", [len(CONTENT) - 1, len(CONTENT) + 1])
@pytest.mark.parametrize("have", [0, 1000])
def test_another_size_is_refused_before_a_byte_is_taken(server: Server, tmp_path: Path, length: int, have: int) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:have])
    server.answer = partial(well, content=(CONTENT + b"x")[:length])
    message = refused(server, tmp_path / "file")
    assert "is another file now" in message
    assert str(length) in message
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:have]


def test_a_file_shorter_than_what_is_here_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    server.answer = partial(well, content=CONTENT[:900])
    assert "is another file now: it offers at most 1000 bytes" in refused(server, tmp_path / "file")


def test_no_more_is_taken_than_there_should_be(server: Server, tmp_path: Path) -> None:
    """An answer without a length goes on until the connection closes."""
    server.answer = lambda handler, first: send(handler, 200, {}, CONTENT[::-1] * 20)
    assert "has the SHA-256" in refused(server, tmp_path / "file")
    server.answer = lambda handler, first: send(handler, 200, {}, CONTENT * 20)
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_connection_that_stays_open_does_not_keep_us_waiting(server: Server, tmp_path: Path) -> None:
    done, ended = threading.Event(), []

    def answer(handler: BaseHTTPRequestHandler, first: int) -> None:
        well(handler, first)
        done.wait(10)
        ended.append(first)

    server.answer = answer
    get(server, tmp_path / "file")
    assert ended == []  # the file is here and the server still waits
    done.set()


def test_more_than_the_whole_file_is_here(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"x")
    assert "has 307201 bytes instead of 307200; it was removed" in refused(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "reason"), [(404, "Not Found"), (403, "Forbidden"), (503, "Service Unavailable")])
def test_what_the_server_answers_is_said(server: Server, tmp_path: Path, code: int, reason: str) -> None:
    server.answer = status(code)
    assert f"the server answers {code} {reason}; try again later" in refused(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_no_server(server: Server, tmp_path: Path) -> None:
    with Server((HOST, 0), Handler) as closed:
        nobody = closed.remote()
    message = refused(server, tmp_path / "file", nobody)
    assert message.startswith(f"cannot reach {HOST} ([Errno 111] Connection refused); check the network connection")


def test_a_name_that_nobody_knows(server: Server, tmp_path: Path) -> None:
    unknown = Remote("https://nowhere.invalid/file", 1, SHA256)  # a top-level domain that cannot exist
    assert refused(server, tmp_path / "file", unknown).startswith("cannot reach nowhere.invalid (")


def test_what_is_not_http_is_an_answer_too(server: Server, tmp_path: Path) -> None:
    server.answer = lambda handler, first: handler.wfile.write(b"220 smtp ready\r\n") and None
    assert f"cannot reach {HOST} (220 smtp ready" in refused(server, tmp_path / "file")


# ------------------------------------------------------------------------------------------------- https


def test_plain_http_is_refused_unless_the_host_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not https"):
        download.download(server.remote(), tmp_path / "file")
    assert server.asked == []


@pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
def test_no_other_scheme_is_spoken(scheme: str) -> None:
    with pytest.raises(UserError, match="is not https"):
        download.check_address(f"{scheme}://{HOST}/etc/passwd", (HOST,))


def test_a_redirect_is_followed_with_its_range(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:7])
    server.answer = redirect("/elsewhere")
    get(server, tmp_path / "file")
    assert server.asked == ["bytes=7-", "bytes=7-"]


@pytest.mark.parametrize("url", ["http://localhost:{port}/elsewhere", "ftp://127.0.0.1:{port}/elsewhere"])
def test_a_redirect_away_from_https_is_refused(server: Server, tmp_path: Path, url: str) -> None:
    """To this very server, but under a name without a licence to speak http."""
    server.answer = redirect(url.format(port=server.server_port))
    assert "is not https and will not be downloaded" in refused(server, tmp_path / "file")
    assert server.asked == [None]
