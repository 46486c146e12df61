"""Feature packs: what travels from one machine to another, and what is refused on arrival."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr

from soopf_jax import bench, load_features
from soopf_jax.errors import UserError
from soopf_jax.experiments.opened import open_run
from soopf_jax.experiments.options import Bench, check, from_record
from soopf_jax.features import foreign, pack, store, store_writer
from soopf_jax.features import table as features
from soopf_jax.features.__main__ import main as features_main
from soopf_jax.runtime.hashing import digest, sha256
from soopf_jax.types import EncoderRequest, SubstrateRequest
from tests import tiny_parts
from tests.test_store import content

SMALL = ["--assignment", "factorial", "--seeds", "1", "--restarts", "1", "--steps", "20", "--keep", "none"]
PARTS = ["--dataset", "tests.tiny_parts:open_substrate", "--encoder", "tests.tiny_parts:open_encoder"]


def parts(pairs_per_cell: int = 6):
    substrate = tiny_parts.open_substrate(SubstrateRequest("tiny", pairs_per_cell=pairs_per_cell))
    return substrate, tiny_parts.open_encoder(EncoderRequest("tiny-linear"))


def never(images):
    raise AssertionError("encoded although the features are there")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store in the cache `a`."""
    return features.build(*parts(), cache_dir=tmp_path / "a")


@pytest.fixture
def packed(made: Path, tmp_path: Path) -> Path:
    return pack.export(made.name, tmp_path / "pack", tmp_path / "a")


def forge(folder: Path, change=lambda manifest: None) -> None:
    """Renew every checksum of a store or pack after its files and, by `change`, its manifest were changed."""
    manifest = json.loads((folder / store.MANIFEST).read_bytes())
    for name in manifest["files"]:
        data = (folder / name).read_bytes()
        manifest["files"][name] = [len(data), sha256(data)]
    change(manifest)
    content = {name: value for name, value in manifest.items() if name != "digest"}
    manifest["digest"] = digest(content)
    (folder / store.MANIFEST).write_bytes(store.manifest_bytes(manifest))
    for name in (store.CARD, store.SUMS):
        (folder / name).unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------- there and back


def test_a_pack_brings_every_byte_and_is_found_by_its_key(made, packed, tmp_path):
    assert {name: data for name, data in content(packed).items() if name not in (store.CARD, store.SUMS)} == content(
        made
    )
    arrived = pack.fetch(packed, tmp_path / "b")
    assert content(arrived) == content(made)
    substrate, encoder = parts()
    assert features.build(substrate, encoder._replace(encode=never), cache_dir=tmp_path / "b") == arrived
    assert pack.fetch(packed, tmp_path / "b") == arrived  # again: nothing happens
    assert pack.fetch(made, tmp_path / "c").name == made.name  # a bare store travels too


