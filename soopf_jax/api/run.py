"""The benchmark as functions: `benchmark`, `features` and `evaluate`. They open runs as the command line does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.api.options import (
    PAPER,
    AssignmentLike,
    BenchmarkOptions,
    DataOptions,
    DatasetLike,
    EncoderLike,
    EvaluateOptions,
    ProtocolLike,
    ReadoutLike,
    bench_of,
    check_options,
    in_python,
    protocol_of,
)
from soopf_jax.api.parts import check_recognisable, dataset_opener, encoder_opener, parts_of
from soopf_jax.api.result import Result, load
from soopf_jax.errors import UserError
from soopf_jax.experiments.inputs import Given, open_inputs
from soopf_jax.experiments.opened import OpenedRun, open_run
from soopf_jax.experiments.options import Bench
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.train import Session
from soopf_jax.report import loggers
from soopf_jax.report.run_folder import pictures, train_and_save, working_on
from soopf_jax.runtime import atomic
from soopf_jax.runtime import progress as bars
from soopf_jax.tokens import as_arrays
from soopf_jax.types import AnyArray, ArrayLike, FeatureTable


def benchmark(
    table: FeatureTable | None = None,
    readout: ReadoutLike = "soopf",
    assignments: AssignmentLike | Sequence[AssignmentLike] | None = None,
    *,
    dataset: DatasetLike | None = None,
    encoder: EncoderLike | None = None,
    protocol: ProtocolLike | None = None,
    progress: bool = True,
    **options: Unpack[BenchmarkOptions],
) -> Result:
    """Train readouts of a frozen encoder with every cell held out in turn, and score them on the held-out cells.

    Examples:
        >>> soopf.benchmark(dataset="mujoco", encoder="dinov3", layer=18, protocol=soopf.QUICK)
        >>> soopf.benchmark(dataset="shapes3d-lite", encoder=my_encoder, assignments="factorial", seeds=3)
        >>> soopf.benchmark(soopf.load_features("tokens.npz"), readout=my_readout, out="runs/mine")

    Args:
        table: Features, instead of a data set and an encoder.
        readout: What is trained: a name, an address `package.module:attr`, a Readout or a function that makes one.
        assignments: One arm each, as names or values. By default those of the paper; for a probe `native`.
        dataset: Where the image pairs come from: a name, an address, a Substrate or a function that opens one. By
            default the built-in `shapes3d-lite`.
        encoder: What turns images into tokens: a name, an address, an Encoder (see `soopf.encoder`) or a function that
            opens one. By default `pixels`.
        protocol: How many fits, and how each is trained: `soopf.QUICK`, `soopf.PAPER` (the default) or a Protocol.
        progress: Whether to show what is being done.
        options: Fields of the protocol (`seeds=3`), and the fields of `BenchmarkOptions`: `layer`, `operations`,
            `pairs_per_cell`, `data_seed`, `data_root`, `dtype`, `cache_dir`, `preset`, `objective`, `weights`,
            `router`, `edits`, `out`, `log`, `session`.

    Raises:
        UserError: A name is unknown, or the parts, the options or the features cannot be used.
    """
    with in_python(), _shown("benchmark", progress):
        check_options(options, BenchmarkOptions)
        chosen = protocol_of(protocol, options)
        parts = parts_of(readout, assignments, options.get("objective"), options.get("weights"))
        names = {
            "readout": parts.readout if isinstance(parts.readout, str) else None,
            "assignment": tuple(name for name in parts.assignments or () if isinstance(name, str)),
            "objective": parts.objective if isinstance(parts.objective, str) else None,
        }
        if options.get("out") is not None:
            check_recognisable(parts)
        bench, given = _opened(table, dataset, encoder, options, chosen, names)
        with bars.phase("opening data and encoder"):
            run = open_run(bench, given, parts)
        session = options.get("session") or Session()
        return _finish(run, session, options.get("out"), progress, bench.log)


def features(
    dataset: DatasetLike | None = None,
    encoder: EncoderLike | None = None,
    *,
    progress: bool = True,
    **options: Unpack[DataOptions],
) -> FeatureTable:
    """The tokens of a data set under an encoder, from the cache or computed now.

    Examples:
        >>> table = soopf.features(dataset="mujoco", encoder="dinov3", layer=18, pairs_per_cell=50)
        >>> soopf.benchmark(table, protocol=soopf.QUICK)

    Args:
        dataset: As for `benchmark`.
        encoder: As for `benchmark`.
        progress: Whether to show what is being done.
        options: The fields of `DataOptions`: `layer`, `operations`, `pairs_per_cell`, `data_seed`, `stripe_unit`,
            `stripe_size`, `data_root`, `dtype`, `cache_dir`.

    Returns:
        The table. Its tokens stay on the disk until they are used: `table.source[:8]` reads eight pairs.

    Raises:
        UserError: A name is unknown, or the data set or the encoder cannot be opened.
    """
    with in_python(), _shown("features", progress):
        check_options(options, DataOptions)
        bench, given = _opened(None, dataset, encoder, options, PAPER, {})
        with bars.phase("opening data and encoder"):
            (opened,) = open_inputs(bench, None, given)
        return opened.load(_bar("images") if progress else None)


def evaluate(
    source: Float[AnyArray, "pairs patches channels"] | ArrayLike,
    edited: Float[AnyArray, "pairs patches channels"] | ArrayLike,
    support: Int[AnyArray, " pairs"] | Sequence[str] | ArrayLike,
    operation: Int[AnyArray, " pairs"] | Sequence[str] | ArrayLike,
    *,
    region: Int[AnyArray, "pairs patches"] | ArrayLike | None = None,
    **options: Unpack[EvaluateOptions],
) -> Result:
    """Run the benchmark on tokens that you have: arrays in, a result out.

    Examples:
        >>> soopf.evaluate(source, edited, support=["sky", "road", ...], operation=["rain", "fog", ...], seeds=3)

    Args:
        source: Tokens of each image before its edit.
        edited: Tokens of each image after its edit.
        support: Where each pair was edited, as names or numbers.
        operation: How each pair was edited, as names or numbers. Every combination of the two needs five pairs.
        region: The support of each patch, as a number in the sorted order of the supports, -1 for none.
        options: The arguments of `benchmark`, without those of a data set and an encoder: the fields of
            `EvaluateOptions`.

    Raises:
        UserError: The arrays do not fit together, or an argument of `benchmark` is wrong.
    """
    check_options(options, EvaluateOptions)
    supports, where = _categories("support", support)
    operations, what = _categories("operation", operation)
    if len(where) != len(what):
        raise UserError(f"operation has {len(what)} pairs but support has {len(where)}; make them agree")
    cell = where * len(operations) + what
    return benchmark(FeatureTable.from_tokens(source, edited, cell, supports, operations, region), **options)


# ------------------------------------------------------------------------------------------------ one run


def _opened(
    table: FeatureTable | None,
    dataset: DatasetLike | None,
    encoder: EncoderLike | None,
    options: Any,
    protocol: Protocol,
    names: dict[str, Any],
) -> tuple[Bench, Given]:
    """The options of a run, and the parts of it that have no name."""
    if table is not None:
        _check_table(table, dataset, encoder, options)
    openers = {"dataset": dataset_opener(dataset), "encoder": encoder_opener(encoder)}
    own = {kind: opener for kind, opener in openers.items() if opener is not None}
    named = {"dataset": dataset, "encoder": encoder}
    bench = bench_of(options, protocol, **names, **{kind: name for kind, name in named.items() if kind not in own})
    given = Given(
        table,
        **{kind: opener.open for kind, opener in own.items()},
        names={kind: opener.name for kind, opener in own.items()},
    )
    return bench, given


def _check_table(table: Any, dataset: Any, encoder: Any, options: Any) -> None:
    """A UserError unless the table is one, and nothing else is asked for that would make features."""
    if isinstance(table, str):
        how = f"soopf.load_features({table!r})" if table.endswith(".npz") else f"dataset={table!r}"
        raise UserError(f"the first argument of benchmark() is a FeatureTable; write {how}")
    if not isinstance(table, FeatureTable):
        raise UserError(f"a table must be a FeatureTable, not {type(table).__name__}; see FeatureTable.from_tokens")
    asked = {"dataset": dataset, "encoder": encoder} | {
        name: options.get(name) for name in DataOptions.__optional_keys__
    }
    for name, value in asked.items():
        if value is not None:
            raise UserError(f"a table brings its own tokens; leave {name}= or the table out")


def _finish(run: OpenedRun, session: Session, out: str | Path | None, progress: bool, log: str) -> Result:
    """Load the features, train every arm and add what the report shows; with `out`, keep the work and the result."""
    shown = session.progress or (_bar("fit-steps") if progress else None)
    session = session._replace(progress=shown, config={**run.config, **(session.config or {})})
    if out is None:
        found = run.train(run.load(_bar("images") if progress else None), session)
        loggers.log(log, found)
        return Result(found.document, found.fits, found.readings, pictures(run.inputs[0], found), found.kept)
    folder = Path(out).expanduser()
    if done := _finished(folder, session):
        return done
    atomic.check_writable(folder)
    data = run.load(_bar("images") if progress else None)
    with working_on(folder, run.config, resume=True) as (work, waited):
        if waited and (done := _finished(folder, session)):
            atomic.remove(work)
            return done
        found, examples = train_and_save(run, data, session._replace(work=work), folder, replace=False)
        loggers.log(log, found)
        return Result(found.document, found.fits, found.readings, examples, found.kept)


def _finished(folder: Path, session: Session) -> Result | None:
    """The result of the same run in a folder; None if the folder is free."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    found = load(folder)
    if found.document["config"] != session.config:
        raise UserError(f"{folder} holds a run of another configuration; choose another out=")
    return found


@contextmanager
def _shown(name: str, progress: bool) -> Iterator[None]:
    """Show the phases of a block below a row of its own: a notebook then keeps one display for all of them."""
    with bars.shown(progress), bars.phase(name):
        yield


def _bar(unit: str) -> bars.ProgressBar:
    return partial(bars.bar, unit=unit)


def _categories(name: str, labels: Any) -> tuple[list[str], Int[np.ndarray, " pairs"]]:
    """The names of the categories, sorted, and the number of each pair's own."""
    array = as_arrays(**{name: labels})[name]
    if array.dtype == object and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "Uiu":
        raise UserError(f"{name} must be names or integers [pairs], not {array.dtype} {list(array.shape)}")
    values, numbers = np.unique(array, return_inverse=True)
    return [str(value) if array.dtype.kind == "U" else f"{name} {value}" for value in values], numbers
