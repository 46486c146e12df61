"""Unpacking: honest archives come out whole, all others leave nothing behind."""

import shutil
import stat
import struct
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax.errors import UserError
from soopf_jax.substrates.originals import unpack as module
from soopf_jax.substrates.originals.unpack import place, unpack

PHOTOS = {"val2017/1.jpg": b"one" * 1000, "val2017/deep/2.jpg": b"two"}


def zip_of(folder: Path, entries: dict[str, bytes], compression: int = 0) -> Path:
    path = folder / "val2017.zip"
    with ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(ZipInfo(name), content, compression)
    return path


def refused(archive: Path) -> str:
    """The message with which an archive is refused; nothing may be there but the archive."""
    with pytest.raises(UserError) as caught:
        unpack(archive, archive.parent / "val2017")
    assert list(archive.parent.iterdir()) == [archive]
    return str(caught.value)


@pytest.mark.parametrize("compression", [0, ZIP_DEFLATED])
def test_an_archive_comes_out_whole(tmp_path: Path, compression: int) -> None:
    archive = zip_of(tmp_path, {"val2017/": b"", **PHOTOS}, compression)
    unpack(archive, tmp_path / "val2017")
    found = {
        p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in (tmp_path / "val2017").rglob("*") if p.is_file()
    }
    assert found == PHOTOS
    assert sorted(p.name for p in tmp_path.iterdir()) == ["val2017", "val2017.zip"]
    assert stat.S_IMODE((tmp_path / "val2017").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "name",
    [
        "../x.jpg",
        "/x.jpg",
        "val2017/../../x.jpg",
        "val2017/../x.jpg",
        "val2017\\..\\..\\x",
        "other/x.jpg",
        "x",
        "val2017",
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert "is not below val2017" in refused(zip_of(folder, {**PHOTOS, name: b"!"}))
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@given(st.text(st.sampled_from("./\\ab:"), min_size=1).filter(lambda name: not name.endswith("/")), st.booleans())
def test_a_place_is_always_below_the_folder(name: str, below: bool) -> None:
    entry = ZipInfo("f/" + name if below else name)
    try:
        path = place(entry, "f")
    except BadZipFile:
        return
    root = Path("/root/f")
    resolved = Path(*[part for part in (root / path).parts if part != "."])
    assert ".." not in resolved.parts
    assert resolved.is_relative_to(root)
    assert resolved != root


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "val2017.zip"
    link = ZipInfo("val2017/link")
    link.external_attr = (kind | 0o777) << 16
    with ZipFile(path, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "is no plain file" in refused(path)


def test_a_bomb_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zip_of(tmp_path, {"val2017/zeros": bytes(10**7)}, ZIP_DEFLATED)  # 10 kB that grow a thousandfold
    monkeypatch.setattr(module, "extract", None)
    assert "it would grow to 10000000 bytes" in refused(archive)


def test_an_entry_cannot_grow_beyond_what_it_declares(tmp_path: Path) -> None:
    """The zip says 5 bytes, the deflated data hold a million: no more than 5 are read, and the CRC does not fit."""
    archive = zip_of(tmp_path, {"val2017/x": bytes(10**6)}, ZIP_DEFLATED)
    data = bytearray(archive.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    for offset in (22, directory + 24):  # the uncompressed size in the local header and in the directory
        assert struct.unpack_from("<I", data, offset) == (10**6,)
        struct.pack_into("<I", data, offset, 5)
    archive.write_bytes(data)
    assert "Bad CRC-32" in refused(archive)


def test_damage_is_noticed(tmp_path: Path) -> None:
    archive = zip_of(tmp_path, PHOTOS)
    data = archive.read_bytes()
    archive.write_bytes(data.replace(b"oneone", b"oneOne", 1))
    assert "Bad CRC-32" in refused(archive)
    archive.write_bytes(data[: len(data) // 2])
    assert "cannot be unpacked" in refused(archive)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_cannot_replace_another(tmp_path: Path) -> None:
    path = tmp_path / "val2017.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("val2017/x", b"good")
        archive.writestr("val2017/x", b"bad")
    assert "File exists" in refused(path)


def test_too_little_room_is_noticed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zip_of(tmp_path, PHOTOS)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 3002))  # type: ignore[attr-defined]
    message = refused(archive)  # 3,003 bytes
    assert "takes 0.0 GB" in message
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 3003))  # type: ignore[attr-defined]
    unpack(archive, tmp_path / "val2017")
