"""Measures the time of a fit-step: the JAX program, three PyTorch loops, and the limit of the machine.

    python benchmarks/throughput.py                              # F = 1, 9, 45, 90, 450; some minutes
    python benchmarks/throughput.py --quick --json -             # one F only, less than a minute
    python benchmarks/throughput.py --json speed.json --plot speed.png

F is the number of fits that are trained together. There are two sections: large tokens, of the size of a ViT-L's, and
small tokens, of the size of `pixels`. The 45 fits of a seed are a group. The trainer may train several groups side by
side, each in its own lane; the ratios are for one group in each lane. All methods take turns `--rounds` times, so a
change of the machine's speed affects all of them equally. A ratio is the median over rounds of the ratios within a
round. The floor is `soopf_jax.studies.cost.fit_step_flops` divided by the rate of JAX's own 4096 x 1024 x 1024 product
in the same round.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from jax.sharding import Mesh

sys.path.insert(0, str(Path(__file__).parent))  # `python -m` and the tests need this to find torch_loops

import torch_loops

from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.arms import make_arms
from soopf_jax.fitting import schedule
from soopf_jax.fitting.devices import EVERYWHERE, lane_meshes, mesh_for, put, share, threads, to_host
from soopf_jax.fitting.group import Group, make_group
from soopf_jax.fitting.lanes import side_by_side
from soopf_jax.fitting.prepare import PreparedTable, dims_of, prepare_table
from soopf_jax.fitting.program import FitState, Training, advance, init
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.train import CHUNKS
from soopf_jax.grid import Grid
from soopf_jax.runtime import cli
from soopf_jax.studies import cost
from soopf_jax.types import FeatureTable, Json

GRID = Grid.of(["floor", "wall", "object"], ["hue", "invert", "pattern"])
PAIRS_PER_CELL = 13
FITS_PER_SEED = 45
PROTOCOL = Protocol()
STEPS = np.int32(0), np.int32(0)
"""The first and the last step, for compilation. Their values do not matter."""
ARM = make_arms("soopf", ["factorial"])[0]
SEQUENTIAL, PRECOMPUTED, BATCHED = "torch, one fit", "torch, one fit, LN precomputed", "torch, 45 fits in bmm"
SPEEDUPS = {
    "speedup_vs_torch": SEQUENTIAL,
    "speedup_vs_torch_precomputed": PRECOMPUTED,
    "speedup_vs_torch_batched": BATCHED,
}


@dataclass(frozen=True)
class Options:
    """Measure the trainer against PyTorch and against the machine's limit."""

    quick: bool = False
    """Measure only one F, in fewer and shorter rounds. This takes less than 50 s on two idle cores."""
    fits: tuple[int, ...] = (1, 9, 45, 90, 450)
    """Numbers of fits. A seed of the protocol has 45. A group of 45 in each lane of the trainer is always included."""
    patches: int = 196
    """N of the large tokens."""
    channels: int = 1024
    """D of the large tokens."""
    small_patches: int = 64
    """N of the small tokens."""
    small_channels: int = 48
    """D of the small tokens."""
    rounds: int = 5
    """How often each method is measured."""
    seconds: float = 2.0
    """Approximate time of one measurement."""
    steps_per_call: int = PROTOCOL.steps // CHUNKS
    """The smallest number of JAX steps in a measurement, which is one call. Each call allocates its memory anew. In the
    trainer, a call has 20 steps."""
    json: str = ""
    """Write all results as JSON to this file, or to stdout for -, in which case the table goes to stderr."""
    plot: str = ""
    """Draw fits per second against F into this file, FILE.png or FILE.svg."""


class Method(NamedTuple):
    """A way to train some fits together."""

    fits: int
    run: Callable[[int], None]
    """Takes this many steps and waits until they are done."""
    compile_seconds: float | None = None
    least_steps: int = 1
    lanes: int = 1
    """How many groups of fits it trains side by side."""


