import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.features import store, store_writer
from soopf_jax.features import table as features
from soopf_jax.features.__main__ import main as features_main
from soopf_jax.fitting.prepare import prepare_table
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.types import EncoderRequest, SubstrateRequest, Window
from tests import tiny_parts

ROOT = Path(__file__).parent.parent
PARTS = ["--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_encoder"]
BUILD = [sys.executable, "-m", "soopf_jax.features", "build", *PARTS]


def parts(pairs_per_cell: int = 6):
    substrate = tiny_parts.open_substrate(SubstrateRequest("tiny", pairs_per_cell=pairs_per_cell))
    return substrate, tiny_parts.open_encoder(EncoderRequest("tiny-linear"))


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --------------------------------------------------------------------------------------------- the pipeline


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stored_tokens_are_the_encoders_with_delta_taken_in_float32(tmp_path: Path, dtype: str) -> None:
    substrate, encoder = parts()
    table = features.load(features.build(substrate, encoder, dtype, tmp_path))
    images = substrate.render(range(54))
    source, edited = encoder.encode(images.source), encoder.encode(images.edited)
    np.testing.assert_array_equal(table.source, source.astype(dtype))
    np.testing.assert_array_equal(table.delta, (edited - source).astype(dtype))
    if dtype == "float16":  # near 1000 a half has steps of 0.5: the difference of halves would be useless
        assert np.abs(table.delta - (edited.astype(dtype) - source.astype(dtype))).max() > 0.2
    np.testing.assert_array_equal(table.cell, np.arange(54) % 9)
    assert table.grid == tiny_parts.GRID
    assert table.provenance["inputs"]["encoder"] == encoder.identity
    # 4 x 4 pixels to a patch, so every share is a sixteenth; pixel (5, 9) is in patch row 1, column 2
    by_hand = (images.region[7, 4:8, 8:12] == 2).mean()
    assert table.region[7, 3 * 1 + 2, 2] == by_hand


def test_second_build_uses_the_first(tmp_path: Path) -> None:
    substrate, encoder = parts()
    folder = features.build(substrate, encoder, cache_dir=tmp_path)

    def never(images: np.ndarray) -> np.ndarray:
        raise AssertionError("encoded twice")

    assert features.build(substrate, encoder._replace(encode=never), cache_dir=tmp_path) == folder
    assert features.build(substrate, encoder, "float32", tmp_path) != folder


def test_encoder_gets_whole_batches_of_source_and_edited_images(tmp_path: Path) -> None:
    substrate, encoder = parts(pairs_per_cell=8)
    sizes = []

    def counting(images: np.ndarray) -> np.ndarray:
        sizes.append(len(images))
        return encoder.encode(images)

    features.build(substrate, encoder._replace(encode=counting), cache_dir=tmp_path)
    assert sizes == [16] * 9  # 72 pairs: blocks of 32, 32 and 8 pairs