def test_the_checksums_are_those_of_sha256sum(packed):
    run = subprocess.run(["sha256sum", "--check", "--strict", store.SUMS], cwd=packed, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(": OK\n") == len(content(packed)) - 1


def test_the_card_says_what_is_inside(made, packed):
    card, manifest = (packed / store.CARD).read_text(), store.open_store(made).manifest
    statistics = manifest["statistics"]
    for row in [
        "| encoder | tiny-linear |",
        "| layer | the last |",
        "| data set | tiny |",
        "| grid | floor, wall, object x hue, invert, pattern |",
        "| tokens | 54 pairs x 9 patches x 16 channels, float16 |",
        f"| source rms | {statistics['source_rms']} |",
        f"| key | {manifest['key']} |",
    ]:
        assert row in card
    assert json.loads(card.partition("```json\n")[2].partition("```")[0])["inputs"] == manifest["inputs"]


def test_export_takes_the_beginning_of_a_name_and_nothing_else(made, tmp_path):
    other = features.build(*parts(7), cache_dir=tmp_path / "a")
    unique = made.name[: next(n for n in range(99) if made.name[:n] != other.name[:n])]
    assert store.verify(pack.export(unique, tmp_path / "x", tmp_path / "a")) == []
    for name, says in [
        ("tiny", "several feature stores begin with 'tiny'"),
        (made.name[:-3] + "xyz", f"did you mean '{made.name}'"),
        ("", "unknown feature store ''"),
        ("../a/features/" + made.name, "unknown feature store"),
    ]:
        with pytest.raises(UserError, match=says):
            pack.export(name, tmp_path / "y", tmp_path / "a")
    with pytest.raises(UserError, match="soopf features build"):
        pack.export("tiny", tmp_path / "y", tmp_path / "empty")
    assert not (tmp_path / "y").exists()


def test_export_writes_over_nothing(made, packed, tmp_path):
    before = content(packed)
    assert pack.export(made.name, packed, tmp_path / "a") == packed
    (tmp_path / "empty").mkdir()
    pack.export(made.name, tmp_path / "empty", tmp_path / "a")
    assert content(tmp_path / "empty") == before
    (tmp_path / "file").write_text("mine")
    for spoiled in ("cell/c.0", store.CARD):
        path = packed / spoiled
        path.write_bytes(path.read_bytes() + b"!")
        with pytest.raises(UserError, match="holds something else; choose another --to"):
            pack.export(made.name, packed, tmp_path / "a")
        assert path.read_bytes().endswith(b"!")
        path.write_bytes(before[spoiled])
    with pytest.raises(UserError, match="holds something else"):
        pack.export(made.name, tmp_path / "file", tmp_path / "a")
    with pytest.raises(UserError, match="a folder on this machine"):
        pack.export(made.name, "s3://bucket/pack", tmp_path / "a")


def test_what_is_unfinished_or_damaged_is_not_exported(made, tmp_path):
    wanted = features.recipe(*parts(7))
    begun = store_writer.begin(store.store_folder(wanted, tmp_path / "a"), wanted).folder
    with pytest.raises(UserError, match="no feature store at"):
        pack.export(begun.name, tmp_path / "x", tmp_path / "a")
    chunk = made / "source" / "c.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(store.Damaged, match="has changed"):
        pack.export(made.name, tmp_path / "x", tmp_path / "a")
    assert not (tmp_path / "x").exists()


# ------------------------------------------------------------------------------------------------------- refusals


def refused(folder: Path, cache: Path, match: str) -> None:
    """The import fails and leaves nothing behind."""
    with pytest.raises(UserError, match=match):
        pack.fetch(folder, cache)
    assert [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_flipped_bit_in_any_file_is_refused(packed, tmp_path):
    rng = np.random.default_rng(5)
    for name, data in content(packed).items():
        byte = int(rng.integers(len(data)))
        (packed / name).write_bytes(data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :])
        refused(packed, tmp_path / "b", "damaged|format")
        assert pack.verify(packed)
        (packed / name).unlink()
        refused(packed, tmp_path / "b", "damaged|no feature store at")
        (packed / name).write_bytes(data)
    assert pack.verify(packed) == []
    pack.fetch(packed, tmp_path / "b")


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "source/../../evil", "manifest.json", ".zarray", "source\\x"]
)
def test_no_name_in_a_manifest_leads_out_of_the_folder(packed, tmp_path, name):
    (tmp_path / "evil").write_bytes(b"x")
    (packed / "source" / "x").write_bytes(b"x")
    forge(packed, lambda manifest: manifest["files"].update({name: [1, sha256(b"x")]}))
    refused(packed, tmp_path / "b", "names a file that is none of a store")


def rewrite(folder: Path, name: str, values: np.ndarray, **how) -> None:
    """Replace an array of a store, as zarr writes it."""
    shutil.rmtree(folder / name)
    how = {"compressors": [zarr.codecs.Crc32cCodec()], **how}
    chunks = (32, *values.shape[1:])
    keys = {"name": "default", "separator": "."}
    array = zarr.open_group(folder, mode="a").create_array(
        name, shape=values.shape, chunks=chunks, dtype=values.dtype, chunk_key_encoding=keys, **how
    )
    array[:] = values


def test_forged_content_with_right_checksums_is_refused(packed, tmp_path):
    """Everything but the checksums that a forger cannot get right without being us, and what would harm a run."""
    arrays = {name: store.read(store.open_store(packed), name) for name in ("source", "cell")}
    tokens, cell = arrays["source"], arrays["cell"]
    with_nan = tokens.copy()
    with_nan[40, 3, 2] = np.nan
    for number, (name, values, how, says) in enumerate(
        [
            ("source", with_nan, {}, "source holds NaN or infinity"),
            ("source", tokens, {"compressors": [zarr.codecs.GzipCodec()]}, "source is encoded in another way"),
            ("source", tokens.astype(np.float32), {}, "source is float32"),
            ("delta", tokens[:, :5], {}, r"delta is float16 \[54, 5, 16\] instead of float16 \[54, 9, 16\]"),
            ("source", tokens[:50], {}, "source has the shape"),
            ("cell", (cell + 1) % 9, {}, "its cells are not those of its key"),
        ]
    ):
        copy = tmp_path / f"forged-{number}"
        shutil.copytree(packed, copy)
        rewrite(copy, name, values, **how)
        forge(copy)
        refused(copy, tmp_path / "b", says)
    for change, says in [
        (lambda manifest: manifest["inputs"]["encoder"].update(name="better"), "its key is not that of its inputs"),
        (lambda manifest: manifest.update(inputs=[]), "cannot be understood"),
        (lambda manifest: manifest.pop("inputs"), "cannot be understood"),
        (lambda manifest: manifest["files"].pop("cell/c.0"), "cell"),
    ]:
        copy = tmp_path / "forged"
        shutil.copytree(packed, copy)
        forge(copy, change)
        refused(copy, tmp_path / "b", says)
        shutil.rmtree(copy)


