"""The names of a run in tables that hold many runs. Runs whose scores could differ have different names."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.runtime.text import printable
from soopf_jax.types import Json

DATA = {"data_seed": 0, "stripe_unit": "cycles", "stripe_size": 0}
"""The options of a data set, and their defaults."""
UNCERTAIN_READOUTS = dict.fromkeys(("bilinear", "bilinear-positive"), "form unknown")
"""Readouts that the paper names without their equations. Ours are guesses, and every table says so."""
_SIZE = ("seeds", "restarts", "steps")


class RunName(NamedTuple):
    """What was run. Each field is the text of a table's cell and is safe to print on a terminal."""

    substrate: str
    """`shapes3d-lite`, with the data seed and other options if they are not the defaults; the file where features were
    given."""
    grid: str
    """`3 x 3`, supports by operations."""
    pairs: str
    """The number of pairs in all cells together."""
    encoder: str
    """The encoder, with layer and dtype if they are not the defaults."""
    readout: str
    objective: str
    """The objective, with the loss weights that were changed."""
    protocol: str
    """`full`, `quick` or `custom 5 x 2 x 300` (seeds, restarts, steps), then every choice that is not the default."""


def with_caveat(title: str, readout: str) -> str:
    """The title of a row or a readout, with a word of caution if the readout's form is a guess of ours."""
    return f"{title} ({UNCERTAIN_READOUTS[readout]})" if readout in UNCERTAIN_READOUTS else title


def name_run(document: Json) -> RunName:
    """The names of a run.

    Raises:
        UserError: The result file lacks what `bench` writes.
    """
    try:
        config, provenance = document["config"], document["provenance"]
        supports, operations = (provenance["grid"][axis] for axis in ("supports", "operations"))
        readout = document["arms"][0]["readout"]
        changed = " ".join(map(str, config.get("weight", ())))
        names = RunName(
            _with(config.get("features") or config.get("dataset", "table"), DATA, config),
            f"{len(supports)} x {len(operations)}",
            str(provenance["pairs"]),
            encoder_of(config),
            with_caveat(readout, readout),
            f"{document['arms'][0]['objective']} {changed}".strip(),
            _protocol(document),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"the result file does not say what was run ({error!r}); run it again") from error
    return RunName(*map(printable, names))


def encoder_of(config: Json) -> str:
    """The encoder of a configuration, with layer and dtype if they are not the defaults."""
    return _with(config.get("encoder", "given features"), {"layer": None, "dtype": "float16"}, config)


def without_folder(name: str) -> str:
    """A plug-in's name without the folders of this machine: `hf:/home/me/vit` becomes `hf:vit`.

    Hub names (`hf:facebook/dinov2-small`) and relative paths stay as they are.
    """
    kind, colon, argument = name.partition(":")
    if not argument.startswith(("/", "~")):
        return name
    return f"{kind}{colon}{PurePath(argument).name}"


def protocol_of(document: Json) -> dict[str, Any]:
    """Every choice of a run's protocol. A choice that it does not name has its default, which is what the run did:
    where the two differ, `results.load` has filled in what the run did."""
    return asdict(Protocol()) | dict(document["config"]["protocol"])


def _protocol(document: Json) -> str:
    chosen, label = protocol_of(document), document["protocol"]
    if label == "custom":
        label += " " + " x ".join(str(chosen[name]) for name in _SIZE)
    return _with(label, {name: value for name, value in asdict(Protocol()).items() if name not in _SIZE}, chosen)


def _with(name: str, defaults: Mapping[str, Any], chosen: Json) -> str:
    """The name, followed by whatever is not at its default."""
    others = (f"{key} {chosen[key]}" for key, default in defaults.items() if chosen.get(key, default) != default)
    return " ".join([str(name), *(other.replace("_", " ") for other in others)])
