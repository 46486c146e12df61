"""Statistics of features against tables worked out by hand and plain NumPy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from soopf_jax.experiments.held_out import benchmark
from soopf_jax.features import geometry, statistics, store, store_writer
from soopf_jax.features import table as features
from soopf_jax.features.npz import load_npz
from soopf_jax.features.statistics import measure
from soopf_jax.fitting.protocol import OPTIMISATION, VALIDATION, roles
from soopf_jax.fitting.train import Session
from soopf_jax.grid import Grid
from soopf_jax.report import details, summary
from soopf_jax.studies.outcome import numbers_of
from soopf_jax.types import EncoderRequest, FeatureTable, SubstrateRequest
from tests import tiny_parts
from tests.planted import SMALL, planted_table, planted_tokens, small_table

GRID = Grid.of(("left", "right"), ("a", "b"))


def by_hand() -> FeatureTable:
    """Two pairs of two patches and two channels; the first pair is edited on the left, the second on the right."""
    source = [[[1, 1], [1, 1]], [[3, 3], [3, 3]]]
    delta = [[[3, 0], [0, 1]], [[0, 0], [0, 2]]]
    region = [[[1, 0], [0, 1]], [[0.5, 0.5], [0.75, 0.25]]]
    arrays = [np.array(values, np.float32) for values in (source, delta, region)]
    return FeatureTable(*arrays, np.array([0, 3], np.int32), GRID, {"kind": "by hand"})


def test_a_table_worked_out_by_hand():
    found = measure(by_hand())
    assert found.source_rms == pytest.approx(math.sqrt((4 * 1 + 4 * 9) / 8), rel=1e-5)
    assert found.delta_rms == pytest.approx(math.sqrt((9 + 1 + 4) / 8), rel=1e-5)
    assert found.change_inside == pytest.approx((9 * 1 + 1 * 0 + 4 * 0.25) / 14, rel=1e-5)
    p, q = 9 / 14, 5 / 14  # the second moments are diag(9, 1 + 4)
    assert found.effective_rank == pytest.approx(math.exp(-p * math.log(p) - q * math.log(q)), rel=1e-5)


def test_two_edits_count_both_supports_as_inside():
    table = by_hand()._replace(cell=np.array([0, 1], np.int32))
    combined = [("left", "right")] * 2  # on a 2 x 2 grid every combination edits both supports
    assert len(GRID.combinations(2)) == 4
    assert [[GRID.supports[GRID.axes(c)[0]] for c in GRID.combinations(2)[n]] for n in table.cell] == [
        list(names) for names in combined
    ]
    assert measure(table, n_edits=2).change_inside == 1.0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_random_table_in_plain_numpy(dtype):
    """More pairs than are in memory at a time, and more than count for the rank."""
    table = planted_table(30)
    table = table._replace(source=table.source.astype(dtype), delta=table.delta.astype(dtype))
    found = measure(table)
    source, delta = table.source.astype(float), table.delta.astype(float)
    assert len(table.cell) == 270 > statistics.PAIRS_OF_RANK == 256
    assert found.source_rms == pytest.approx(np.sqrt(np.mean(source**2)), rel=1e-5)
    assert found.delta_rms == pytest.approx(np.sqrt(np.mean(delta**2)), rel=1e-5)
    own = table.region[np.arange(270), :, table.cell // 3]
    assert found.change_inside == pytest.approx((own[:, :, None] * delta**2).sum() / (delta**2).sum(), rel=1e-5)
    sample = delta[[int(k * 269 / 255) for k in range(256)]].reshape(-1, delta.shape[2])
    shares = np.linalg.svd(sample, compute_uv=False) ** 2
    shares /= shares.sum()
    assert found.effective_rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-5)
    assert 3 < found.effective_rank < 4  # three planted operations, and a little noise


def test_one_direction_has_rank_one_and_equal_directions_have_their_number():
    assert statistics.effective_rank(np.outer([1.0, 2.0], [1.0, 2.0])) == pytest.approx(1)
    assert statistics.effective_rank(5 * np.eye(7)) == pytest.approx(7)


def test_what_is_undefined_is_none():
    table = by_hand()
    assert measure(table._replace(region=None)).change_inside is None
    still = measure(table._replace(delta=np.zeros_like(table.delta)))
    assert (still.delta_rms, still.change_inside, still.effective_rank) == (0.0, None, None)


def test_a_store_keeps_them_outside_its_key_and_an_older_store_works_without(tmp_path: Path):
    substrate = tiny_parts.open_substrate(SubstrateRequest("tiny", pairs_per_cell=6))
    encoder = tiny_parts.open_encoder(EncoderRequest("tiny-linear"))
    folder = features.build(substrate, encoder, cache_dir=tmp_path)
    manifest = json.loads((folder / store.MANIFEST).read_bytes())
    table = features.load(folder)
    assert manifest["statistics"] == measure(table)._asdict() == table.provenance["statistics"]
    assert manifest["key"] == features.recipe(substrate, encoder)["key"]
    recipe = {name: manifest[name] for name in manifest.keys() - {"files", "digest", "statistics"}}
    (folder / store.MANIFEST).write_bytes(store.make_manifest(recipe, manifest["files"]))
    older = features.load(folder, lazily=True)
    assert "statistics" not in older.provenance
    assert statistics.statistics_of(older) == manifest["statistics"]
    assert store.verify(folder) == []
    (listed,) = store_writer.list_stores(tmp_path)
    assert (listed.state, listed.statistics) == ("ready", None)


def test_the_digest_of_a_features_file_does_not_know_them(tmp_path: Path):
    tokens = planted_tokens(np.random.default_rng(0))
    np.savez(tmp_path / "t.npz", supports=["l", "r"], operations=["a", "b"], **tokens)
    assert "statistics" not in load_npz(tmp_path / "t.npz").provenance


def test_every_result_has_them_and_the_report_shows_them():
    table = small_table()
    document = benchmark(table, assignments=["learned"], protocol=SMALL, session=Session()).document
    found = document["provenance"]["features"]
    assert found["kind"] == "planted"
    assert found["statistics"] == measure(table)._asdict()
    shown = details.features(document)
    assert shown.header == ("features", "source RMS", "delta RMS", "change inside", "effective rank")
    assert shown.rows == [("training pairs", *(f"{value:.3f}" for value in found["statistics"].values()))]
    role = roles(table.cell, table.grid, seed=0)
    of_cells = geometry.measure(table, role == OPTIMISATION, role == VALIDATION)
    assert found["geometry"] == of_cells._asdict()
    shown = details.feature_geometry(document)
    assert shown.header == ("features", *(label for label, _ in geometry.MEANINGS.values()))
    assert shown.rows == [("training pairs", *("-" if value is None else f"{value:.3f}" for value in of_cells))]
    assert of_cells.effect_cosine is None
    assert of_cells.what_probe == 1
    assert shown in summary.details(document)
    assert summary.glossary(document["config"])["what probe"] == geometry.MEANINGS["what_probe"][1]
    assert numbers_of(found).keys() == details.FEATURE_TERMS.keys()
