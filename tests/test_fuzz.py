"""Any input gives a valid object or one line: never a traceback, never a number made of nonsense."""

import contextlib
import io
import json
import math
import string
import subprocess
import sys
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from soopf_jax import bench, compare, leaderboard
from soopf_jax.errors import UserError
from soopf_jax.experiments import options, results
from soopf_jax.experiments.arms import make_arms, parts_of
from soopf_jax.features.npz import load_npz
from soopf_jax.fitting.protocol import CHOICES, Protocol
from soopf_jax.grid import Grid
from soopf_jax.report import run_folder
from soopf_jax.runtime.arrays import npz_bytes
from tests import test_npz
from tests.report_result import dealt_result

quickly = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
NUMBERS = st.one_of(st.integers(), st.integers(-2, 100), st.floats(), st.floats(0, 10))
WORDS = st.text(string.ascii_letters + string.digits + "-_=., <>/\\'\"*?\u20ac\u202e", max_size=12)
"""Without a colon: package.module:attr is imported, which is what it is for."""
VALUES = {int: st.integers() | st.integers(-2, 100), float: st.floats() | st.floats(0, 10)}
VALUES[str] = WORDS | st.sampled_from([choice for choices in CHOICES.values() for choice in choices])


def made(make):
    """What comes of it: a value, or None and one line that says why not."""
    try:
        return make()
    except UserError as error:
        text = str(error)
    assert text
    assert "\n" not in text
    assert not set("│╭╰─") & set(text)
    return None


# ------------------------------------------------------------------------------------------------ configs


@quickly
@given(st.fixed_dictionaries({}, optional={f.name: VALUES[f.type] for f in fields(Protocol)}))
def test_a_protocol_is_valid_or_refused_in_one_line(values):
    protocol = made(lambda: Protocol(**values))
    if protocol is None:
        return
    assert all(1 <= getattr(protocol, name) < 2**31 for name in ("seeds", "restarts", "steps", "router_width"))
    assert math.isfinite(protocol.learning_rate)
    assert 0 < protocol.tau(0) < math.inf
    assert protocol.label in ("full", "quick", "custom")


OPTIONS = [f"--{f.name.replace('_', '-')}" for kind in (options.Bench, Protocol) for f in fields(kind)]
NAMES = ["soopf", "dense", "mlp", "factorial", "learned", "native", "core", "enhanced", "one", "two", "mask=0.5", "hue"]
ARGUMENTS = st.one_of(
    st.sampled_from(OPTIONS),
    st.sampled_from(OPTIONS).map(lambda option: option.replace("--", "--no-", 1)),
    st.sampled_from(NAMES),
    NUMBERS.map(str),
    WORDS,
    st.tuples(st.sampled_from(OPTIONS), st.one_of(NUMBERS.map(str), st.sampled_from(NAMES), WORDS)).map("=".join),
)


@settings(quickly, max_examples=150)
@given(st.lists(ARGUMENTS, max_size=8))
def test_a_command_line_is_valid_or_refused_in_one_line(args):
    assume(not {"--help", "-h", "--distributed"} & set(args))
    said = io.StringIO()
    parsed = []

    def check():
        given = bench.parse(args)
        make_arms(*parts_of(given))
        parsed.append(given)

    with contextlib.redirect_stderr(said):
        code = bench.cli.run(check)
    assert code == (0 if parsed else 2), said.getvalue()
    assert said.getvalue().count("\n") == (code == 2)
    if parsed:
        assert Protocol(**asdict(parsed[0].protocol)) == parsed[0].protocol
        assert json.loads(json.dumps(options.record(parsed[0], ["key"]), allow_nan=False))
        assert options.default_out(parsed[0], {}).parent == Path("runs"), "a name never leads out of its folder"


