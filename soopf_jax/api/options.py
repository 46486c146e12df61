"""The keyword arguments of the API, and how they become the options of a run.

A run in Python has the same record of options as one of the command line, `experiments.options.Bench`. Parts that are
values and have no name there are passed beside it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments.options import PAPER_SIZES, Bench, check
from soopf_jax.fitting import protocol as sizes
from soopf_jax.fitting.objectives import Objective
from soopf_jax.fitting.protocol import PRESETS, Choices, Protocol
from soopf_jax.fitting.train import Session
from soopf_jax.types import Assignment, Encoder, EncoderRequest, Readout, Substrate, SubstrateRequest

QUICK = Protocol(*sizes.QUICK)
"""A first look: 3 seeds, 2 restarts, 500 steps."""
PAPER = Protocol()
"""The paper's protocol: 10 seeds, 5 restarts, 2,000 steps."""
FULL = PAPER
"""The same. Results call this protocol `full`."""
PROTOCOLS = {"quick": QUICK, "paper": PAPER, "full": FULL}

DatasetLike = str | Substrate | Callable[[SubstrateRequest], Substrate]
"""A name, an address `package.module:attr`, an open data set, or a function that opens one."""
EncoderLike = str | Encoder | Callable[[EncoderRequest], Encoder]
"""A name, an address `package.module:attr`, an open encoder, or a function that opens one."""
ReadoutLike = str | Readout | Callable[[], Readout]
"""A name, an address `package.module:attr`, a readout, or a function that makes one."""
AssignmentLike = str | Assignment | Callable[[], Assignment]
"""A name, an address `package.module:attr`, an assignment, or a function that makes one."""
ObjectiveLike = str | Objective | Callable[[], Objective]
"""A name, an address `package.module:attr`, a table of weights, or a function that makes one."""
ProtocolLike = str | Protocol
"""`quick`, `paper`, or a Protocol such as `soopf.QUICK`."""


class ProtocolOptions(TypedDict, total=False):
    """Fields of the protocol to change. `Protocol` describes them."""

    seeds: int
    restarts: int
    steps: int
    batch_size: int
    learning_rate: float
    tau_start: float
    tau_end: float
    router_width: int
    hidden: int
    source_scale: float
    router_input: str
    query_sd: float
    q_scale: float
    alignment: str
    ties: str
    matmul_precision: str


class DataOptions(TypedDict, total=False):
    """What a run asks of its data set and its encoder."""

    layer: int | None
    """The encoder's hidden layer, 0 for the embeddings; None: the last, after the final norm."""
    operations: Sequence[str]
    """The operations of the grid; by default the data set's own three."""
    pairs_per_cell: int | None
    """Pairs of each cell; None: the paper's number for the data set."""
    data_seed: int
    """Seeds every random choice of the data set; 0 by default."""
    stripe_unit: str
    """What the frequency of stripes counts per pixel: `cycles`, the default, or `radians`."""
    stripe_size: int | None
    """The width of the image whose pixels that frequency counts; None: the image that is edited."""
    data_root: str | Path | None
    """The folder of the original data set, where one is needed."""
    dtype: str
    """How features are stored: `float16`, the default, or `float32`."""
    cache_dir: str | Path | None
    """Where features are kept; None: the user's cache folder."""


class TrainingOptions(ProtocolOptions, total=False):
    """What is trained, apart from the readout and its assignments, and how."""

    preset: str
    """All choices of the protocol as a whole, apart from its size: `paper`, the default, or `ours`."""
    objective: ObjectiveLike | None
    """The loss; None: `core`, for a probe `native`."""
    weights: Mapping[str, float] | None
    """Other weights for terms of the objective."""
    router: bool
    """Whether to add the diagnostic of fits that have seen all cells."""
    out: str | Path | None
    """A folder for the result. An interrupted run is continued, and a finished one is read, by the same call. None:
    nothing is written."""
    log: str
    """Where the finished run is logged besides: `trackio`, `wandb` or, the default, `none`."""
    session: Session | None
    """How the run is carried out, for example how many fits are trained at once."""


