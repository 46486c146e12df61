"""Before a run: is it done, can it run here, how long will it take?

In: runs and the tables that need them. Out: what is to become of each, with the reason and the remedy where it cannot
run. Nothing is downloaded and no features are computed; the openers of data sets and encoders are asked.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from huggingface_hub import try_to_load_from_cache
from jaxtyping import Int

from soopf_jax import bench, cost, features, plugins, results, store
from soopf_jax.encoders.hf_architectures import HUB_IDS
from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.protocol import effective_batch_size
from soopf_jax.runs import ORIGINALS, THREE_OPERATIONS, Obstacle, Places, Run, arguments, command, folder, options
from soopf_jax.types import Encoder, EncoderRequest, Json, Substrate, SubstrateRequest

_HOW = "python -m soopf_jax.substrates fetch {} --data-root DIR, then --data-root DIR here"
_GATED = f"accept the licence of {HUB_IDS['dinov3']} on the hub, hf auth login, hf download {HUB_IDS['dinov3']}"
NEEDS: Mapping[str, tuple[str, str]] = {
    "shapes3d": ("3dshapes.h5", _HOW.format("shapes3d")),
    "coco": ("COCO train2017", _HOW.format("coco")),
    "mujoco": ("EGL or OSMesa", "Debian: apt install libegl1 libgl1"),
    "dinov3": ("DINOv3 weights", _GATED),
    "siglip2": ("SigLIP2 weights", f"hf download {HUB_IDS['siglip2']}"),
}
"""What a data set or an encoder cannot do without, and how to get it."""
SECONDS_PER_PAIR = {"shapes3d-lite": 0.007, "mujoco": 0.04}
"""To draw a pair on one core, measured on a 2-core machine; others are read from files."""


class Planned(NamedTuple):
    """A run, the tables that need it, and what is to become of it."""

    run: Run
    tables: tuple[str, ...]
    document: Json | None
    """Its result, if it is done."""
    seconds: float
    """Expected; 0 where it is done or cannot run."""
    obstacle: Obstacle | None
    """Why it is not to run, if it is not done."""


class Inputs(NamedTuple):
    """What decides how long a run takes."""

    cell: Int[np.ndarray, " pairs"]
    grid: Grid
    patches: int
    channels: int
    key: str
    """Names the features."""
    stored: bool
    """Whether the features have been computed before."""


def plan(
    wanted: Mapping[Run, Sequence[str]], chosen: Callable[[Run], bool], places: Places, rate: float, hours: float
) -> list[Planned]:
    """What is to become of every run. `wanted` has the tables that need each; `hours` are for all of them together.

    Runs are taken in order as long as the time suffices; one that is too long does not keep the next from running.
    """
    open_dataset, open_encoder = cache(partial(_open_dataset, places.data_root)), cache(_open_encoder)

    @cache
    def inputs_of(dataset: str, operations: tuple[str, ...], encoder: str) -> Inputs | Obstacle:
        return look(encoder, open_dataset(dataset, operations), open_encoder, places.cache_dir)

    left, planned, computed = 3600 * hours, [], set()
    for run, tables in wanted.items():
        inputs: Inputs | Obstacle = Obstacle("left out by --dataset or --encoder")
        if chosen(run):
            inputs = inputs_of(run.dataset, run.operations, run.encoder)
        seconds, obstacle = 0.0, None
        if isinstance(inputs, Obstacle):
            document = finished(run, places.runs, None)
            obstacle = None if document else inputs
        else:
            document = finished(run, places.runs, inputs.key)
            if document is None:
                seconds = expected_seconds(run, inputs._replace(stored=inputs.stored or inputs.key in computed), rate)
                obstacle = too_long(run, seconds, places) if seconds > left else None
            if obstacle is None:
                left -= seconds
                computed.add(inputs.key)  # the runs that follow share its features
        planned.append(Planned(run, tuple(tables), document, seconds, obstacle))
    return planned


def finished(run: Run, runs: Path, features_key: str | None) -> Json | None:
    """The result of these options and features; where the features cannot be had here, of these options.

    So tables can be made on a machine without the data from results that come from elsewhere.
    """
    place = runs / folder(run)
    if not (place / "result.json").exists():
        return None
    wanted = bench.parse(options(run))
    config = bench.record(wanted, wanted.protocol, [features_key] if features_key else [])
    config |= {"assignment": list(run.assignments), "objective": run.objective}
    document = results.load(place).document
    return document if config.items() <= document["config"].items() else None


# ------------------------------------------------------------------------------------------- what is there


def _open_dataset(data_root: str, name: str, operations: tuple[str, ...]) -> Substrate | Obstacle:
    request = SubstrateRequest(name, None if operations == THREE_OPERATIONS else operations)
    if name in ORIGINALS:
        request = request._replace(data_root=data_root)
    try:
        return plugins.resolve("dataset", plugins.SUBSTRATES, name)(request)
    except UserError as error:
        return _lacks(name, error)


def _weights(name: str) -> Obstacle | None:
    """Whether an encoder's weights would have to come from the hub.

    The hub is not asked: a plan must not download gigabytes, nor wait for a network that is not there.
    """
    hub_id = HUB_IDS.get(name, name.partition(":")[2] if name.startswith("hf:") else "").partition("@")[0]
    if not hub_id or Path(hub_id).expanduser().is_dir():
        return None
    files = ("model.safetensors", "model.safetensors.index.json")
    if any(isinstance(try_to_load_from_cache(hub_id, file), str) for file in files):
        return None
    return _lacks(name, UserError(f"{hub_id} is not in the cache of downloads; hf download {hub_id}"))


def _open_encoder(name: str) -> Encoder | Obstacle:
    try:
        return plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name))
    except UserError as error:
        return _lacks(name, error)


def _lacks(name: str, error: UserError) -> Obstacle:
    """What a part needs and how to get it, or else what its opener said: reason; remedy."""
    reason, _, remedy = str(error).partition(";")
    thing, how = NEEDS.get(name, (f"{name} ({reason})", remedy.strip()))
    return Obstacle(f"needs {thing}", (f"{thing}: {how}",))


def look(
    name: str, substrate: Substrate | Obstacle, open_encoder: Callable[[str], Encoder | Obstacle], cache_dir: str
) -> Inputs | Obstacle:
    """The sizes of the features of encoder `name`, from the tokens of one blank image; or all that is missing."""
    weights = _weights(name)
    if isinstance(substrate, Obstacle) or weights:
        missing = [part for part in (substrate, weights) if isinstance(part, Obstacle)]
        things = " and ".join(part.reason.removeprefix("needs ") for part in missing)
        return Obstacle(f"needs {things}", tuple(remedy for part in missing for remedy in part.remedies))
    encoder = open_encoder(name)
    if isinstance(encoder, Obstacle):
        return encoder
    tokens = encoder.encode(np.zeros((1, *substrate.image_size, 3), np.uint8))
    recipe = features.recipe(substrate, encoder)
    stored = store.store_folder(recipe, cache_dir or None).exists()
    return Inputs(substrate.cell, substrate.grid, tokens.shape[1], tokens.shape[2], recipe["key"], stored)


# ----------------------------------------------------------------------------------------------- what it takes


def expected_seconds(run: Run, inputs: Inputs, rate: float) -> float:
    """How long a run takes on a machine of `rate` FLOP/s, features included unless they are stored.

    All readouts are taken for SO-OPF, the dearest of them.
    """
    size = bench.parse(options(run)).protocol
    work = cost.Work(
        fits=size.seeds * size.restarts * (inputs.grid.n_cells if run.edits == "one" else 1),
        steps=size.steps,
        batch=effective_batch_size(inputs.cell, inputs.grid, size.batch_size),
        patches=inputs.patches,
        channels=inputs.channels,
        supports=inputs.grid.n_supports,
        operations=inputs.grid.n_operations,
        hidden=size.hidden,
    )
    training = len(run.assignments) * cost.seconds(work, rate)
    if inputs.stored:
        return training
    pairs = len(inputs.cell)
    encoding = cost.encode_seconds(run.encoder, 2 * pairs, rate) or 0.0
    return training + encoding + pairs * SECONDS_PER_PAIR.get(run.dataset, 0.0)


def too_long(run: Run, seconds: float, places: Places) -> Obstacle:
    """Why a run that could take place does not, and its command."""
    cost_here = f"about {duration(seconds)} here"
    return Obstacle(cost_here, (f"{cost_here}: {command(arguments(run, places))}",))


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