@quickly
@given(st.lists(st.text(max_size=5), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_a_grid_is_valid_or_refused_in_one_line(supports, operations):
    grid = made(lambda: Grid.of(supports, operations))
    if grid is None:
        return
    assert [grid.cell(*grid.axes(cell)) for cell in range(grid.n_cells)] == list(range(grid.n_cells))
    assert grid.n_cells == len(grid.cell_names) >= 4
    assert all(name.isprintable() for name in grid.cell_names)


# ---------------------------------------------------------------------------------------- feature files


@st.composite
def some_arrays(draw):
    """The arrays of a good file, some of them missing, of another kind or shape, or with values that are no numbers."""
    arrays = test_npz.arrays()
    for name in draw(st.sets(st.sampled_from(sorted(arrays)), max_size=3)):
        change = draw(st.sampled_from(["remove", "kind", "shape", "values"]))
        if change == "remove":
            del arrays[name]
        elif change == "kind":
            with contextlib.suppress(ValueError), np.errstate(all="ignore"):
                arrays[name] = arrays[name].astype(draw(st.sampled_from(["f2", "f8", "i1", "u8", "c8", "?", "U2"])))
        elif change == "shape":
            axis = draw(st.integers(0, arrays[name].ndim - 1))
            arrays[name] = arrays[name].take(range(draw(st.integers(0, arrays[name].shape[axis]))), axis)
        elif arrays[name].dtype.kind != "U":
            place = tuple(draw(st.integers(0, size - 1)) for size in arrays[name].shape)
            value = draw(st.floats() if arrays[name].dtype.kind == "f" else st.integers(-(2**62), 2**62))
            with np.errstate(all="ignore"):
                arrays[name][place] = value
    return arrays


@quickly
@given(some_arrays())
def test_a_features_file_is_valid_or_refused_in_one_line(tmp_path, arrays):
    path = tmp_path / "tokens.npz"
    np.savez(path, **arrays)
    table = made(lambda: load_npz(path))
    assert table is None or test_npz.is_valid(table)


# ----------------------------------------------------------------------------------------- result files


@cache
def good():
    return dealt_result()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)


def places(value, path=()):
    """The path to every value in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


@st.composite
def mutated_documents(draw):
    """A good document with one value removed or replaced by any other."""
    document = json.loads(json.dumps(good().document))
    *path, last = draw(st.sampled_from([path for path in places(document) if path]))
    parent = document
    for key in path:
        parent = parent[key]
    if draw(st.booleans()):
        parent[last] = draw(JSON)
    else:
        del parent[last]
    return document


def save(folder, document, fits):
    """As `results.save`, without its own checks: a file that someone else made, seal and all."""
    folder.mkdir(parents=True, exist_ok=True)
    data = npz_bytes(fits)
    with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
        document = results.sealed(document, data)
    (folder / "result.json").write_text(json.dumps(document))
    (folder / "fits.npz").write_bytes(data)


def check_readers(folder):
    """Every program that reads results, on one that may be nonsense."""
    programs = {
        "leaderboard": lambda: leaderboard.main([str(folder.parent)]),
        "compare": lambda: compare.main([f"{folder}:factorial", f"{folder}:learned"]),
        "bench": lambda: bench.cli.run(lambda: show(folder)),
    }
    for name, program in programs.items():
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = program()
        assert code in (0, 2), name
        assert err.getvalue().count("error: ") == (code == 2), name
        assert " nan" not in out.getvalue(), name
        assert "\x1b" not in out.getvalue() + err.getvalue(), name


def show(folder):
    """What `bench` does where a result of the same configuration stands."""
    document = results.load(folder).document
    assert run_folder.already_done(folder, document["config"], overwrite=False)


@settings(quickly, max_examples=80)
@given(mutated_documents())
def test_a_result_file_is_shown_or_refused_in_one_line(tmp_path_factory, document):
    folder = tmp_path_factory.mktemp("runs") / "run"
    save(folder, document, good().fits)
    check_readers(folder)


@st.composite
def mutated_fits(draw):
    """Good fits with one column missing, or of another kind, shape or content."""
    fits = dict(good().fits)
    name = draw(st.sampled_from(sorted(fits)))
    change = draw(st.sampled_from(["remove", "kind", "short", "scalar", "shuffled", "nonsense"]))
    if change == "remove":
        del fits[name]
    elif change == "kind":
        fits[name] = fits[name].astype(draw(st.sampled_from(["f8", "i8", "?", "U4"])))
    elif change == "short":
        fits[name] = fits[name][: draw(st.integers(0, 5))]
    elif change == "scalar":
        fits[name] = np.array(fits[name].flat[0])
    elif change == "shuffled":
        fits[name] = np.random.default_rng(draw(st.integers(0, 9))).permutation(fits[name])
    else:
        values = draw(st.sampled_from([-1, 7, 2**31 - 1]))
        fits[name] = np.full_like(fits[name], values, dtype=np.int64)
    return fits


@settings(quickly, max_examples=60)
@given(mutated_fits())
def test_a_file_of_fits_is_read_or_refused_in_one_line(tmp_path_factory, fits):
    folder = tmp_path_factory.mktemp("runs") / "run"
    save(folder, good().document, fits)
    check_readers(folder)


@pytest.mark.parametrize("nonsense", [b"", b"PK", b"[" * 100_000, b"null", b"\xff\xfe{}", b'{"arms": NaN}'])
def test_files_that_are_no_results(tmp_path, nonsense):
    folder = tmp_path / "run"
    save(folder, good().document, good().fits)
    for name in ("result.json", "fits.npz"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(nonsense)
        assert made(lambda: results.load(folder)) is None
        (folder / name).write_bytes(whole)
    assert results.load(folder).document["arms"] == good().document["arms"]


@pytest.mark.slow
def test_the_parsers_withstand_a_minute_of_guided_fuzzing(tmp_path):
    pytest.importorskip("atheris")
    program = [sys.executable, str(Path(__file__).parent / "fuzz_parsers.py"), "-max_total_time=60"]
    done = subprocess.run([*program, str(tmp_path / "corpus")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
