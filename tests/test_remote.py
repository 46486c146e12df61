"""Caches at an address, without a network: two machines are two user's cache folders, the server is in memory."""

import hashlib
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from soopf_jax.errors import MissingPackage, UserError
from soopf_jax.features import address, remote, store, store_writer
from soopf_jax.features import table as features
from soopf_jax.features.__main__ import main as features_main
from soopf_jax.studies import planning, running
from soopf_jax.studies.opening import Openers
from soopf_jax.studies.rows import Places
from soopf_jax.types import EncoderRequest, SubstrateRequest
from tests import tiny_parts
from tests.test_store import build as build_store
from tests.test_store import content, recipe, write_blocks
from tests.test_study import TINY

N_FILES = 5 + 3 * 4  # metadata of the group and of four arrays; four chunks of three blocks


class Broken(Exception):
    """What some driver raises when a connection breaks."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`machine("a")` makes this process work on machine a: the user's cache folder is another one."""

    def work_on(name: str) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return store.features_folder(None)

    work_on("a")
    return work_on


@pytest.fixture
def cache(tmp_path: Path):
    """The address of an empty cache in memory."""
    place = f"memory:/{tmp_path}/cache"
    yield place
    fsspec.filesystem("memory").store.clear()


def parts():
    substrate = tiny_parts.open_substrate(SubstrateRequest("tiny", pairs_per_cell=8))
    return substrate, tiny_parts.open_encoder(EncoderRequest("tiny-linear"))


def never(images):
    raise AssertionError("encoded although the features are there")


def local_store(cache_root: Path, made=None) -> Path:
    made = made or recipe()
    return build_store(cache_root / store.store_folder(made, None).name, made)


def at(cache: str, folder: Path) -> str:
    return f"{cache}/features/{folder.name}-{store.open_store(folder).manifest['digest'][:8]}"


