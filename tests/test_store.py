import errno
import itertools
import json
import os
import re
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import example, given
from hypothesis import strategies as st

from soopf_jax.errors import UserError
from soopf_jax.features import store, store_writer
from soopf_jax.features.store_writer import Block
from soopf_jax.grid import Grid

GRID = Grid.of(["a", "b"], ["x", "y", "z"])
PAIRS, PATCHES, CHANNELS, PER_BLOCK = 11, 3, 4, 4
N_BLOCKS = 3


class Crash(BaseException):
    """Stands for the end of the process: nothing in the package catches it."""


def recipe(pairs: int = PAIRS, per_block: int = PER_BLOCK, batch: int = 2, **changes):
    inputs = {
        "encoder": {"name": "E", "weights": "1f"},
        "substrate": {"name": "S s", "seed": 0},
        "grid": GRID,
        "cell": np.arange(pairs) % GRID.n_cells,
        "dtype": "float16",
    }
    return store.make_recipe(**(inputs | changes), pairs_per_block=per_block, images_per_batch=batch)


def features(pairs: int = PAIRS) -> Block:
    rng = np.random.default_rng(7)
    source = rng.standard_normal((pairs, PATCHES, CHANNELS)).astype(np.float16)
    delta = rng.standard_normal((pairs, PATCHES, CHANNELS)).astype(np.float16)
    delta[:PER_BLOCK] = 0  # a chunk that zarr would leave out unless told otherwise
    region = rng.random((pairs, PATCHES, GRID.n_supports)).astype(np.float32)
    return Block(source, delta, region, (np.arange(pairs) % GRID.n_cells).astype(np.int32))


def write_blocks(partial, stop: int = N_BLOCKS) -> None:
    for index in range(partial.blocks, stop):
        part = slice(index * PER_BLOCK, (index + 1) * PER_BLOCK)
        store_writer.append(partial, index, Block(*(values[part] for values in features())))


def build(folder: Path, made=None) -> Path:
    partial = store_writer.begin(folder, made or recipe())
    write_blocks(partial)
    store_writer.finish(partial)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "features" / "s")


# -------------------------------------------------------------------------------------------------- keys


def test_every_input_changes_the_key_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [
        recipe(),
        recipe(encoder={"name": "E", "weights": "1e"}),
        recipe(substrate={"name": "S s", "seed": 1}),
        recipe(dtype="float32"),
        recipe(cell=np.arange(PAIRS)[::-1] % GRID.n_cells),
        recipe(grid=Grid.of(["a", "c"], ["x", "y", "z"])),
    ]
    monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    changed.append(recipe())
    monkeypatch.undo()
    assert len({made["key"] for made in changed}) == len(changed)
    assert recipe(encoder={"weights": "1f", "name": "E"})["key"] == recipe(per_block=9, batch=5)["key"]
    assert recipe()["key"] == recipe()["key"]


def test_folder_is_readable_and_carries_the_key(tmp_path: Path) -> None:
    made = recipe()
    assert store.store_folder(made, tmp_path) == tmp_path / "features" / f"s-s-e-float16-{made['key'][:16]}"


@given(st.lists(st.text(max_size=60), min_size=3, max_size=3), st.sampled_from(store.DTYPES))
@example(["folder:../X.y é", "hf:foo/Bar_1.5", "a" * 90 + "/b.c"], "float16")
def test_a_store_keeps_the_folder_that_it_has_always_had(words, dtype):
    """Runs of anything but a-z and 0-9 are one hyphen; the last 80 characters count."""
    substrate, encoder, hub_id = words
    inputs = {"substrate": {"name": substrate}, "encoder": {"name": encoder, "hub_id": hub_id}, "dtype": dtype}
    name = re.sub("[^a-z0-9]+", "-", f"{substrate}-{encoder}-{hub_id}-{dtype}".lower())[-80:].strip("-")
    found = store.store_folder({"inputs": inputs, "key": "0123456789abcdefg"}, "/cache")
    assert found == Path(f"/cache/features/{name}-0123456789abcdef")


@pytest.mark.parametrize(
    "bad", [{"dtype": "float8"}, {"encoder": {"w": np.float32(1)}}, {"encoder": {"w": float("nan")}}]
)
def test_recipe_refuses_what_it_cannot_hash(bad) -> None:
    with pytest.raises(UserError):
        recipe(**bad)


