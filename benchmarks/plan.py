"""Estimates how long a study would take on accelerators and on this machine, from its operations and bytes.

    python benchmarks/plan.py                                             # the paper's protocol on DINOv3 features
    python benchmarks/plan.py --seeds 100 --encoders 1000 --grid 10x10 --devices 1 8 64 256
    python benchmarks/plan.py --encoder pixels --precision tf32 --efficiency 0.3

On accelerators, a roofline gives the time of a fit-step: the longer of its products at the vendor's peak rate and its
memory traffic at the vendor's bandwidth, divided by `--efficiency`. Each step of a program also takes `--overhead-us`
to launch. Fits are independent, so they are divided evenly among the devices. None of this was measured, because no
accelerator was available. For this machine, the rate of a matrix product is measured now and combined with the ratios
to the floor in `soopf_jax.studies.cost`.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.fitting.protocol import pairs_per_batch
from soopf_jax.fitting.targets import TARGETS, Target
from soopf_jax.grid import Grid
from soopf_jax.runtime import cli
from soopf_jax.studies import cost

PIXELS = (64, 48)
"""(N, D) of the encoder `pixels` on 64-pixel images."""
UNITS = (("y", 365.25 * 86400), ("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


@dataclass(frozen=True)
class Options:
    """Estimate the time of a study."""

    encoder: str = "dinov3"
    """A named encoder of the benchmark. All encoders of the study are assumed to have tokens of its size."""
    patches: int = 0
    """N, for an encoder that has no name here."""
    channels: int = 0
    """D, for an encoder that has no name here."""
    encoders: int = 1
    """The number of encoders."""
    arms: int = 3
    """Arms per encoder."""
    seeds: int = 10
    """Seeds per arm."""
    restarts: int = 5
    """Fits per seed and held-out cell."""
    steps: int = 2000
    """Adam steps per fit."""
    batch_size: int = 64
    """Pairs per step."""
    grid: str = "3x3"
    """The size of the grid, as SUPPORTSxOPERATIONS."""
    pairs_per_cell: int = 350
    """Pairs of images per cell."""
    device: str = "h100"
    """The accelerator: h100 or a100."""
    devices: tuple[int, ...] = (1, 8, 64, 256)
    """The numbers of accelerators to estimate for."""
    precision: str = "float32"
    """The precision of the products: float32 or tf32."""
    efficiency: float = 0.4
    """The assumed share of the peak rate or bandwidth."""
    overhead_us: float = 200.0
    """The assumed time to launch one step of a program, in microseconds."""
    json: bool = False
    """Print JSON instead of the table."""


class Study(NamedTuple):
    """The total work of a study."""

    arm: cost.Work
    """One arm of one encoder."""
    fits_per_seed: int
    """Fits that share a minibatch."""
    arms: int
    """The number of arms of all encoders together."""
    encoders: int
    images: int
    """The number of images for each encoder."""
    vit: cost.Vit | None
    """The architecture of the encoders; None if the cost of encoding is zero or unknown."""

    @property
    def token_bytes(self) -> float:
        """The size of the source and content tokens of one encoder, in float32."""
        return float(self.images * self.arm.patches * self.arm.channels * cost.FLOAT_BYTES)

    @property
    def encode_flops(self) -> float:
        """The operations of the forward passes of all encoders."""
        return self.encoders * self.images * cost.forward_flops(self.vit) if self.vit else 0.0


class Estimate(NamedTuple):
    """Seconds of each stage."""

    encode: float
    compile: float
    train: float

    @property
    def total(self) -> float:
        """The sum, as the stages run one after the other."""
        return sum(self)


def main(args: Sequence[str] | None = None) -> None:
    """Estimate and print."""
    options = cli.parse(Options, "benchmarks.plan", args, Options())
    study, device = study_of(options), device_of(options)
    rate = cost.machine_rate()
    rows = {f"{count} x {device.name}": on_accelerators(study, device, options, count) for count in options.devices} | {
        "this machine": on_this_machine(study, rate)
    }
    if options.json:
        estimates = {name: {**row._asdict(), "total": row.total} for name, row in rows.items()}
        print(json.dumps({"estimate": True, "gemm_gflops": rate / 1e9, "seconds": estimates}, indent=1))
        return
    print(headline(study, device, options))
    print(f"\n{'':<24}{'encode':>12}{'compile':>12}{'train':>12}{'total':>12}")
    for name, row in rows.items():
        print(f"{name:<24}" + "".join(f"{duration(value):>12}" for value in (*row, row.total)))
    print(f"\nestimates; only this machine's product was measured: {rate / 1e9:.0f} GFLOP/s")


def study_of(options: Options) -> Study:
    """The study that the options describe.

    Raises:
        UserError: An option is wrong.
    """
    numbers = ("encoders", "arms", "seeds", "restarts", "steps", "batch_size", "pairs_per_cell", "efficiency")
    for name in numbers:
        if not 0 < getattr(options, name) < math.inf:
            raise UserError(f"--{name.replace('_', '-')} must be positive, not {getattr(options, name)}")
    if not options.devices or min(options.devices) < 1 or options.overhead_us < 0:
        raise UserError("--devices must be numbers of at least 1, and --overhead-us must not be negative")
    grid = grid_of(options.grid)
    patches, channels = tokens_of(options)
    fits_per_seed = grid.n_cells * options.restarts
    work = cost.Work(
        fits=options.seeds * fits_per_seed,
        steps=options.steps,
        batch=pairs_per_batch(grid, options.batch_size) * (grid.n_cells - 1),
        patches=patches,
        channels=channels,
        supports=grid.n_supports,
        operations=grid.n_operations,
    )
    images = 2 * options.pairs_per_cell * grid.n_cells
    arms = options.arms * options.encoders
    return Study(work, fits_per_seed, arms, options.encoders, images, cost.VITS.get(options.encoder))


def grid_of(sizes: str) -> Grid:
    """`3x3` as a grid."""
    try:
        supports, operations = (range(int(size)) for size in sizes.split("x"))
    except ValueError as error:
        raise UserError(f"--grid takes SUPPORTSxOPERATIONS, for example 3x3, not '{sizes}'") from error
    return Grid.of([f"s{i}" for i in supports], [f"o{i}" for i in operations])


def tokens_of(options: Options) -> tuple[int, int]:
    """(N, D) as given in the options, or those of the encoder."""
    if options.patches > 0 and options.channels > 0:
        return options.patches, options.channels
    if options.encoder == "pixels":
        return PIXELS
    if options.encoder not in cost.VITS:
        raise unknown_name("encoder", options.encoder, {*cost.VITS, "pixels"}, "; or give --patches and --channels")
    vit = cost.VITS[options.encoder]
    return vit.patches, vit.width


def device_of(options: Options) -> Target:
    """The accelerator of the options. A UserError if it does not exist or lacks the precision."""
    if options.device not in TARGETS:
        raise unknown_name("device", options.device, TARGETS)
    device = TARGETS[options.device]
    if options.precision not in device.rates:
        raise unknown_name("precision", options.precision, device.rates)
    return device


def roofline(arm: cost.Work, device: Target, precision: str, sharing: int) -> tuple[float, float]:
    """The seconds of a fit-step at the device's peak: (those of its products, those of its memory traffic)."""
    products = cost.fit_step_flops(arm) / device.rates[precision]
    return products, cost.fit_step_bytes(arm, sharing) / device.bandwidth