def sent(monkeypatch: pytest.MonkeyPatch, breaks_at: int | None = None, as_sent=lambda data: data) -> list[str]:
    """The names of files that are written to memory from now on. The connection breaks at one of the writes."""
    names: list[str] = []
    write = MemoryFileSystem.pipe_file

    def pipe_file(self, path, value, **kwargs):
        if breaks_at is not None and len(names) >= breaks_at:
            raise Broken("connection lost")
        names.append(path)
        write(self, path, as_sent(value), **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    return names


# ---------------------------------------------------------------------------------------- from machine to machine


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_another_machine_reads_the_same_bytes_and_encodes_nothing(machine, cache, tmp_path, kind):
    cache = cache if kind == "memory" else f"file://{tmp_path}/shared"
    substrate, encoder = parts()
    here = features.build(substrate, encoder, cache_dir=cache)
    assert here.parent == machine("a")
    assert store.verify(at(cache, here)) == []
    machine("b")
    there = features.build(substrate, encoder._replace(encode=never), cache_dir=cache)
    assert there.parent == store.features_folder(None) != here.parent
    assert content(there) == content(here)
    assert content(features.build(*parts(), cache_dir=tmp_path / "local")) == content(here)
    assert sorted(path.suffix for path in there.parent.iterdir() if path != there) == [".lock"]


def test_what_is_here_is_uploaded_and_what_is_there_is_not_sent_again(machine, cache, monkeypatch):
    substrate, encoder = parts()
    here = features.build(substrate, encoder)
    names = sent(monkeypatch)
    features.build(substrate, encoder._replace(encode=never), cache_dir=cache)
    assert store.verify(at(cache, here)) == []
    assert names[-1].endswith("manifest.json")
    names.clear()
    features.build(substrate, encoder._replace(encode=never), cache_dir=cache)
    assert names == []


def test_all_layers_are_uploaded_and_fetched(machine, cache):
    substrate = parts()[0]
    layered = tiny_parts.open_layered(EncoderRequest("tiny-layered"))
    made = features.build_layers(substrate, layered, [1, 2, None], cache_dir=cache)
    machine("b")
    wanted = features.recipe(substrate, tiny_parts.open_layered(EncoderRequest("tiny-layered", 2)))
    assert remote.there(wanted, cache)
    assert not remote.there(wanted, None)
    blind = layered._replace(layers=layered.layers._replace(forward=never))
    found = features.build_layers(substrate, blind, [1, 2, None], cache_dir=cache)
    assert [content(folder) for folder in found] == [content(folder) for folder in made]


def test_a_build_that_was_begun_gives_way_to_the_finished_store(machine, cache):
    made = local_store(machine("a"))
    remote.upload(made, cache)
    folder = machine("b") / made.name
    write_blocks(store_writer.begin(folder, recipe()), stop=2)
    (folder.with_name(f"{folder.name}.partial") / "cell" / "c.7").write_bytes(b"left over")
    with store_writer.locked(folder):
        assert remote.fetch(folder, cache)
    assert content(folder) == content(made)
    assert not folder.with_name(f"{folder.name}.journal").exists()


def test_an_address_that_cannot_be_written_is_known_before_anything_is_encoded(machine, cache, monkeypatch):
    sent(monkeypatch, breaks_at=0)
    substrate, encoder = parts()
    with pytest.raises(UserError, match=r"cannot reach memory:.*connection lost.*same command again"):
        features.build(substrate, encoder._replace(encode=never), cache_dir=cache)


def test_a_study_finds_the_features_of_another_machine_and_clears_up_only_here(machine, cache, tmp_path, monkeypatch):
    places, openers = Places(tmp_path / "runs", "", cache), Openers()
    runs = dict.fromkeys([replace(TINY, layer=layer) for layer in (1, 2)], ())
    monkeypatch.setattr(running, "carry_out", lambda *_: None)
    monkeypatch.setattr(running.results, "load", lambda folder: SimpleNamespace(document={"done": True}))
    planned = planning.plan(runs, places, 1e9, openers=openers)
    assert [p.encoding > 0 for p in planned] == [True, False]
    running.carry_out_all(planned, places, openers, "none")
    assert store_writer.list_stores(None) == []
    assert [one.state for one in remote.list_stores(cache)] == ["ready", "ready"]
    machine("b")
    again = planning.plan(runs, places, 1e9, openers=Openers())
    assert [(p.encoding, p.workload.stored) for p in again] == [(0.0, True)] * 2


# ------------------------------------------------------------------------------------------------ interruptions


def test_an_upload_that_breaks_anywhere_goes_on_with_what_is_missing(machine, cache, monkeypatch):
    made = local_store(machine("a"))
    for breaks_at in range(N_FILES + 1):  # the manifest too
        place = f"{cache}-{breaks_at}"
        with monkeypatch.context() as patch:
            first = sent(patch, breaks_at)
            with pytest.raises(UserError, match="connection lost"):
                remote.upload(made, place)
        assert remote.find(made.name, place) is None
        assert [one.state for one in remote.list_stores(place)] == ["unfinished"] * bool(first)
        with monkeypatch.context() as patch:
            second = sent(patch)
            remote.upload(made, place)
        assert len(first) == breaks_at
        assert len(first + second) == len({*first, *second}) == N_FILES + 1
        assert store.verify(at(place, made)) == []


def test_a_download_that_breaks_goes_on_with_what_is_missing(machine, cache, monkeypatch):
    made = local_store(machine("a"))
    remote.upload(made, cache)
    folder = machine("b") / made.name
    read, asked = MemoryFileSystem.cat_file, []

    def cat_file(self, path, *args, **kwargs):
        asked.append(path.rpartition(made.name)[2])
        if len(asked) == 10:
            raise Broken("connection lost")
        return read(self, path, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    monkeypatch.setattr(address, "FILES_AT_ONCE", 1)
    for _ in range(2):
        with store_writer.locked(folder):
            if not asked:
                with pytest.raises(UserError, match="connection lost"):
                    remote.fetch(folder, cache)
                assert not folder.exists()
                first, asked[:] = asked[1:9], [""] * 10
            else:
                assert remote.fetch(folder, cache)
    assert len(first) == 8
    assert not set(first) & set(asked)
    assert content(folder) == content(made)


# ------------------------------------------------------------------------------------------------------ damage

DAMAGE_OF = {
    "manifest.json": lambda data: [None],
    "delta/c.1.0.0": lambda data: [data[:-1], data + b"\0", b"", None],
}
"""What happens to some files, None if they vanish. Of all others the last bit flips."""


def test_every_damaged_file_there_is_refused_and_nothing_is_left_of_it(machine, cache):
    made = local_store(machine("a"))
    uploaded = remote.upload(made, cache)
    folder, files = machine("b") / made.name, fsspec.filesystem("memory")
    for name, data in content(made).items():
        path = f"{uploaded.removeprefix('memory:/')}/{name}"
        for damaged in DAMAGE_OF.get(name, lambda data: [data[:-1] + bytes([data[-1] ^ 1])])(data):
            files.rm_file(path)
            if damaged is not None:
                files.pipe_file(path, damaged)
            with store_writer.locked(folder):
                if name == "manifest.json":
                    assert not remote.fetch(folder, cache)
                else:
                    with pytest.raises(store.Damaged, match=f"{name} (has|is missing)"):
                        remote.fetch(folder, cache)
            assert [path.suffix for path in folder.parent.iterdir()] == [".lock"]
            files.pipe_file(path, data)
    files.pipe_file(f"{uploaded.removeprefix('memory:/')}/manifest.json", b"{}")
    with store_writer.locked(folder), pytest.raises(store.Damaged):
        remote.fetch(folder, cache)


def test_a_server_that_keeps_something_else_gets_no_manifest(machine, cache, monkeypatch):
    made = local_store(machine("a"))
    sent(monkeypatch, as_sent=lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UserError, match="is not what was written"):
        remote.upload(made, cache)
    assert remote.find(made.name, cache) is None


def test_a_store_that_is_damaged_here_is_not_uploaded(machine, cache):
    made = local_store(machine("a"))
    chunk = made / "delta" / "c.1.0.0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(store.Damaged, match=r"delta/c\.1\.0\.0 has changed"):
        remote.upload(made, cache)
    assert remote.find(made.name, cache) is None


def test_the_md5_of_a_server_spares_reading_and_nothing_else_does(machine, cache, monkeypatch):
    """The digests of "abc" are those of RFC 1321 and, in base64, of Python's own documentation of MD5."""
    md5 = "900150983cd24fb0d6963f7d28e17f72"
    assert address.md5_of_server({"ETag": f'"{md5}"'}) == md5
    assert address.md5_of_server({"md5Hash": "kAFQmDzST7DWlj99KOF/cg=="}) == md5
    assert address.md5_of_server({"ETag": f'"{md5}-3"'}) is None  # of a file that came in parts
    assert address.md5_of_server({}) is None
    assert hashlib.md5(b"abc").hexdigest() == md5
    folder, info = address.open_folder(cache), MemoryFileSystem.info
    folder.write("x", b"abc")
    monkeypatch.setattr(MemoryFileSystem, "cat_file", never)
    monkeypatch.setattr(MemoryFileSystem, "info", lambda self, path: {**info(self, path), "ETag": f'"{md5}"'})
    assert folder.holds("x", b"abc")
    assert not folder.holds("x", b"abcd")
    assert not folder.holds("y", b"abc")
    with pytest.raises(UserError, match="never"):
        folder.holds("x", b"abd")  # the sizes agree, so it has to be read


# ---------------------------------------------------------------------------------------------- several machines


def test_stores_that_differ_in_their_bits_live_side_by_side_and_all_take_the_same(machine, cache, monkeypatch):
    """Two machines with other versions have built the same store, and both upload it."""
    made = {"a": local_store(machine("a"))}
    monkeypatch.setattr(store, "_versions", lambda: {"python": "4.0"})
    made["b"] = local_store(machine("b"))
    assert made["a"].name == made["b"].name
    assert content(made["a"]) != content(made["b"])
    for folder in made.values():  # each as if the other were not there yet
        with monkeypatch.context() as patch:
            patch.setattr(remote, "find", lambda name, cache: None)
            remote.upload(folder, cache)
    assert [store.verify(at(cache, folder)) for folder in made.values()] == [[], []]
    first = min(made.values(), key=lambda folder: at(cache, folder))
    folder = machine("c") / first.name
    with store_writer.locked(folder):
        assert remote.fetch(folder, cache)
    assert content(folder) == content(first)


def test_two_uploads_of_one_store_at_once_do_no_harm(machine, tmp_path):
    cache, made = f"file://{tmp_path}/shared", local_store(machine("a"))
    together, found = threading.Barrier(2), []

    def upload() -> None:
        together.wait()
        found.append(remote.upload(made, cache))

    threads = [threading.Thread(target=upload) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [at(cache, made)] * 2
    assert store.verify(found[0]) == []


# ------------------------------------------------------------------------------------------------- command line


def run(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = features_main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command_line_from_build_to_remove(machine, cache, capsys, monkeypatch):
    words = ["--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_encoder"]
    there = ["--cache-dir", cache]
    code, out, _ = run("build", *words, *there, capsys=capsys)
    assert code == 0
    assert store.verify(out.strip()) == []
    name = out.strip().rpartition("/")[2]
    assert run("list", *there, capsys=capsys)[1].startswith(f"{name}  0.0 MB  ready  RMS of tokens")
    assert run("verify", *there, capsys=capsys) == (0, f"{name}: every byte is as it was written\n", "")
    assert "did you mean" in run("remove", name[:-1], *there, capsys=capsys)[2]
    removed, rm, rm_file = [], MemoryFileSystem.rm, MemoryFileSystem.rm_file
    monkeypatch.setattr(MemoryFileSystem, "rm_file", lambda self, path: [removed.append(path), rm_file(self, path)])
    monkeypatch.setattr(MemoryFileSystem, "rm", lambda self, path, **how: [removed.append(path), rm(self, path, **how)])
    assert run("remove", name, *there, capsys=capsys)[0] == 0
    assert removed[0].endswith(f"{name}/manifest.json")
    assert run("list", *there, capsys=capsys) == (0, "", f"there is no feature store in {cache}\n")
    assert run("list", capsys=capsys)[1].startswith(name[:-9])  # the copy here stays
    assert "no feature store to remove" in run("remove", name, *there, capsys=capsys)[2]


@pytest.mark.parametrize(
    ("place", "package", "extra"),
    [("s3://b/p", "s3fs", "s3"), ("gs://b/p", "gcsfs", "gcs"), ("https://h/p", "aiohttp", "http")],
)
def test_a_missing_driver_names_its_extra(place, package, extra, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    known = sys.modules["fsspec.registry"]._registry
    for scheme in ("s3", "gs", "https"):
        monkeypatch.delitem(known, scheme, raising=False)
    with pytest.raises(MissingPackage, match=rf"needs {package}, which the extra {extra} brings"):
        address.open_folder(place)
    code, _, err = run("list", "--cache-dir", place, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert f"pip install 'soopf_jax[{extra}]'" in err


def test_plain_http_is_for_this_machine_only():
    with pytest.raises(UserError, match="use https"):
        address.open_folder("http://example.org/pack")