def test_rendering_and_writing_run_while_the_encoder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call waits for what can only have happened meanwhile, so a pipeline that takes turns would time out."""
    substrate, encoder = parts(pairs_per_cell=15)  # 135 pairs: five blocks, four batches each but the last
    rendered = [threading.Event() for _ in range(5)]
    written = [threading.Event() for _ in range(5)]
    calls = iter(range(100))
    append = store_writer.append

    def render(pairs):
        rendered[pairs[0] // 32].set()
        return substrate.render(pairs)

    def encode(images):
        block = next(calls) // 4
        if block < 4:
            assert rendered[block + 1].wait(5), "the next block is not rendered while this one is encoded"
        if block >= 3:
            assert written[block - 3].wait(5), "earlier blocks are not written while this one is encoded"
        if block + 3 < 5:
            assert not rendered[block + 3].is_set(), "rendering runs away from the encoder"
        return encoder.encode(images)

    def recording_append(partial, index, block):
        append(partial, index, block)
        written[index].set()

    monkeypatch.setattr(store_writer, "append", recording_append)
    folder = features.build(substrate._replace(render=render), encoder._replace(encode=encode), cache_dir=tmp_path)
    assert store.verify(folder) == []


def test_progress_counts_images_and_begins_with_what_was_left(tmp_path: Path) -> None:
    substrate, encoder = parts(pairs_per_cell=32)  # nine blocks
    seen: list[int] = []

    @contextmanager
    def progress(description: str, total: int) -> Iterator:
        assert total == 576
        yield seen.append

    def fails_after_the_first_block(images: np.ndarray) -> np.ndarray:
        if sum(seen) >= 64:
            raise KeyboardInterrupt
        return encoder.encode(images)

    with pytest.raises(KeyboardInterrupt):
        features.build(
            substrate, encoder._replace(encode=fails_after_the_first_block), cache_dir=tmp_path, progress=progress
        )
    stored = store_writer.begin(
        features_folder(substrate, encoder, tmp_path), features.recipe(substrate, encoder)
    ).blocks
    assert 1 <= stored < 9
    seen.clear()
    features.build(substrate, encoder, cache_dir=tmp_path, progress=progress)
    assert seen[0] == 64 * stored
    assert sum(seen) == 576


def features_folder(substrate, encoder, cache_dir: Path) -> Path:
    return store.store_folder(features.recipe(substrate, encoder), cache_dir)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            70_000.0,  # about 69,000 more than the source's token
            r"pair 40 has a token value of 6.9e\+04, too large for float16; use --dtype float32",
        ),
        (np.nan, "NaN or infinity for pair 40"),
        (-np.inf, "NaN or infinity for pair 40"),
    ],
)
def test_values_that_cannot_be_stored_stop_the_build(tmp_path: Path, value: float, message: str) -> None:
    substrate, encoder = parts()
    marked = substrate.render([40]).edited[0]

    def encode(images: np.ndarray) -> np.ndarray:
        tokens = encoder.encode(images)
        tokens[(images == marked).all(axis=(1, 2, 3)), 3, 2] = value
        return tokens

    with pytest.raises(UserError, match=message):
        features.build(substrate, encoder._replace(encode=encode), cache_dir=tmp_path)
    assert not features_folder(substrate, encoder, tmp_path).exists()
    if np.isfinite(value):
        features.build(substrate, encoder._replace(encode=encode), "float32", tmp_path)


def test_encoder_that_disagrees_with_its_window_is_told(tmp_path: Path) -> None:
    substrate, encoder = parts()
    with pytest.raises(UserError, match="correct its window"):
        features.build(
            substrate, encoder._replace(window=lambda h, w: Window(0.0, 0.0, 16.0, 16.0, 4, 5)), cache_dir=tmp_path
        )


# -------------------------------------------------------------------------------------------- the processes


def start(cache: Path, pairs_per_cell: int, delay: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*BUILD, "--pairs-per-cell", str(pairs_per_cell), "--cache-dir", str(cache)],
        cwd=ROOT,
        env={**os.environ, "TINY_DELAY": str(delay)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_and_resume(tmp_path: Path, kills: int, n_blocks: int, seed: int) -> None:
    """Kill a build at random moments spread over its blocks, then let it end, and compare with one left in peace."""
    pairs_per_cell = n_blocks * 32 // 9
    substrate, encoder = parts(pairs_per_cell)
    whole = features.build(substrate, encoder, cache_dir=tmp_path / "whole")
    folder = features_folder(substrate, encoder, tmp_path / "killed")
    rng = np.random.default_rng(seed)
    stored = [0]
    for _ in range(kills):
        process = start(tmp_path / "killed", pairs_per_cell, delay=0.01)
        target = stored[-1] + rng.integers(1, 3 * n_blocks // (2 * kills + 2))
        while process.poll() is None and blocks_in_journal(folder) < target:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        stored.append(blocks_in_journal(folder))
    assert sum(0 < blocks < n_blocks for blocks in stored[1:]) >= 0.6 * kills, f"kills came at blocks {stored}"
    end = start(tmp_path / "killed", pairs_per_cell)
    out, err = end.communicate(timeout=60)
    assert end.returncode == 0, err
    assert out.strip() == str(folder)
    assert content(folder) == content(whole)
    assert sorted(path.suffix for path in folder.parent.iterdir() if path != folder) == [".lock"]


def blocks_in_journal(folder: Path) -> int:
    """The blocks that count so far; of a finished store, none."""
    journal = folder.with_name(folder.name + ".journal")
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def test_killed_builds_end_with_the_same_bytes(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=3, n_blocks=24, seed=0)


@pytest.mark.slow
def test_build_killed_twenty_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=20, n_blocks=60, seed=1)


def test_two_processes_build_one_store_without_harm(tmp_path: Path) -> None:
    both = [start(tmp_path, 36, delay=0.05) for _ in range(2)]
    (out_a, err_a), (out_b, err_b) = (process.communicate(timeout=60) for process in both)
    assert [process.returncode for process in both] == [0, 0], err_a + err_b
    assert out_a == out_b
    assert (err_a + err_b).count("waiting for another process that is building tiny") == 1
    assert store.verify(out_a.strip()) == []


# Loads in a process of its own, which says by how much its memory rose at most, over the bytes it loaded. (The system's
# ru_maxrss will not do: a child begins with its parent's.)
MEASURE = """
import re, sys
from soopf_jax.features import table as features
status = lambda name: 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
before = status("VmRSS")
table = features.load(sys.argv[1])
arrays = sum(a.nbytes for a in (table.source, table.delta, table.region, table.cell))
print((status("VmHWM") - before) / arrays)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("pairs", "pairs_per_block"),
    # 24 blocks here, 99 in a store of ViT-L tokens of the paper's size: reading needs room for a few of them
    [(192, 8), pytest.param(3150, 32, marks=pytest.mark.slow)],
)
def test_loading_needs_little_more_memory_than_the_arrays(tmp_path: Path, pairs: int, pairs_per_block: int) -> None:
    cell = np.arange(pairs, dtype=np.int32) % 9
    recipe = store.make_recipe({}, {}, tiny_parts.GRID, cell, "float16", pairs_per_block, images_per_batch=32)
    begun = store_writer.begin(tmp_path / "big", recipe)
    tokens = np.random.default_rng(0).standard_normal((pairs_per_block, 196, 1024)).astype(np.float16)
    region = np.zeros((pairs_per_block, 196, 3), np.float32)
    for index, first in enumerate(range(0, pairs, pairs_per_block)):
        n = min(pairs_per_block, pairs - first)
        block = store_writer.Block(tokens[:n], tokens[:n], region[:n], cell[first : first + n])
        store_writer.append(begun, index, block)
    store_writer.finish(begun)
    args = [sys.executable, "-c", MEASURE, str(tmp_path / "big")]
    run = subprocess.run(args, cwd=ROOT, capture_output=True, text=True)
    assert 0.9 < float(run.stdout) <= 1.3, run.stdout + run.stderr


