import hashlib
import io
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from soopf_jax.errors import UserError
from soopf_jax.features.npz import load_npz
from soopf_jax.types import FeatureTable

PAIRS, PATCHES, CHANNELS = 24, 3, 2  # six pairs in each of four cells


def arrays(**changes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    good = {
        "source": rng.standard_normal((PAIRS, PATCHES, CHANNELS)).astype(np.float32),
        "edited": rng.standard_normal((PAIRS, PATCHES, CHANNELS)).astype(np.float32),
        "cell": np.arange(PAIRS) % 4,
        "supports": np.array(["floor", "wall"]),
        "operations": np.array(["hue", "invert"]),
        "region": rng.integers(-1, 2, (PAIRS, PATCHES)),
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def with_value(name: str, index: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    changed = arrays()[name].copy()
    changed[index] = value
    return {name: changed}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.npz"


def test_good_file(path: Path) -> None:
    made = arrays()
    np.savez(path, **made)
    table = load_npz(path)
    np.testing.assert_array_equal(table.source, made["source"])
    np.testing.assert_array_equal(table.delta, made["edited"] - made["source"])
    np.testing.assert_array_equal(table.cell, made["cell"])
    assert table.grid.cell_names == ("floor/hue", "floor/invert", "wall/hue", "wall/invert")
    one_hot = {-1: [0, 0], 0: [1, 0], 1: [0, 1]}
    np.testing.assert_array_equal(table.region, [[one_hot[int(r)] for r in pair] for pair in made["region"]])
    assert table.provenance["file"] == "tokens.npz"
    assert table.provenance["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_region_may_be_left_out_and_half_precision_is_subtracted_in_single(path: Path) -> None:
    source = np.full((PAIRS, PATCHES, CHANNELS), 1.0, np.float16)
    edited = np.full((PAIRS, PATCHES, CHANNELS), 1e-4, np.float16)
    np.savez(path, **arrays(region=None, source=source, edited=edited))
    table = load_npz(path)
    assert table.region is None
    # in half precision the difference would be -1 + 1e-4 rounded to a step of 2^-11
    np.testing.assert_array_equal(table.delta, np.float32(np.float16(1e-4)) - np.float32(1))


def test_pairs_per_cell_keeps_the_first_of_each(path: Path) -> None:
    np.savez(path, **arrays())
    table = load_npz(path, pairs_per_cell=5)
    np.testing.assert_array_equal(table.cell, np.arange(20) % 4)
    np.testing.assert_array_equal(table.source, arrays()["source"][:20])
    assert len(load_npz(path, pairs_per_cell=100).cell) == PAIRS


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": None}, "it lacks source"),
        ({"edited": None, "cell": None}, "it lacks cell, edited"),
        ({"labels": np.zeros(3)}, "unknown array labels"),
        ({"source": np.zeros((PAIRS, PATCHES))}, "source must be floating-point"),
        ({"source": np.zeros((PAIRS, PATCHES, CHANNELS), int)}, "source must be floating-point"),
        ({"edited": np.zeros((PAIRS, PATCHES, CHANNELS), complex)}, "edited must be floating-point"),
        ({"edited": np.zeros((PAIRS, PATCHES, 5))}, "edited has 5 channels but source has 2"),
        ({"edited": np.zeros((PAIRS, 4, CHANNELS))}, "edited has 4 patches but source has 3"),
        ({"cell": np.arange(20) % 4}, "cell has 20 pairs but source has 24"),
        ({"cell": np.arange(PAIRS) % 4.0}, "cell must be integers"),
        ({"cell": np.arange(PAIRS) % 5}, r"cell holds 4, outside 0\.\.3"),
        ({"cell": np.arange(PAIRS) % 4 - 1}, r"cell holds -1, outside 0\.\.3"),
        ({"cell": np.arange(PAIRS) % 3}, "cell wall/invert has no pair"),
        ({"cell": np.array([3] * 4 + [0, 1, 2] * 6 + [0, 1])}, "cell wall/invert has 4 pairs"),
        ({"supports": np.array(["floor"])}, "at least two supports"),
        ({"operations": np.array(["hue", "hue"])}, "operation names must differ"),
        ({"supports": np.array([1, 2])}, "supports must be strings"),
        ({"supports": np.array(["a", "b"], object)}, "Object arrays cannot be loaded"),
        ({"region": np.zeros((PAIRS, 4), int)}, "region has 4 patches but source has 3"),
        ({"region": np.full((PAIRS, PATCHES), 2)}, r"region holds 2, outside -1\.\.1"),
        ({"source": np.zeros((0, PATCHES, CHANNELS))}, "source is empty"),
        (with_value("source", (7, 1, 0), np.nan), "source of pair 7 holds NaN or infinity"),
        (with_value("edited", (9, 0, 1), -np.inf), "edited of pair 9 holds NaN or infinity"),
        (with_value("edited", (9, 0, 1), 1e30), r"edited of pair 9 holds 1e\+30: squares"),
    ],
)
def test_mistakes_say_what_is_wrong(path: Path, changes: dict, says: str) -> None:
    np.savez(path, **arrays(**changes))
    with pytest.raises(UserError, match=says) as caught:
        load_npz(path)
    assert str(caught.value).startswith(f"features file {path}: ")
    assert ";" in str(caught.value), "says what to do"


def test_too_few_pairs_asked_for(path: Path) -> None:
    np.savez(path, **arrays())
    with pytest.raises(UserError, match="--pairs-per-cell 4 is too few"):
        load_npz(path, pairs_per_cell=4)


def test_largest_accepted_values_have_finite_squares(path: Path) -> None:
    limit = 0.0999 * math.sqrt(np.finfo(np.float32).max / (PATCHES * CHANNELS))
    shape = (PAIRS, PATCHES, CHANNELS)
    np.savez(path, **arrays(source=np.full(shape, limit), edited=np.full(shape, -limit)))
    table = load_npz(path)
    assert np.isfinite(np.sum(table.delta[0] ** 2, dtype=np.float32))


def test_what_is_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "pickle.npz").write_bytes(b"\x80\x04N.")
    for name in ("missing.npz", ".", "one.npy", "text.npz", "empty.npz", "pickle.npz"):
        with pytest.raises(UserError):
            load_npz(tmp_path / name)


# ------------------------------------------------------------------------------------- nothing but UserError


def is_valid(table: FeatureTable) -> bool:
    """What the fits rely on, spelt out without the loader's own code."""
    counts = np.bincount(table.cell, minlength=table.grid.n_cells)
    return bool(
        table.source.shape == table.delta.shape
        and len(table.cell) == len(table.source)
        and np.isfinite(table.source).all()
        and np.isfinite(table.delta).all()
        and np.isfinite(np.square(table.delta, dtype=np.float32).sum(axis=(1, 2))).all()
        and len(counts) == table.grid.n_cells
        and counts.min() >= 5
        and (table.region is None or set(np.unique(table.region)) <= {0.0, 1.0})
    )


def check(path: Path) -> None:
    try:
        table = load_npz(path)
    except UserError:
        return
    assert is_valid(table)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.booleans(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4)
)
def test_damaged_bytes(path: Path, compressed: bool, flips: list[tuple[float, int]]) -> None:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays())
    data = bytearray(buffer.getvalue())
    for place, mask in flips:
        data[int(place * len(data))] ^= mask
    path.write_bytes(data)
    check(path)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1))
def test_truncated_bytes(path: Path, kept: float) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    path.write_bytes(buffer.getvalue()[: int(kept * len(buffer.getvalue()))])
    check(path)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(arrays())),
    st.sampled_from(["?", "i1", "u8", "f2", "f4", "f8", "c8", "U3", "S3", "M8[s]", "V4"]),
    st.lists(st.integers(0, PAIRS), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_any_array_in_the_place_of_another(path: Path, name: str, dtype: str, shape: list[int], seed: int) -> None:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    values = (
        np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(shape) if size else np.zeros(shape, dtype)
    )
    with np.errstate(all="ignore"):
        np.savez(path, **arrays(**{name: values}))
    check(path)


def test_header_that_lies_about_its_size(path: Path) -> None:
    """A claim of 2 ** 61 values must not be believed."""
    np.savez(path, **arrays())
    header = (
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693951, 1, 1), }"
    )
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    members["source.npy"] = header.ljust(127) + b"\n"
    with zipfile.ZipFile(path, "w") as lying:
        for name, data in members.items():
            lying.writestr(name, data)
    with pytest.raises(UserError, match=r"cannot be read as \.npz"):
        load_npz(path)