# ----------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_arrays_come_back_bit_for_bit_from_any_address(folder: Path, scheme: str) -> None:
    address = f"{scheme}{folder}"
    if scheme == "memory://":
        fsspec.filesystem("memory").put(f"{folder}/", f"{folder}/", recursive=True)
    opened = store.open_store(address)
    for name, values in features()._asdict().items():
        found = store.read(opened, name)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)
    assert store.verify(address) == []


def test_plain_zarr_reads_it_and_every_array_has_a_checksum(folder: Path) -> None:
    group = zarr.open_group(folder, mode="r")
    np.testing.assert_array_equal(group["source"][:], features().source)
    for name in Block._fields:
        codecs = json.loads((folder / name / "zarr.json").read_text())["codecs"]
        assert [codec["name"] for codec in codecs] == ["bytes", "crc32c"]
        assert len(list((folder / name).glob("c.*"))) == N_BLOCKS


def test_manifest_names_inputs_versions_and_files(folder: Path) -> None:
    manifest = store.open_store(folder).manifest
    assert manifest["inputs"]["encoder"] == {"name": "E", "weights": "1f"}
    assert manifest["versions"]["zarr"] == zarr.__version__
    assert manifest["versions"]["numpy"] == np.__version__
    assert set(manifest["files"]) == set(content(folder)) - {store.MANIFEST}


def test_no_store_and_unknown_address(tmp_path: Path) -> None:
    for address in (tmp_path, tmp_path / "none", "nonsense://x"):
        with pytest.raises(UserError):
            store.open_store(address)


def test_store_of_another_format_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    with pytest.raises(UserError, match=r"format 1, this version reads 2; remove it and build it again"):
        store.open_store(folder)


# ------------------------------------------------------------------------------------------------ damage