def test_a_table_left_on_the_disk_is_prepared_like_one_in_memory(tmp_path: Path) -> None:
    folder = features.build(*parts(8), cache_dir=tmp_path)
    whole, lazy = features.load(folder), features.load(folder, lazily=True)
    assert (lazy.source.shape, lazy.delta.dtype, len(lazy.region)) == ((72, 9, 16), np.float16, 72)
    tables = (jax.tree.leaves(prepare_table(t, READOUT).inputs) for t in (lazy, whole))
    for mine, theirs in zip(*tables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    damaged = max((path for path in (folder / "delta").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(UserError, match="delta cannot be read"):
        lazy.delta[0:72]


def test_memory_of_a_build_does_not_grow_with_its_length(tmp_path: Path) -> None:
    """Eight times the pairs, not even twice the objects: blocks alive at once are counted, not bytes."""
    alive, most = set(), []

    def build(pairs_per_cell: int) -> int:
        substrate, encoder = parts(pairs_per_cell)
        alive.clear()
        most.clear()

        def render(pairs):
            images = substrate.render(pairs)
            alive.add(id(images.source))
            weakref.finalize(images.source, alive.discard, id(images.source))
            most.append(len(alive))
            return images

        features.build(substrate._replace(render=render), encoder, cache_dir=tmp_path)
        return max(most)

    assert build(15) <= 4  # 5 blocks
    assert build(120) <= 4  # 34 blocks


# --------------------------------------------------------------------------------------------- command line


def run(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = features_main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command_line_from_build_to_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ["--cache-dir", str(tmp_path)]
    code, out, _ = run("build", *PARTS, *cache, capsys=capsys)
    folder = Path(out.strip())
    assert code == 0
    assert features.load(folder).source.shape == (54, tiny_parts.PATCHES, tiny_parts.CHANNELS)
    size = sum(map(len, content(folder).values())) / 1e6
    source, delta = (np.sqrt(np.square(tokens.astype(float)).mean()) for tokens in features.load(folder)[:2])
    shown = f"RMS of tokens {source:.4g}, of delta {delta:.4g}; 25% of the change inside; effective rank 13.3"
    assert run("list", *cache, capsys=capsys)[1] == f"{folder.name}  {size:.1f} MB  ready  {shown}\n"
    assert run("verify", *cache, capsys=capsys) == (0, f"{folder.name}: every byte is as it was written\n", "")
    chunk = folder / "delta" / "c.1.0.0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    code, out, err = run("verify", str(folder), capsys=capsys)
    assert code == 2
    assert "delta/c.1.0.0 has changed" in out
    assert err.count("\n") == 1
    assert run("remove", folder.name, *cache, capsys=capsys)[0] == 0
    assert run("list", *cache, capsys=capsys) == (0, "", f"there is no feature store in {tmp_path}/features\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["build", "--encoder", "pixls"], "did you mean 'pixels'"),
        (["build", *PARTS, "--dtype", "float15"], "did you mean 'float16'"),
        (["build", "--pairs-per-cell", "many"], "--pairs-per-cell"),
        (["build", "--datset", "x"], "--datset"),
        (["bild"], "bild"),
        ([], "needs one of list, build,"),
        (["remove", "nothing"], "no feature store to remove"),
        (["remove"], "no store named"),
        (["verify", "nowhere"], "unknown feature store 'nowhere'"),
        (["verify", "noscheme://x"], "cannot open noscheme://x"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], says: str
) -> None:
    code, _, err = run(*args, *(["--cache-dir", str(tmp_path)] if args and args[0] != "bild" else []), capsys=capsys)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert err.startswith("error: ")
