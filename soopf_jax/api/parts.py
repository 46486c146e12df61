"""Parts of a run as a caller in Python gives them: names, values and functions that make values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from soopf_jax.api.options import (
    AssignmentLike,
    DatasetLike,
    EncoderLike,
    ObjectiveLike,
    ReadoutLike,
)
from soopf_jax.errors import UserError
from soopf_jax.experiments.experiment import Parts
from soopf_jax.types import Assignment, Encoder, EncoderRequest, Readout, Substrate, SubstrateRequest


class Opener(NamedTuple):
    """A data set or an encoder that is not named but given."""

    open: Callable[[Any], Any]
    """From the request of a run to the value."""
    name: str
    """How the run records it."""


def dataset_opener(dataset: DatasetLike | None) -> Opener | None:
    """How to open a data set that is a value or a function; None where it is a name."""
    return _opener("dataset", dataset, Substrate, SubstrateRequest(""))


def encoder_opener(encoder: EncoderLike | None) -> Opener | None:
    """How to open an encoder that is a value or a function; None where it is a name."""
    return _opener("encoder", encoder, Encoder, EncoderRequest(""))


def _opener(kind: str, given: Any, value: type[Any], usual: Any) -> Opener | None:
    """`usual` is the request of a run that asks for nothing in particular."""
    if given is None or isinstance(given, str):
        return None
    if isinstance(given, value):
        name = str(given.identity.get("name", "custom"))

        def opened(request: Any) -> Any:
            asked = [field for field in request._fields[1:] if getattr(request, field) != getattr(usual, field)]
            if asked and asked != ["edits"]:
                raise UserError(f"{kind} {name} is open already; leave {'= and '.join(asked)}= out")
            return given

        return Opener(opened, name)
    make = _function(kind, given, value)
    name = f"{getattr(make, '__module__', '')}:{getattr(make, '__qualname__', type(make).__name__)}"
    return Opener(lambda request: _checked(kind, make(request), value), name)


def parts_of(
    readout: ReadoutLike,
    assignments: AssignmentLike | Sequence[AssignmentLike] | None,
    objective: ObjectiveLike | None,
    weights: Mapping[str, float] | None,
) -> Parts:
    """What is trained, as the experiments take it: names and values.

    Raises:
        UserError: Something is neither.
    """
    if isinstance(assignments, str | Assignment) or not isinstance(assignments, Iterable | None):
        assignments = [assignments]
    return Parts(
        _part("readout", readout, Readout),
        None if assignments is None else [_part("assignment", each, Assignment) for each in assignments],
        None if objective is None else _part("objective", objective, Mapping),
        weights,
    )


def check_recognisable(parts: Parts) -> None:
    """Check that a later session can tell whether it trains the same parts.

    Raises:
        UserError: One of them is a value, whose code is not recorded.
    """
    given = {"readout": [parts.readout], "assignment": parts.assignments or (), "objective": [parts.objective]}
    for kind, values in given.items():
        if any(value is not None and not isinstance(value, str) for value in values):
            raise UserError(f"out= needs names: give the {kind} as package.module:attr, or leave out= out and save()")


def _part(kind: str, given: Any, value: type[Any]) -> Any:
    if isinstance(given, str | value):
        return given
    return _checked(kind, _function(kind, given, value)(), value)


def _function(kind: str, given: Any, value: type[Any]) -> Callable[..., Any]:
    if not callable(given):
        raise UserError(f"{kind} must be a name, {_a(value)} or a function that makes one, not {_a(type(given))}")
    return given


def _checked(kind: str, made: Any, value: type[Any]) -> Any:
    if not isinstance(made, value):
        raise UserError(f"the function given as {kind} made {_a(type(made))}; return {_a(value)}")
    return made


def _a(kind: type[Any]) -> str:
    """`a Readout`, `an Encoder`."""
    return f"{'an' if kind.__name__[0] in 'AEIOaeio' else 'a'} {kind.__name__}"