def flip(path: Path, byte: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= mask
    path.write_bytes(data)


def test_verify_finds_200_random_byte_flips_over_all_files(folder: Path) -> None:
    rng = np.random.default_rng(3)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    per_file = dict.fromkeys(paths, 0)
    for number in range(200):
        # Every file in turn, so that small metadata files get their share.
        path = paths[number % len(paths)]
        byte, mask = int(rng.integers(path.stat().st_size)), int(rng.integers(1, 256))
        flip(path, byte, mask)
        assert store.verify(folder), (path, byte, mask)
        flip(path, byte, mask)
        per_file[path] += 1
    assert min(per_file.values()) >= 200 // len(paths)
    assert store.verify(folder) == []


def test_verify_finds_every_flip_of_a_blank_in_the_manifest(folder: Path) -> None:
    """Other white space is the same JSON, but not the same bytes."""
    manifest = folder / store.MANIFEST
    original = manifest.read_bytes()
    for byte in [i for i, value in enumerate(original) if value == ord(" ")]:
        flip(manifest, byte, ord(" ") ^ ord("\t"))
        assert store.verify(folder)
        manifest.write_bytes(original)


def test_every_deleted_truncated_or_added_file_is_found(folder: Path) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        original = path.read_bytes()
        for damaged in (None, original[:-1], original[: len(original) // 2], b"", original + b"\0"):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            assert store.verify(folder), path
            with pytest.raises(UserError):
                store.open_store(folder)
            path.write_bytes(original)
    (folder / "source" / "c.9.0.0").write_bytes(b"")
    assert any("c.9.0.0 does not belong" in problem for problem in store.verify(folder))


def test_reading_for_a_fit_meets_every_flip_without_verify(folder: Path) -> None:
    """Manifest and metadata are checked on opening, chunks by their CRC."""
    rng = np.random.default_rng(4)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for byte in rng.integers(path.stat().st_size, size=5):
            flip(path, byte, 1)
            with pytest.raises(UserError, match=r"damaged|format"):
                store.read(store.open_store(folder), "cell" if path.name == "zarr.json" else path.parent.name)
            flip(path, byte, 1)


# -------------------------------------------------------------------------------------------- interruption


def crash_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process at the so-manieth step that touches the disk; a write gets half done first."""
    steps = itertools.count()
    write_synced, rename, replace, unlink = store_writer._write_synced, Path.rename, Path.replace, Path.unlink

    def write(path: Path, data: bytes, mode: str = "wb") -> None:
        if next(steps) == moment:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode) as file:
                file.write(data[: len(data) // 2])
            raise Crash
        write_synced(path, data, mode)

    def stopping(step):
        def run(*args, **kwargs):
            if next(steps) == moment:
                raise Crash
            return step(*args, **kwargs)

        return run

    monkeypatch.setattr(store_writer, "_write_synced", write)
    for name, step in (("rename", rename), ("replace", replace), ("unlink", unlink)):
        monkeypatch.setattr(Path, name, stopping(step))


def test_crash_at_every_step_then_resume_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content(build(tmp_path / "whole"))
    for moment in itertools.count():
        folder = tmp_path / f"crashed-{moment}"
        crash_at(moment, monkeypatch)
        try:
            build(folder)
            crashed = False
        except Crash:
            crashed = True
        monkeypatch.undo()
        if not folder.exists():
            build(folder)
        assert content(folder) == whole, moment
        if not crashed:
            break
    # 5 metadata files, 4 chunks and a journal line per block, manifest, journal's two steps, rename, unlink
    assert moment == 2 + 5 + N_BLOCKS * 5 + 3


def test_resume_does_not_write_finished_blocks_again(tmp_path: Path) -> None:
    partial = store_writer.begin(tmp_path / "s", recipe())
    write_blocks(partial, stop=2)
    again = store_writer.begin(tmp_path / "s", recipe(per_block=9, batch=5))
    assert again.blocks == 2
    assert (again.recipe["pairs_per_block"], again.recipe["images_per_batch"]) == (PER_BLOCK, 2)
    (partial.work / "delta" / "c.1.0.0").write_bytes(b"short")
    assert store_writer.begin(tmp_path / "s", recipe()).blocks == 1


def test_another_version_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_blocks(store_writer.begin(tmp_path / "s", recipe()), stop=2)
    monkeypatch.setattr(store, "_versions", lambda: {"python": "4.0"})
    assert store_writer.begin(tmp_path / "s", recipe()).blocks == 0
    build(tmp_path / "s")
    assert store.verify(tmp_path / "s") == []
    assert store.open_store(tmp_path / "s").manifest["versions"] == {"python": "4.0"}


def test_blocks_go_in_order(tmp_path: Path) -> None:
    partial = store_writer.begin(tmp_path / "s", recipe())
    with pytest.raises(ValueError, match="block 1 cannot follow 0 blocks"):
        store_writer.append(partial, 1, Block(*(values[:PER_BLOCK] for values in features())))


def test_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = store_writer.begin(tmp_path / "s", recipe())
    write_blocks(partial, stop=1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"no space left .* goes on where it stopped"):
        write_blocks(partial, stop=2)
    monkeypatch.undo()
    assert store_writer.begin(tmp_path / "s", recipe()).blocks == 1
    assert content(build(tmp_path / "s")) == content(build(tmp_path / "other"))


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="choose another place with --cache-dir"),
        store_writer.locked(tmp_path / "file" / "s"),
    ):
        pass


# ------------------------------------------------------------------------------------------ list and remove


def test_list_and_remove(tmp_path: Path) -> None:
    root = tmp_path / "features"
    build(root / "ready")
    (build(root / "broken") / "cell" / "c.0").unlink()
    write_blocks(store_writer.begin(root / "begun", recipe()), stop=1)
    listed = {entry.name: entry for entry in store_writer.list_stores(tmp_path)}
    assert listed["ready"].state == "ready"
    assert listed["ready"].bytes == sum(map(len, content(root / "ready").values()))
    assert listed["begun"].state == "unfinished"
    assert "cell/c.0 is missing" in listed["broken"].state
    for name in listed:
        store_writer.remove(name, tmp_path)
    assert store_writer.list_stores(tmp_path) == []
    assert [path.suffix for path in root.iterdir()] == [".lock"] * 3


def test_remove_refuses_what_is_no_store_or_being_built(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 's'"):
        store_writer.remove("ss", tmp_path)
    with pytest.raises(UserError, match="unknown feature store"):
        store_writer.remove("../features/s", tmp_path)
    with store_writer.locked(folder), pytest.raises(UserError, match="being built by another process"):
        store_writer.remove("s", tmp_path)
    assert store.verify(folder) == []
