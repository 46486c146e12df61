"""From lists of options, or a TOML file, to the rows of a study.

In: `name -> value or list of values`, for any option of a run. Out: the product of all lists as options of runs, each
once. A file may have tables `[[row]]`. Each of them is laid over the options above it and has a product of its own.
"""

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from soopf_jax import plugins
from soopf_jax.encoders.layers import LAST, named_layers
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments.options import OF_CHOICES, Bench, changed, check
from soopf_jax.fitting.protocol import PRESETS, Choices

NOT_VARIED = (
    *("features", "data_root", "cache_dir", "out", "overwrite", "resume", "distributed"),
    *("dry_run", "target", "wide"),
)
"""Options of a run that a study sets itself, or that it has no use for."""
OPTIONS = (*(f.name for f in fields(Bench) if f.name not in (*NOT_VARIED, "choices")), *OF_CHOICES)
"""What may be varied."""
LISTS = ("assignment", "operations", "weight")
"""Options that are lists already. A list of lists is varied."""
EXAMPLE = """\
# A study: the product of all lists below is run. Start it with: soopf study THIS_FILE
# Any option of `soopf run` may stand here, with _ for -. A list of values is varied.

dataset = ["shapes3d-lite"]
encoder = ["random-vit-s"]
layer = ["all", "last"]        # all blocks; last: the output after the final norm; 6, -1: a block; 0.5: relative depth
readout = ["soopf"]
assignment = ["factorial", "learned"]   # the arms of every run; a list of lists is varied

quick = true                   # 3 seeds, 2 restarts, 500 steps
pairs_per_cell = 100
# learning_rate = [0.0025, 0.005]

# Every [[row]] is laid over the options above and has a product of its own. Without any, the options above are the
# study.
[[row]]

[[row]]
encoder = "pixels"
layer = "last"
"""
"""What `soopf study --init` writes."""

Options = Mapping[str, Any]
Depth = Callable[[str], int | None]
"""The name of an encoder -> the number of its blocks; None if it has no layers or cannot be opened."""


def read_file(path: Path, over: Options) -> list[dict[str, Any]]:
    """The options of every product of a file, with the options of the command line laid over them.

    Raises:
        UserError: The file cannot be read, or has an entry that is no option.
    """
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}; soopf study --init {path} writes an example") from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as TOML: {error}; correct it") from error
    rows = content.pop("row", [{}])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: rows are tables of their own; write [[row]]")
    return [content | row | dict(over) for row in rows]


def rows_of(products: Sequence[Options], depth_of: Depth) -> list[Bench]:
    """The runs of a study, each once. Runs that read the same encoder follow one another.

    Args:
        products: The options of every product.
        depth_of: Tells how many layers an encoder has.

    Raises:
        UserError: An option is unknown or has an impossible value, or there is no such layer.
    """
    runs = dict.fromkeys(run for options in products for run in _product(options, depth_of))
    order = {key: place for place, key in enumerate(dict.fromkeys((r.dataset_name, r.encoder_name) for r in runs))}
    return sorted(runs, key=lambda run: order[run.dataset_name, run.encoder_name])


def _product(options: Options, depth_of: Depth) -> list[Bench]:
    """The product of all lists of some options."""
    for name in options:
        if name not in OPTIONS:
            raise unknown_name("option of a run", name, OPTIONS)
    named = {name: values_of(name, value) for name, value in options.items() if name != "layer"}
    layers = [str(name) for name in values_of("layer", options.get("layer", LAST))]
    found = []
    for values in itertools.product(*named.values()):
        run = make_run(dict(zip(named, values, strict=True)))
        found += [replace(run, layer=layer) for layer in layers_of(run.encoder_name, layers, depth_of)]
    return [check(run) for run in found]


def values_of(name: str, value: Any) -> list[Any]:
    """The values of an option; one that is not a list is one value."""
    if name in LISTS:
        names = [value] if isinstance(value, str) else value
        several = names if _all_are(names, list | tuple) else [names]
        if not all(_all_are(one, str) for one in several):
            raise UserError(f"{name} takes a list of names, or a list of such lists, not {value!r}; correct it")
        return [tuple(one) for one in several]
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise UserError(f"{name} has no value; give at least one or leave it out")
    return values


def _all_are(values: Any, kind: Any) -> bool:
    """Whether this is a list of values of one kind; an empty list counts as one of text."""
    if not isinstance(values, list | tuple):
        return False
    return all(isinstance(value, kind) for value in values) if values else kind is str


def layers_of(encoder: str, names: Sequence[str], depth_of: Depth) -> list[int | None]:
    """The layers that an encoder is read at. An encoder without layers has its output only."""
    if list(names) == [LAST]:
        return [None]
    depth = depth_of(encoder)
    return [None] if depth is None else named_layers(names, depth)


def make_run(options: Options) -> Bench:
    """One run. A probe has one assignment and one objective, whatever others are asked for.

    Raises:
        UserError: An option has a value of the wrong kind, or there is no such preset.
    """
    kinds = {f.name: type(getattr(Choices(), f.name)) for f in fields(Choices)}
    kinds |= {f.name: type(f.default) for f in fields(Bench) if isinstance(f.default, bool | int | float | str)}
    kinds |= dict.fromkeys(("seeds", "restarts", "steps"), int)
    kinds |= dict.fromkeys(("dataset", "encoder", "readout", "objective", "keep"), str)
    given = {name: _of_kind(name, value, kinds.get(name)) for name, value in options.items()}
    preset = given.get("preset", Bench.preset)
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    run = changed(Bench(choices=PRESETS[preset]), given)
    readout = plugins.resolve("readout", plugins.READOUTS, run.readout_name)
    return replace(run, assignment=(), objective=None) if readout.labels == "native" else run


def _of_kind(name: str, value: Any, kind: type | None) -> Any:
    """A value as its option has it; an integer will do for a float, and text from a command line is read."""
    if isinstance(value, str) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    if isinstance(value, str) and kind is bool and value in ("true", "false"):
        return value == "true"
    if kind is float and type(value) is int:
        return float(value)
    if kind is not None and type(value) is not kind:
        raise UserError(f"{name} takes {KINDS[kind]}, not {value!r}; correct it")
    return value


KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE,VALUE ...` of a command line as options.

    Raises:
        UserError: An item has another form.
    """
    found: dict[str, Any] = {}
    for item in settings:
        name, equals, values = item.partition("=")
        if not equals or not values:
            raise UserError(f"--set takes NAME=VALUE,VALUE, not '{item}'; for example learning_rate=0.0025,0.005")
        found[name.replace("-", "_")] = values.split(",")
    return found
