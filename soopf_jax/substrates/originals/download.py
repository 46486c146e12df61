"""Downloads a file: its address, size and SHA-256 in, the complete and checked file out.

Bytes go into `NAME.part`. After a broken connection the download continues where it stopped, at once or in the next
run. The finished file gets its name only after its size and SHA-256 have been checked.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from soopf_jax.errors import UserError
from soopf_jax.runtime.progress import bar

MB = 10**6
CHUNK = 1 << 20
SECONDS_OF_SILENCE = 60.0
"""A connection that sends nothing for this long counts as broken."""
AGAIN = "run the same command again to go on"


class Remote(NamedTuple):
    """A file on a server, with the size and the hash that it must have."""

    url: str
    size: int
    sha256: str


def download(remote: Remote, target: Path, http_hosts: Collection[str] = ()) -> None:
    """Download a file, starting where an earlier run stopped. A file that exists already is only checked.

    Args:
        remote: The file to download.
        target: Where to put it.
        http_hosts: Hosts for which http is allowed, for tests on the loopback address. All others, including those of
            redirects, must use https.

    Raises:
        UserError: The file cannot be downloaded, or is not the expected one.
    """
    if target.exists():
        check(remote, target, f"move {target} away")
        return
    part = target.with_name(f"{target.name}.part")
    opener = urllib.request.build_opener(_SafeRedirects(http_hosts))
    check_address(remote.url, http_hosts)
    have = part.stat().st_size if part.exists() else 0
    with bar(f"downloading {target.name}", remote.size // MB, "MB") as advance:
        show = in_megabytes(advance)
        show(have)
        while have < remote.size:
            before, have = have, _continue(opener, remote, part, have, show)
            if have <= before:
                where = f"after {have} of {remote.size} bytes"
                raise UserError(f"{_host(remote)} ended the download of {target.name} {where}; {AGAIN}")
    try:
        check(remote, part, "it was removed: run the same command again")
    except UserError:
        part.unlink()
        raise
    os.replace(part, target)


def _continue(
    opener: urllib.request.OpenerDirector, remote: Remote, part: Path, have: int, show: Callable[[int], None]
) -> int:
    """Append to a file of `have` bytes until the connection ends, and return its new size."""
    with _request(opener, remote, have) as response:
        # A server that does not support ranges sends the whole file, so start over.
        have = have if response.status == 206 else 0
        with part.open("ab" if have else "wb") as file:
            for chunk in _chunks(response, remote.size - have):
                file.write(chunk)
                have += len(chunk)
                show(have)
            file.flush()
            os.fsync(file.fileno())
    return have


def _request(opener: urllib.request.OpenerDirector, remote: Remote, have: int) -> HTTPResponse:
    """Ask the server for all bytes after the first `have`."""
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        response: HTTPResponse = opener.open(
            urllib.request.Request(remote.url, headers=headers), timeout=SECONDS_OF_SILENCE
        )
    except urllib.error.HTTPError as error:
        if error.code == 416:
            raise _wrong_size(remote, f"at most {have}") from error
        answer = f"the server answers {error.code} {error.reason}"
        raise UserError(f"cannot download {remote.url}: {answer}; try again later") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"cannot reach {_host(remote)} ({reason}); check the network connection, then {AGAIN}"
        ) from error
    if response.status == 206:
        offered, due = response.headers["Content-Range"], f"bytes {have}-{remote.size - 1}/{remote.size}"
    else:
        offered, due = response.headers["Content-Length"], str(remote.size)
    if offered not in (None, due):
        response.close()
        raise _wrong_size(remote, offered)
    return response


def _chunks(response: HTTPResponse, due: int) -> Iterator[bytes]:
    """Yield what the server sends until `due` bytes have arrived or the connection ends or fails."""
    while due:
        try:
            chunk = response.read1(min(due, CHUNK))  # unlike `read`, loses nothing if the connection breaks
        except (OSError, HTTPException):
            return
        if not chunk:
            return
        due -= len(chunk)
        yield chunk


# ------------------------------------------------------------------------------------------------ checks


def check(remote: Remote, path: Path, remedy: str) -> None:
    """Raise a UserError unless a local file has the expected size and SHA-256."""
    size = path.stat().st_size
    if size != remote.size:
        raise UserError(f"{path} has {size} bytes instead of {remote.size}; {remedy}")
    digest = hashlib.sha256()
    with bar(f"checking {path.name}", size // MB, "MB") as advance, path.open("rb") as file:
        show = in_megabytes(advance)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            show(file.tell())
    if digest.hexdigest() != remote.sha256:
        raise UserError(f"{path} has the SHA-256 {digest.hexdigest()} instead of {remote.sha256}; {remedy}")


def check_address(url: str, http_hosts: Collection[str]) -> None:
    """Raise a UserError unless the address uses https, or its host is in `http_hosts`."""
    address = urlsplit(url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in http_hosts):
        raise UserError(f"{url} is not https and will not be downloaded; download the file by hand")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only if its address passes `check_address`."""

    def __init__(self, http_hosts: Collection[str]) -> None:
        self.http_hosts = http_hosts

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The request to the new address."""
        check_address(newurl, self.http_hosts)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _wrong_size(remote: Remote, offered: str) -> UserError:
    known = f"the one we know has {remote.size}"
    return UserError(f"{remote.url} is another file now: it offers {offered} bytes, {known}; download it by hand")


def _host(remote: Remote) -> str | None:
    return urlsplit(remote.url).hostname


def in_megabytes(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Turn the `advance` of a bar in megabytes into a function of the number of bytes so far."""
    shown = 0

    def show(n_bytes: int) -> None:
        nonlocal shown
        if n_bytes // MB != shown:
            advance(n_bytes // MB - shown)
            shown = n_bytes // MB

    return show
