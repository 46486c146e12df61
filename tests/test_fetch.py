"""Data sets in miniature, fetched from the loopback address: what is there in the end, and what can go wrong."""

import hashlib
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest
from filelock import FileLock

from soopf_jax import substrates
from soopf_jax.errors import UserError
from soopf_jax.substrates import __main__
from soopf_jax.substrates.coco_files import find_files
from soopf_jax.substrates.originals import download, fetch
from soopf_jax.substrates.originals.download import Remote
from soopf_jax.substrates.originals.fetch import Part
from soopf_jax.substrates.shapes3d import FILE
from tests.loopback_server import HOST, Server, running, well


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as server:
        yield server


def test_the_table_of_addresses() -> None:
    parts = [fetch.SHAPES3D, fetch.COCO_ANNOTATIONS, *fetch.COCO_PHOTOGRAPHS.values()]
    for part in parts:
        download.check_address(part.remote.url, ())
        assert part.remote.url.endswith(f"/{part.name}")
        assert re.fullmatch("[0-9a-f]{64}", part.remote.sha256)
        assert (part.folder is not None) == part.name.endswith(".zip")
    assert fetch.parts_of("shapes3d") == [fetch.SHAPES3D]
    assert fetch.SHAPES3D.name == FILE
    assert [part.folder for part in fetch.parts_of("coco:val2017")] == ["annotations", "val2017"]


def coco_parts(server: Server, **entries: dict[str, str]) -> list[Part]:
    """COCO's files in miniature, served under their own names."""
    contents = {}
    for name, files in entries.items():
        packed = io.BytesIO()
        with ZipFile(packed, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        contents[f"/{name}.zip"] = packed.getvalue()
    server.answer = lambda handler, first: well(handler, first, contents[handler.path])
    base = f"http://{HOST}:{server.server_port}"
    return [
        Part(path[1:], Remote(base + path, len(data), hashlib.sha256(data).hexdigest()), path[1:-4])
        for path, data in contents.items()
    ]


@pytest.fixture
def coco(server: Server) -> list[Part]:
    annotations = {"annotations/instances_val2017.json": "{}", "annotations/captions_val2017.json": "{}"}
    return coco_parts(server, annotations=annotations, val2017={"val2017/1.jpg": "a photograph"})


def test_coco_becomes_the_folder_that_coco_reads(
    server: Server, coco: list[Part], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "deep" / "data"
    fetch.fetch(coco, root, http_hosts=(HOST,))
    annotations, photographs = find_files(str(root), "val2017")
    assert annotations.read_text() == "{}"
    assert (photographs / "1.jpg").read_text() == "a photograph"
    assert sorted(os.listdir(root)) == [".fetch.lock", "annotations", "val2017"]
    assert "val2017 is there, unpacked" in capsys.readouterr().out

    fetch.fetch(coco, root, http_hosts=(HOST,))
    assert server.asked == [None, None]
    assert "val2017 is there already" in capsys.readouterr().out


def test_zip_files_that_are_there_are_used_and_kept_on_demand(server: Server, coco: list[Part], tmp_path: Path) -> None:
    fetch.fetch(coco, tmp_path, keep_zips=True, http_hosts=(HOST,))
    shutil.rmtree(tmp_path / "val2017")
    fetch.fetch(coco, tmp_path, keep_zips=True, http_hosts=(HOST,))
    assert server.asked == [None, None]
    assert sorted(os.listdir(tmp_path)) == [".fetch.lock", "annotations", "annotations.zip", "val2017", "val2017.zip"]


def test_a_full_disk(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")  # every write there fails as on a full disk
    with pytest.raises(UserError, match="No space left on device; free some space or choose another --data-root"):
        fetch.fetch([Part("file", server.remote())], tmp_path, http_hosts=(HOST,))


def test_too_little_room_is_noticed_first(
    server: Server, coco: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives need room twice; what is there already counts."""
    part = coco[1]._replace(remote=coco[1].remote._replace(size=10 * 10**9))
    (tmp_path / f"{part.name}.part").write_bytes(bytes(1000))
    room = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, *room))  # type: ignore[attr-defined]
    room[0] = 20 * 10**9 - 1001
    with pytest.raises(UserError, match=r"needs 20.0 GB more, and there are 20.0 GB left"):
        fetch.fetch([part], tmp_path, http_hosts=(HOST,))
    assert server.asked == []
    room[0] += 1
    fetch.check_room([part], tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"cannot write to .*data: File exists"):
        fetch.fetch([], tmp_path / "data")


def test_two_at_once(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".fetch.lock"), pytest.raises(UserError, match="another process is fetching into"):
        fetch.fetch([], tmp_path)


def test_the_command_line(
    coco: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch, "COCO_ANNOTATIONS", coco[0])
    monkeypatch.setattr(fetch, "COCO_PHOTOGRAPHS", {"val2017": coco[1]})
    monkeypatch.setattr(__main__, "fetch", partial(fetch.fetch, http_hosts=(HOST,)))
    command = ["fetch", "coco:val2017", "--data-root", str(tmp_path)]
    assert __main__.main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"use it with --dataset coco:val2017 --data-root {tmp_path}"

    (tmp_path / "annotations" / "instances_val2017.json").unlink()
    assert __main__.main(command) == 2
    assert "there is no " in capsys.readouterr().err


def test_fetching_coco_needs_no_pycocotools(coco: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "soopf_jax.substrates.coco", raising=False)
    monkeypatch.delattr(substrates, "coco", raising=False)
    monkeypatch.setattr(fetch, "COCO_ANNOTATIONS", coco[0])
    monkeypatch.setattr(fetch, "COCO_PHOTOGRAPHS", {"val2017": coco[1]})
    monkeypatch.setattr(__main__, "fetch", partial(fetch.fetch, http_hosts=(HOST,)))
    assert __main__.main(["fetch", "coco:val2017", "--data-root", str(tmp_path)]) == 0
