"""How a run is named in tables that hold many runs: short, and different wherever the scores could differ."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.protocol import Protocol
from soopf_jax.types import Json

_SIZE = ("seeds", "restarts", "steps")


class RunName(NamedTuple):
    """What was run, a table's cell each; safe to print on a terminal."""

    substrate: str
    """`shapes3d-lite`, with the data seed if it is not 0; the file where features were given."""
    grid: str
    """`3 x 3`, supports by operations."""
    pairs: str
    """In all cells together."""
    encoder: str
    """With layer and dtype where they are not the defaults."""
    readout: str
    objective: str
    """With the loss weights that were changed."""
    protocol: str
    """`full`, `quick` or `custom 5 x 2 x 300` (seeds, restarts, steps), with all else that is no default."""


def name_run(document: Json) -> RunName:
    """The names of a run; a UserError if its result file lacks what `bench` writes."""
    try:
        config, provenance = document["config"], document["provenance"]
        supports, operations = (provenance["grid"][axis] for axis in ("supports", "operations"))
        changed = " ".join(map(str, config.get("weight", ())))
        names = RunName(
            _with(config.get("features") or config.get("dataset", "table"), {"data_seed": 0}, config),
            f"{len(supports)} x {len(operations)}",
            str(provenance["pairs"]),
            _with(config.get("encoder", "given features"), {"layer": None, "dtype": "float16"}, config),
            document["arms"][0]["readout"],
            f"{document['arms'][0]['objective']} {changed}".strip(),
            _protocol(document),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"the result file does not say what was run ({error!r}); run it again") from error
    return RunName(*map(printable, names))


def protocol_of(document: Json) -> dict[str, Any]:
    """Every choice of a run's protocol; one that is younger than the run has its default."""
    return asdict(Protocol()) | dict(document["config"]["protocol"])


def printable(text: str) -> str:
    """One line without control characters: names come from files, and terminals obey escape sequences."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _protocol(document: Json) -> str:
    chosen, label = protocol_of(document), document["protocol"]
    if label == "custom":
        label += " " + " x ".join(str(chosen[name]) for name in _SIZE)
    return _with(label, {name: value for name, value in asdict(Protocol()).items() if name not in _SIZE}, chosen)


def _with(name: str, defaults: Mapping[str, Any], chosen: Json) -> str:
    """The name, followed by whatever is not at its default."""
    others = (f"{key} {chosen[key]}" for key, default in defaults.items() if chosen.get(key, default) != default)
    return " ".join([str(name), *(other.replace("_", " ") for other in others)])