class EvaluateOptions(TrainingOptions, total=False):
    """Further keyword arguments of `evaluate`: those of `benchmark`, without a data set and an encoder."""

    readout: ReadoutLike
    assignments: AssignmentLike | Sequence[AssignmentLike] | None
    protocol: ProtocolLike | None
    progress: bool


class BenchmarkOptions(DataOptions, TrainingOptions, total=False):
    """Further keyword arguments of `benchmark`."""

    edits: str
    """`one`, the default: score held-out cells. `two`: read pairs with two supports edited at once."""


@contextmanager
def in_python() -> Iterator[None]:
    """Name options as a caller in Python writes them: `layer=` where a message has `--layer`."""
    try:
        yield
    except UserError as error:
        words = re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_") + "=", str(error))
        raise type(error)(words) from error


def check_options(given: Mapping[str, Any], kind: Any) -> None:
    """Check the names of keyword arguments.

    Raises:
        UserError: One of them is none of this TypedDict.
    """
    valid = kind.__optional_keys__
    for name in given:
        if name not in valid:
            raise unknown_name("option", name, valid)


def protocol_of(protocol: ProtocolLike | None, options: Mapping[str, Any]) -> Protocol:
    """The protocol that is asked for, with the fields that the options change.

    Raises:
        UserError: There is no such protocol, or a field has an impossible value.
    """
    if protocol is None:
        edits = options.get("edits", "one")
        if edits not in PAPER_SIZES:
            raise unknown_name("number of edits", str(edits), PAPER_SIZES)
        protocol = Protocol(*PAPER_SIZES[edits])
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            raise unknown_name("protocol", protocol, PROTOCOLS)
        protocol = PROTOCOLS[protocol]
    if not isinstance(protocol, Protocol):
        raise UserError(f"protocol= takes a Protocol, such as soopf.QUICK, not {type(protocol).__name__}")
    preset = options.get("preset")
    if preset is not None and preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    changed = {} if preset is None else asdict(PRESETS[preset])
    changed |= {name: options[name] for name in ProtocolOptions.__optional_keys__ if name in options}
    try:
        return replace(protocol, **changed)
    except TypeError as error:
        raise UserError(f"the protocol takes numbers and names, not {changed} ({error})") from error


def bench_of(options: Mapping[str, Any], protocol: Protocol, **names: Any) -> Bench:
    """The options of a run as the command line has them, checked.

    Args:
        options: Keyword arguments of the API.
        protocol: The protocol.
        names: The names of parts, where they have one.

    Raises:
        UserError: An option has an impossible value, or two of them exclude each other.
    """
    whole = asdict(protocol)
    plain = ("layer", "dtype", "data_seed", "stripe_unit", "router", "edits", "log")
    bench = Bench(
        **{name: options[name] for name in plain if name in options},
        **names,
        stripe_size=options.get("stripe_size") or 0,
        operations=tuple(options.get("operations") or ()),
        pairs_per_cell=options.get("pairs_per_cell") or 0,
        weight=_weights(options.get("weights")),
        data_root=_path(options.get("data_root")),
        cache_dir=_path(options.get("cache_dir")),
        **{name: whole[name] for name in ("seeds", "restarts", "steps")},
        choices=Choices(**{field.name: whole[field.name] for field in fields(Choices)}),
    )
    return check(bench)


def _weights(given: Any) -> tuple[str, ...]:
    """`{"mask": 0.5}` as the command line has it."""
    given = {} if given is None else given
    if not isinstance(given, Mapping) or not all(isinstance(value, Real) for value in given.values()):
        raise UserError(f"weights= takes numbers by the names of loss terms, such as {{'mask': 0.5}}, not {given!r}")
    return tuple(f"{name}={value}" for name, value in given.items())


def _path(given: str | Path | None) -> str | None:
    return None if given is None else str(given)