def main(args: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    options = parse(args)
    out = sys.stderr if options.json == "-" else sys.stdout
    document: dict[str, Any] = {"machine": machine(), "versions": versions()}
    document |= {"rounds": options.rounds, "steps_per_call": options.steps_per_call}
    if document["machine"]["load"] > 0.5:
        load = document["machine"]["load"]
        print(
            f"warning: the load is {load:.1f}; a busy machine slows PyTorch's threads most, which favours JAX",
            file=sys.stderr,
        )
    sizes = {
        "large_tokens": (options.patches, options.channels),
        "small_tokens": (options.small_patches, options.small_channels),
    }
    # --quick compiles both sections side by side to save time. Its compile times are then only approximate.
    methods = side_by_side(
        lambda size, _: methods_of(noise_table(*size), options.fits, options.steps_per_call),
        list(sizes.values()),
        2 if options.quick else 1,
    )
    for (key, size), (found, ours) in zip(sizes.items(), methods, strict=True):
        document[key] = section(*size, found, ours, options.rounds, options.seconds)
        print(text(document[key]), file=out, flush=True)
    document = document.pop("large_tokens") | document
    if options.plot:
        plot(document).savefig(options.plot)
    if options.json == "-":
        print(json.dumps(document, indent=1, allow_nan=False))
    elif options.json:
        Path(options.json).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


def parse(args: Sequence[str] | None) -> Options:
    """The options of the command line. `--quick` changes the defaults; explicit values take precedence."""
    arguments = list(sys.argv[1:] if args is None else args)
    quick = Options(quick=True, fits=(), rounds=3, seconds=0.2, steps_per_call=8)
    default = quick if "--quick" in arguments else Options()
    options = cli.parse(Options, "benchmarks.throughput", arguments, default)
    for count in options.fits:
        if count < 1 or (count > FITS_PER_SEED and count % FITS_PER_SEED):
            raise UserError(f"--fits must be 1 to {FITS_PER_SEED}, or whole seeds of {FITS_PER_SEED}, not {count}")
    sizes = options.patches, options.channels, options.small_patches, options.small_channels
    if min(options.rounds, options.steps_per_call, *sizes) < 1:
        raise UserError("--rounds, --steps-per-call and the sizes of tokens must be at least 1")
    for file in (options.json, options.plot):
        if not Path(file).parent.is_dir():
            raise UserError(f"there is no folder {Path(file).parent}; make it or choose another file")
    return options


# ------------------------------------------------------------------------------------------------ methods


def noise_table(patches: int, channels: int) -> FeatureTable:
    """Random tokens of the given size. Training takes the same time as on real tokens."""
    cell = np.repeat(np.arange(GRID.n_cells), PAIRS_PER_CELL).astype(np.int32)
    shape = (2, len(cell), patches, channels)
    source, delta = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return FeatureTable(source, delta, None, cell, GRID, {})


def training_of(table: FeatureTable, mesh: Mesh | None = None) -> Training:
    """The settings that the trainer's programs are compiled for, on one device unless `mesh` is given."""
    return Training(ARM, GRID, dims_of(table, PROTOCOL), PROTOCOL, mesh or one_device())


def groups_of(table: FeatureTable, count: int) -> list[Group]:
    """`count` fits in groups as in the trainer: one group per seed, of up to 45 fits, with held-out cells in turn."""
    number = np.arange(count, dtype=np.int32)
    seed, fit = np.divmod(number, FITS_PER_SEED)
    fits = Fits(seed, held_out=fit % GRID.n_cells, restart=fit // GRID.n_cells)
    return [make_group(table, ARM, PROTOCOL, fits, rows) for rows in number.reshape(seed[-1] + 1, 1, -1)]


def one_device() -> Mesh:
    """One device for the trainer, because the floor is that of one device."""
    return mesh_for(1, 1, jax.devices()[:1])


class Lane(NamedTuple):
    """The trainer's program for groups of one size, on one of the devices that run side by side."""

    compiled: Any
    prepared: PreparedTable
    mesh: Mesh
    seconds: float
    """The time of compilation."""


def compiled_lanes(
    table: FeatureTable, prepared: PreparedTable, start: FitState, group: Group, lanes: int
) -> list[Lane]:
    """Compile the training program for groups like `group` in each lane."""

    def lane(mesh: Mesh) -> Lane:
        here, begin = share(prepared, mesh), time.perf_counter()
        compiled = advance.compiled(training_of(table, mesh), start, here, group, *STEPS)
        return Lane(compiled, here, mesh, time.perf_counter() - begin)

    return [lane(mesh) for mesh in (lane_meshes(lanes) if lanes > 1 else (one_device(),))]


def jax_method(
    lanes: Sequence[Lane], starts: Sequence[FitState], groups: Sequence[Group], least_steps: int = 1
) -> Method:
    """A method that trains the groups with the JAX program. Groups are assigned to the lanes in turn."""
    states = [put(start, lanes[number % len(lanes)].mesh, EVERYWHERE) for number, start in enumerate(starts)]

    def train(first: int, steps: int) -> None:
        compiled, prepared, *_ = lanes[first]
        for number in range(first, len(groups), len(lanes)):
            states[number], losses = compiled(states[number], prepared, groups[number], STEPS[0], np.int32(steps))
            losses.block_until_ready()

    def run(steps: int) -> None:
        side_by_side(lambda first, _: train(first, steps), range(len(lanes)), len(lanes))

    fits = sum(group.held_out.size for group in groups)
    return Method(fits, run, lanes[0].seconds, least_steps, len(lanes))


def torch_method(loop: torch_loops.Loop, fits: int) -> Method:
    """A method that runs a PyTorch loop."""

    def run(steps: int) -> None:
        for number in range(steps):
            loop.step(number)

    return Method(fits, run)


def methods_of(table: FeatureTable, counts: Sequence[int], steps_per_call: int) -> tuple[dict[str, Method], str]:
    """All methods by name, and the name of the one that matches the trainer: a group in each lane."""
    prepared, start = prepare_table(table, ARM.readout, mesh=one_device()), partial(init, training_of(table))
    measured = FITS_PER_SEED * schedule.lanes(threads())
    (seed,) = groups_of(table, FITS_PER_SEED)
    task = torch_loops.task_of(table, seed, start(seed).params, PROTOCOL)
    methods = {
        SEQUENTIAL: torch_method(torch_loops.sequential(task, 0), 1),
        PRECOMPUTED: torch_method(torch_loops.sequential(task, 0, precomputed=True), 1),
        BATCHED: torch_method(torch_loops.batched(task), FITS_PER_SEED),
    }
    for count in sorted({*counts, measured}):
        groups = groups_of(table, count)
        starts = [to_host(start(group)) for group in groups]
        lanes = compiled_lanes(table, prepared, starts[0], groups[0], schedule.lanes(len(groups)))
        methods[jax_name(count)] = jax_method(lanes, starts, groups, steps_per_call)
    return methods, jax_name(measured)


def jax_name(count: int) -> str:
    """`jax, 45 fits`."""
    return f"jax, {count} fit{'s' * (count > 1)}"


# ----------------------------------------------------------------------------------------------- measuring


def timed(run: Callable[[int], None], steps: int) -> float:
    """Seconds for that many steps."""
    begin = time.perf_counter()
    run(steps)
    return time.perf_counter() - begin


def section(
    patches: int, channels: int, methods: Mapping[str, Method], ours: str, rounds: int, seconds: float
) -> dict[str, Any]:
    """All methods on tokens of one size; `ours` is the one whose ratios to the others are asked for."""
    for method in methods.values():
        method.run(1)  # what a first step allocates
    steps = {name: max(steps_in(seconds, timed(m.run, 1)), m.least_steps) for name, m in methods.items()}
    rates, times = [], []
    for _ in range(rounds):
        rates.append(cost.machine_rate(min(seconds, 1.0)))
        row = {}
        for name, method in methods.items():
            if steps[name] == 1:
                method.run(1)  # warms up the caches and threads after the previous method
            row[name] = 1e3 * timed(method.run, steps[name]) / (steps[name] * method.fits)
        times.append(row)
    compiled = {name: m.compile_seconds for name, m in methods.items() if m.compile_seconds is not None}
    work = cost.Work(1, 1, PROTOCOL.batch_size, patches, channels, GRID.n_supports, GRID.n_operations, PROTOCOL.hidden)
    return summary(times, rates, cost.fit_step_flops(work), ours) | {
        "sizes": work._asdict(),
        "compile_seconds": compiled,
    }


def steps_in(seconds: float, step: float) -> int:
    """How many steps of that duration fill the time, at least 1 and at most those of the protocol."""
    return min(max(1, round(seconds / step)), PROTOCOL.steps)


def summary(times: Sequence[Mapping[str, float]], rates: Sequence[float], flops: float, name: str) -> dict[str, Any]:
    """The medians over rounds of all times, and of the ratios within each round.

    Args:
        times: For each round, the ms per fit-step of each method.
        rates: For each round, the rate of a product in operations per second.
        flops: The operations of a fit-step.
        name: The method that is compared with the floor and the PyTorch loops.
    """
    ours = [row[name] for row in times]
    floors = [1e3 * flops / rate for rate in rates]
    speedups = {
        key: statistics.median(row[other] / our for row, our in zip(times, ours, strict=True))
        for key, other in SPEEDUPS.items()
    }
    return {
        "ratio_to_floor": statistics.median(our / floor for our, floor in zip(ours, floors, strict=True)),
        **speedups,
        "ours": name,
        "ms_per_fit_step": {name: statistics.median(row[name] for row in times) for name in times[0]},
        "floor_ms_per_fit_step": statistics.median(floors),
        "gemm_gflops": statistics.median(rates) / 1e9,
    }


def machine() -> Json:
    """The machine that the measurements were made on."""
    environment = results.environment()
    kept = {name: environment[name] for name in ("machine", "platform", "device", "devices")}
    return kept | {"cores": os.cpu_count(), "torch_threads": torch.get_num_threads(), "load": os.getloadavg()[0]}


def versions() -> Json:
    """The versions of all software that was measured."""
    environment = results.environment()
    return {"python": environment["python"], **environment["packages"], "torch": torch.__version__}


# ----------------------------------------------------------------------------------------------- reporting


def text(part: Json) -> str:
    """The table of one section."""
    sizes, floor = part["sizes"], part["floor_ms_per_fit_step"]
    lines = [
        "N = {patches}, D = {channels}, B = {batch}, S = {supports}, O = {operations}, H = {hidden};".format(**sizes)
        + f" product at {part['gemm_gflops']:.0f} GFLOP/s",
        f"{'':<32}{'ms/fit-step':>12}{'x floor':>10}{'fits/s':>10}{'compile':>10}",
    ]
    for name, ms in {**part["ms_per_fit_step"], "floor": floor}.items():
        compiled = f"{part['compile_seconds'][name]:8.1f} s" if name in part["compile_seconds"] else ""
        lines.append(f"{name:<32}{ms:>12.3f}{ms / floor:>10.2f}{fits_per_second(ms):>10.3g}{compiled:>10}")
    gains = "; ".join(f"{part[key]:.1f} ({name})" for key, name in SPEEDUPS.items())
    lines.append(f"{part['ours']}: {part['ratio_to_floor']:.2f} x the floor; times as fast as {gains}\n")
    return "\n".join(lines)


def fits_per_second(ms_per_fit_step: float) -> float:
    """Complete fits per second, of as many steps as the protocol has."""
    return 1e3 / (ms_per_fit_step * PROTOCOL.steps)


def plot(document: Json) -> Any:
    """A matplotlib figure of fits per second against fits trained together, with a panel per size of tokens."""
    from matplotlib.figure import Figure  # takes half a second to import, and only plots need it
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, part in zip(figure.subplots(1, 2), (document, document["small_tokens"]), strict=True):
        speed = {name: fits_per_second(ms) for name, ms in part["ms_per_fit_step"].items()}
        ours = {int(name.split()[1]): value for name, value in speed.items() if name.startswith("jax")}
        axes.plot(list(ours), list(ours.values()), "o-", label="JAX")
        for name, count, marker in ((SEQUENTIAL, 1, "s"), (PRECOMPUTED, 1, "^"), (BATCHED, FITS_PER_SEED, "D")):
            axes.plot(count, speed[name], marker, label=name)
        axes.axhline(fits_per_second(part["floor_ms_per_fit_step"]), color="grey", linestyle="--", label="floor")
        axes.set(xscale="log", yscale="log", xlabel="fits, F", xticks=sorted({1, *ours}))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.minorticks_off()
        axes.set_title("N = {patches}, D = {channels}".format(**part["sizes"]))
    figure.axes[0].set_ylabel("fits per second")
    figure.axes[1].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    sys.exit(cli.run(main))