def on_accelerators(study: Study, device: Target, options: Options, count: int) -> Estimate:
    """The estimate for `count` devices, each with an equal share of all fits and images."""
    fits = math.ceil(study.arm.fits * study.arms / count)
    programs = math.ceil(study.arms / count)
    fit_step = max(roofline(study.arm, device, options.precision, min(study.fits_per_seed, fits))) / options.efficiency
    return Estimate(
        encode=study.encode_flops / (device.rates[options.precision] * options.efficiency * count),
        compile=programs * cost.COMPILE_SECONDS,
        train=study.arm.steps * (fits * fit_step + programs * options.overhead_us * 1e-6),
    )


def on_this_machine(study: Study, rate: float) -> Estimate:
    """The estimate for this machine, by the package's own cost model."""
    compile_all = study.arms * cost.COMPILE_SECONDS
    return Estimate(
        encode=study.encode_flops / (cost.ENCODER_EFFICIENCY * rate),
        compile=compile_all,
        train=study.arms * cost.seconds(study.arm, rate) - compile_all,
    )


def headline(study: Study, device: Target, options: Options) -> str:
    """The size of the study, and what limits a fit-step on the accelerator."""
    arm = study.arm
    products, traffic = roofline(arm, device, options.precision, study.fits_per_seed)
    lines = [
        f"ESTIMATE, not measured; encoders: {study.encoders:,}, arms: {study.arms:,}, fits: {study.arms * arm.fits:,},"
        f" {arm.steps:,} steps each; N = {arm.patches}, D = {arm.channels}, B = {arm.batch}, grid {options.grid}",
        f"a fit-step: {cost.fit_step_flops(arm) / 1e6:,.0f} MFLOP and"
        f" {cost.fit_step_bytes(arm, study.fits_per_seed) / 1e6:,.1f} MB; at the peak of {device.name}"
        f" {1e6 * products:.2f} us of {options.precision} products, {1e6 * traffic:.2f} us of memory traffic",
        f"assumed: {options.efficiency:.0%} of the peak, {options.overhead_us:g} us to launch a step,"
        f" {cost.COMPILE_SECONDS:g} s to compile an arm; rendering is left out",
        f"tokens of one encoder: {study.token_bytes / 1e9:.1f} GB of each device's {device.memory / 1e9:.0f} GB",
    ]
    if study.token_bytes > device.memory:
        lines.append("warning: the tokens do not fit into a device's memory; use fewer pairs per cell")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """`3.4 min`: the duration in the largest unit that it reaches."""
    name, unit = next(((name, unit) for name, unit in UNITS if seconds >= unit), UNITS[-1])
    return f"{seconds / unit:.1f} {name}" if seconds else "-"


if __name__ == "__main__":
    sys.exit(cli.run(main))
