"""Caches on an S3 server: moto in a process of its own on the loopback address, commands in theirs.

`make test-cloud` installs s3fs and moto into build/s3 and runs this file. They need an older python-dateutil than the
one that is locked for everything else.
"""

import functools
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from soopf_jax.features import pack, store
from soopf_jax.features import table as features
from tests import cutting_proxy
from tests.test_pack import PARTS, SMALL, never, parts
from tests.test_store import content

REASON = "needs s3fs and moto: make test-cloud installs them apart and runs this"
s3fs = pytest.importorskip("s3fs", reason=REASON)
pytest.importorskip("moto", reason=REASON)

ROOT = Path(__file__).parent.parent
PAIRS_PER_CELL = 36
BUILD = ("build", *PARTS, "--pairs-per-cell", str(PAIRS_PER_CELL))
FEW_RETRIES = {"retries": {"max_attempts": 0}}
"""As a rule the driver tries for about 40 seconds before it gives up."""


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Cloud(NamedTuple):
    """A bucket of a test's own, and machines that reach it through a proxy."""

    cache: str
    proxy: cutting_proxy.Proxy
    files: s3fs.S3FileSystem
    """The bucket without the proxy."""
    home: Path
    settings: Mapping[str, object] = FEW_RETRIES
    """Of the driver."""

    def environment(self, machine: str) -> dict[str, str]:
        return {
            **os.environ,
            "XDG_CACHE_HOME": str(self.home / machine),
            "FSSPEC_S3_ENDPOINT_URL": f"http://{cutting_proxy.HOST}:{self.proxy.port}",
            "FSSPEC_S3_CONFIG_KWARGS": json.dumps(self.settings),
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def start(self, machine: str, module: str, *words: str) -> subprocess.Popen[str]:
        words = (sys.executable, "-m", f"soopf_jax.{module}", *words, "--cache-dir", self.cache)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, cwd=ROOT, env=self.environment(machine), text=True, **pipes)

    def run(self, machine: str, *words: str, module: str = "features") -> Done:
        process = self.start(machine, module, *words)
        out, err = process.communicate(timeout=900)
        return Done(process.returncode, out, err)

    def stores(self, machine: str) -> list[Path]:
        folder = self.home / machine / "soopf_jax" / "features"
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.exists() else []

    def there(self) -> Mapping[str, tuple[int, object]]:
        """name -> (size, time of writing) of every file of the one store in the bucket."""
        self.files.invalidate_cache()
        found = self.files.find(self.cache.removeprefix("s3://"), detail=True)
        named = {path.partition("/features/")[2].partition("/")[2]: info for path, info in found.items()}
        return {name: (info["size"], info["LastModified"]) for name, info in named.items() if name}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server."""
    with socket.create_server((cutting_proxy.HOST, 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", cutting_proxy.HOST, "-p", str(port)]
    with (tmp_path_factory.mktemp("moto") / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        for _ in range(600):
            try:
                socket.create_connection((cutting_proxy.HOST, port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
        process.terminate()
        process.wait()


@pytest.fixture
def cloud(server: int, tmp_path: Path) -> Iterator[Cloud]:
    bucket = re.sub("[^a-z0-9]", "-", f"{tmp_path.parent.name}-{tmp_path.name}".lower())[-60:].strip("-")
    files = s3fs.S3FileSystem(endpoint_url=f"http://{cutting_proxy.HOST}:{server}", key="key", secret="secret")
    files.mkdir(bucket)
    with cutting_proxy.running(server) as proxy:
        yield Cloud(f"s3://{bucket}/some/prefix", proxy, files, tmp_path)


def wanted(folder: Path) -> dict[str, bytes]:
    """What a build without a network makes, in a folder of its own."""
    return content(features.build(*parts(PAIRS_PER_CELL), cache_dir=folder))


def one_line(done: Done, says: str) -> None:
    assert done.code == 2
    assert done.out == ""
    *progress, error = done.err.splitlines()
    assert re.search(says, error), done.err
    assert all(re.match("(uploading|fetching) features: |rendering and encoding: ", line) for line in progress), (
        done.err
    )


# ------------------------------------------------------------------------------------------------------ the tests


def test_a_run_on_a_fresh_machine_trains_on_what_another_has_built(cloud, tmp_path):
    built = cloud.run("a", *BUILD)
    assert built.code == 0, built.err
    name = built.out.strip().removeprefix(f"{cloud.cache}/features/")
    (here,) = cloud.stores("a")
    assert re.fullmatch(re.escape(here.name) + "-[0-9a-f]{8}", name)
    options = [*PARTS, "--pairs-per-cell", str(PAIRS_PER_CELL), *SMALL, "--out", str(tmp_path / "run")]
    ran = cloud.run("b", *options, module="bench")
    assert ran.code == 0, ran.err
    (there,) = cloud.stores("b")
    assert content(there) == content(here) == wanted(tmp_path / "alone")
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["provenance"]["features"]["digest"] == store.open_store(here).manifest["digest"]
    listed = cloud.run("c", "list")
    assert listed.out.startswith(f"{name}  0.3 MB  ready  RMS of tokens")
    assert cloud.stores("c") == []
    assert cloud.run("c", "verify") == (0, f"{name}: every byte is as it was written\n", "")
    assert cloud.run("c", "export", name[:20], "--to", str(tmp_path / "pack")).code == 0
    assert pack.verify(tmp_path / "pack") == []
    assert cloud.run("c", "remove", name) == (0, "", "")
    assert cloud.there() == {}


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_an_upload_that_breaks_goes_on_with_what_is_missing(cloud, tmp_path, share):
    whole = wanted(tmp_path / "alone")
    cloud.proxy.allow(upload=int(share * sum(map(len, whole.values()))))
    one_line(cloud.run("a", *BUILD), r"^error: cannot reach s3://.*run the same command again to go on$")
    assert cloud.proxy.cuts > 0
    before = cloud.there()
    assert before
    assert store.MANIFEST not in before
    cloud.proxy.allow()
    assert "unfinished" in cloud.run("b", "list").out
    missing = sum(len(data) for name, data in whole.items() if name not in before)
    cloud.proxy.allow()
    again = cloud.run("a", *BUILD)
    assert again.code == 0, again.err
    after = cloud.there()
    assert {name: size for name, (size, _) in after.items()} == {name: len(data) for name, data in whole.items()}
    assert {name: after[name] for name in before} == before  # the time of writing too: nothing was sent again
    assert missing < cloud.proxy.sent < missing + 300_000  # questions and headers
    assert cloud.run("b", "verify").code == 0


def test_a_download_that_breaks_goes_on_with_what_is_missing(cloud, tmp_path):
    whole = wanted(tmp_path / "alone")
    assert cloud.run("a", *BUILD).code == 0
    cloud.proxy.allow(download=int(0.6 * sum(map(len, whole.values()))))
    one_line(cloud.run("b", *BUILD), r"^error: cannot reach s3://.*run the same command again to go on$")
    (partial,) = cloud.stores("b")
    assert partial.suffix == ".partial"
    before = {path.relative_to(partial): path.stat() for path in partial.rglob("*") if path.is_file()}
    complete = [name for name, found in before.items() if found.st_size == len(whole[name.as_posix()])]
    assert 0 < len(complete) < len(whole)
    cloud.proxy.allow()
    assert cloud.run("b", *BUILD).code == 0
    (there,) = cloud.stores("b")
    assert content(there) == whole
    assert [(there / name).stat().st_mtime_ns for name in complete] == [before[name].st_mtime_ns for name in complete]


def test_a_chunk_that_has_changed_on_the_server_is_refused(cloud):
    built = cloud.run("a", *BUILD).out.strip()
    path = f"{built.removeprefix('s3://')}/delta/c.3.0.0"
    data = bytearray(cloud.files.cat_file(path))
    data[1000] ^= 4
    cloud.files.pipe_file(path, bytes(data))
    one_line(cloud.run("b", *BUILD), r"feature store s3://.* is damaged: delta/c\.3\.0\.0 has changed")
    assert cloud.stores("b") == []
    verified = cloud.run("b", "verify")
    assert verified.code == 2
    assert "delta/c.3.0.0 has changed" in verified.out


def test_two_machines_that_upload_at_once_do_no_harm(cloud, tmp_path):
    patient = cloud._replace(settings={})  # moto answers some simultaneous writes with 500: as a rule one tries again
    both = [patient.start(machine, "features", *BUILD) for machine in "ab"]
    ended = [process.communicate(timeout=900) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert len({out for out, _ in ended}) == 1
    assert {name: size for name, (size, _) in cloud.there().items()} == {
        name: len(data) for name, data in wanted(tmp_path / "alone").items()
    }
    assert cloud.run("c", "verify").code == 0


def test_a_bucket_that_is_not_there_is_known_before_anything_is_encoded(cloud):
    lost = cloud._replace(cache="s3://no-such-bucket/prefix")
    one_line(lost.run("a", *BUILD), "cannot reach s3://no-such-bucket/.*bucket does not exist")
    assert cloud.stores("a") == []


def test_a_pack_is_imported_from_a_web_server(tmp_path, monkeypatch):
    """aiohttp, which fsspec needs for that, comes with s3fs."""
    made = features.build(*parts(), cache_dir=tmp_path / "a")
    packed = pack.export(made.name, tmp_path / "pack", tmp_path / "a")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer((cutting_proxy.HOST, 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://{cutting_proxy.HOST}:{web.server_port}/pack"
        try:
            arrived = pack.fetch(address, tmp_path / "b")
            (packed / "cell" / "c.0").unlink()
            with pytest.raises(store.Damaged, match=r"cell/c\.0 is missing"):
                pack.fetch(address, tmp_path / "c")
        finally:
            web.shutdown()
            thread.join()
    assert content(arrived) == content(made)
    substrate, encoder = parts()
    assert features.build(substrate, encoder._replace(encode=never), cache_dir=tmp_path / "b") == arrived