def test_the_forger_of_these_tests_can_do_it_right(packed, tmp_path):
    """Otherwise they would show nothing."""
    rewrite(packed, "source", store.read(store.open_store(packed), "source"))
    forge(packed)
    foreign.check(store.open_store(pack.fetch(packed, tmp_path / "b")))


def test_another_store_of_the_same_key_is_never_overwritten(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_versions", lambda: {"python": "4.0"})
    own = features.build(*parts(), cache_dir=tmp_path / "b")
    before = content(own)
    with pytest.raises(UserError, match=f"another store of the key .*soopf features remove {own.name}"):
        pack.fetch(packed, tmp_path / "b")
    assert content(own) == before


# ---------------------------------------------------------------------------------------------------------- runs


def test_a_run_on_a_pack_opens_the_features_of_a_run_on_images(packed, tmp_path):
    dataset, encoder = PARTS[1::2]
    images = Bench(dataset=dataset, encoder=encoder, pairs_per_cell=6, cache_dir=str(tmp_path / "a"))
    on_images, on_pack = open_run(check(images)), open_run(check(Bench(features=str(packed))))
    key = store.open_store(packed).manifest["key"]
    assert on_pack.config["features"] == f"tiny-tiny-linear-float16-{key[:16]}"
    assert on_pack.config["features_key"] == on_images.config["features_key"] == key
    assert "dataset" not in on_pack.config
    tables = (on_images.load().table, on_pack.load().table)
    for name in ("source", "delta", "region", "cell"):
        np.testing.assert_array_equal(*(getattr(table, name)[:] for table in tables))
    assert tables[0].provenance == tables[1].provenance
    assert from_record(on_pack.config).features == on_pack.config["features"]


@pytest.mark.slow
def test_a_run_on_a_pack_has_the_fits_of_a_run_on_images(packed, tmp_path, capsys):
    on_images = [*PARTS, "--pairs-per-cell", "6", "--cache-dir", str(tmp_path / "a"), "--out", str(tmp_path / "images")]
    on_pack = ["--features", str(packed), "--out", str(tmp_path / "run")]
    assert bench.main([*on_images, *SMALL]) == 0
    assert bench.main([*on_pack, *SMALL]) == 0
    assert (tmp_path / "run" / "fits.npz").read_bytes() == (tmp_path / "images" / "fits.npz").read_bytes()
    config = {name: json.loads((tmp_path / name / "result.json").read_bytes())["config"] for name in ("run", "images")}
    key = store.open_store(packed).manifest["key"]
    assert [config[name]["features_key"] for name in config] == [key, key]
    assert config["run"]["features"] == f"tiny-tiny-linear-float16-{key[:16]}"
    capsys.readouterr()
    assert bench.main([*on_pack, *SMALL]) == 0
    assert "already done" in capsys.readouterr().out


def test_features_are_read_where_they_lie_or_from_the_cache(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    table = load_features(packed)
    assert not (tmp_path / "home").exists()
    fetched = load_features(f"file://{packed}")
    assert [path.name for path in store.features_folder(None).iterdir() if path.is_dir()] == [
        store.store_folder(table.provenance, None).name
    ]
    np.testing.assert_array_equal(fetched.source[:], table.source[:])
    with pytest.raises(UserError, match="leave --pairs-per-cell out"):
        load_features(packed, pairs_per_cell=5)
    with pytest.raises(UserError, match="there is no such file"):
        load_features(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no feature store at"):
        load_features(tmp_path)
    chunk = packed / "delta" / "c.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(UserError, match="delta cannot be read"):
        load_features(packed)


def test_two_edits_per_pair_are_refused(tmp_path):
    substrate, encoder = parts()
    two = substrate._replace(identity={**substrate.identity, "edits": 2})
    with pytest.raises(UserError, match="two edits per pair"):
        load_features(features.build(two, encoder, cache_dir=tmp_path))


def test_command_line(made, tmp_path, capsys):
    def run(*args: str) -> tuple[int, str, str]:
        code = features_main(args)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    here, there = (["--cache-dir", str(tmp_path / name)] for name in "ab")
    to = str(tmp_path / "pack")
    assert run("export", made.name, "--to", to, *here) == (0, f"{to}\n", "")
    assert run("verify", to, *there) == (0, f"{to}: every byte is as it was written\n", "")
    assert run("import", to, *there) == (0, f"{tmp_path / 'b' / 'features' / made.name}\n", "")
    assert run("import", str(tmp_path), *there)[::2] == (
        2,
        f"error: no feature store at {tmp_path} ([Errno 2] No such file or directory:"
        f" '{tmp_path}/manifest.json'); build it first\n",
    )
    (tmp_path / "pack" / store.CARD).write_text("something else")
    code, out, err = run("verify", to)
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert f"{store.CARD} or {store.SUMS} has changed" in out
    code, out, err = run("import", to, "--cache-dir", str(tmp_path / "c"))
    assert (code, out, err.count("\n")) == (2, "", 1)
