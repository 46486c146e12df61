"""Compiles the programs for GPUs on a machine without one, and says what they need: `make gpu-check`.

    build/gpu/bin/python benchmarks/gpu_check.py                      # everything, against benchmarks/gpu_baseline.json
    build/gpu/bin/python benchmarks/gpu_check.py --only "h100 196x1024 soopf/learned/core" --json -
    build/gpu/bin/python benchmarks/gpu_check.py --update             # make what is found the new baseline

It needs JAX's CUDA packages (5.6 GB) but no GPU. A row is a program of a case: a target, a size of tokens, an arm and a
number of devices, with the fits of the whole protocol. The exit code is 1 if a program does not compile, if fits
exchange data between devices, or if a program needs over 5 % more kernels, bytes or temporary memory than the baseline
says. Times are rooflines: lower bounds from the vendor's figures. Nothing is executed.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

os.environ["JAX_PLATFORMS"] = "cpu"  # there is no driver here; only the compiler of the CUDA packages is used

import jax
import numpy as np
import tyro

from soopf_jax import plugins
from soopf_jax.experiments.arms import make_arms
from soopf_jax.fitting import footprint, kernels, prepare, targets
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.footprint import Call
from soopf_jax.fitting.group import make_group
from soopf_jax.fitting.prepare import PAIRS_AT_ONCE, Preparation, prepared_shapes, table_of_zeros
from soopf_jax.fitting.program import energies
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.fitting.train import Job, groups_and_meshes
from soopf_jax.grid import Grid
from soopf_jax.plugins import resolve
from soopf_jax.runtime import atomic, cli

BASELINE = Path(__file__).with_name("gpu_baseline.json")
TOLERANCE = 0.05
"""How much more than in the baseline a program may need."""
GUARDED = ("kernels", "bytes", "temporaries")
"""The numbers of a row that are compared with the baseline."""
GRID = Grid.of(["floor", "wall", "object"], ["hue", "invert", "pattern"])
PAIRS_PER_CELL = 350
SIZES = {"196x1024": (196, 1024), "256x1024": (256, 1024)}
"""(N, D) of DINOv3 and of SigLIP2, both ViT-L."""
RATES = {"highest": "float32", "high": "tf32", "default": "tf32"}
"""The precision that XLA computes in on a GPU, by the value of --matmul-precision."""


@dataclass(frozen=True)
class Options:
    """Compile the programs for GPUs and compare what they need with the baseline."""

    only: Annotated[str, tyro.conf.arg(metavar="TEXT")] = ""
    """Check only cases whose name contains this text."""
    program: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Check only this program, such as advance."""
    json: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Also write the rows as JSON; `-` for stdout."""
    hlo: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Also write the optimised HLO of every program there."""
    update: bool = False
    """Write what is found into the baseline."""
    list: bool = False
    """Only list the cases."""


class Case(NamedTuple):
    """What is compiled."""

    target: str
    size: str
    readout: str
    assignment: str
    objective: str
    devices: int = 1
    hosts: int = 1
    precision: str = "highest"
    programs: tuple[str, ...] = ("advance", "evaluate")
    """The programs that are compiled; none: all."""

    @property
    def name(self) -> str:
        """`h100 196x1024 soopf/learned/core`, with what differs from one device and the usual precision."""
        arm = "/".join((self.readout, self.assignment, self.objective))
        many = f" x{self.devices}" if self.devices > 1 else ""
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        precision = f" {self.precision}" if self.precision != "highest" else ""
        return f"{self.target} {self.size} {arm}{many}{hosts}{precision}"


class Row(NamedTuple):
    """What one program of a case needs."""

    case: str
    program: str
    seconds: float = 0.0
    """Time of the compilation here."""
    arguments: int = 0
    temporaries: int = 0
    needed: int = 0
    """Bytes that are on a device at once while it runs."""
    kernels: int = 0
    """Launches in a step of `advance`, and in a whole call of any other program."""
    flops: float = 0.0
    bytes: float = 0.0
    roofline: float = 0.0
    """Seconds."""
    memory_bound: float = 0.0
    collectives: int = 0
    error: str = ""


def main(args: Sequence[str] | None = None) -> None:
    """Compile, print, compare. Exits with 1 if something is wrong."""
    options = cli.parse(Options, "benchmarks.gpu_check", args, Options())
    wanted = [case for case in cases() if options.only in case.name]
    if options.list:
        print("\n".join(case.name for case in wanted))
        return
    rows = []
    print(header())
    for case in wanted:
        for row in check(case, options):
            rows.append(row)
            print(line(row), flush=True)
    if options.json:
        write_json(rows, options.json)
    baseline = read_baseline(BASELINE)
    trouble = complaints(rows, baseline)
    print(
        "\n".join(["", *trouble]) if trouble else f"\n{len(rows)} programs compile; none needs more than the baseline"
    )
    if options.update:
        atomic.write_bytes(BASELINE, baseline_text(baseline, rows).encode())
    if any(row.error or row.collectives for row in rows) or (trouble and not options.update):
        sys.exit(1)


# ---------------------------------------------------------------------------------------------------- what is asked


def cases() -> Iterator[Case]:
    """Everything that is checked. Each part varies alone; the usual case is SO-OPF on DINOv3's tokens on an H100."""
    usual = Case("h100", "196x1024", "soopf", "learned", "core")
    for target in targets.TARGETS:
        for size in SIZES:
            case = usual._replace(target=target, size=size)
            yield case if case != usual else case._replace(programs=())
    for precision in ("high", "default"):
        yield usual._replace(precision=precision, programs=("advance",))
    for devices, hosts in ((2, 1), (8, 1), (8, 2)):
        yield usual._replace(devices=devices, hosts=hosts)
    for readout, assignment, objective in arms():
        case = usual._replace(readout=readout, assignment=assignment, objective=objective)
        if case != usual:
            yield case


def arms() -> Iterator[tuple[str, str, str]]:
    """Every readout, assignment and objective of the project."""
    for readout in plugins.READOUTS:
        if resolve("readout", plugins.READOUTS, readout).labels == "native":
            yield readout, "native", "native"
        elif readout == "soopf":
            named = [name for name in plugins.ASSIGNMENTS if name != "native"]
            yield from ((readout, name, objective) for name in named for objective in ("core", "enhanced"))
        else:
            yield readout, "learned", "core"


def check(case: Case, options: Options) -> Iterator[Row]:
    """Compile the programs of a case."""
    for name, call in calls_of(case).items():
        if options.program in ("", name) and (not case.programs or name in case.programs):
            text, row = compile_call(case, name, call)
            if options.hlo and text:
                path = Path(options.hlo) / f"{case.name.replace('/', '-').replace(' ', '_')}.{name}.hlo"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            yield row


def calls_of(case: Case) -> dict[str, Call]:
    """The programs of a case with the shapes of their arguments."""
    protocol = Protocol(matmul_precision=case.precision)
    arm: Arm = make_arms(case.readout, [case.assignment], case.objective)[0]
    cell = np.repeat(np.arange(GRID.n_cells, dtype=np.int32), PAIRS_PER_CELL)
    table = table_of_zeros(cell, GRID, *SIZES[case.size])
    fits = leave_one_cell_out(GRID, protocol)
    devices = targets.devices_of(targets.find(case.target), case.devices, case.hosts)
    groups, (mesh,) = groups_and_meshes(fits, len(fits.seed), 1, devices)
    prepared = prepared_shapes(table, arm.readout, mesh)
    spec = Job(arm, table, prepared, protocol, fits).training(mesh)
    group = jax.eval_shape(lambda: make_group(table, arm, protocol, fits, groups[0].row))
    region = table.region.shape if table.region is not None else None
    found = footprint.calls(spec, prepared, group, region)
    state = found["advance"].arguments[1]
    of_any_table = Call(energies, (spec, state, prepared), found["advance"].held)
    return {"prepare": prepare_call(table, arm, mesh), **found, "energies": of_any_table}


def prepare_call(table: Any, arm: Arm, mesh: Any) -> Call:
    """The preparation of one block of pairs."""
    views = prepare.views_of(table, arm.readout)
    shapes = prepared_shapes(table, arm.readout, mesh)
    block = jax.tree.map(lambda c: jax.ShapeDtypeStruct((PAIRS_AT_ONCE, *c.shape[1:]), c.dtype), views)
    number, factor = jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((), np.float32)
    spec = Preparation(arm.readout, False, False, len(table.cell), mesh)
    rows = (shapes.inputs, shapes.changed, shapes.change)
    return Call(prepare.prepare_block, (spec, rows, block, factor, number))


def compile_call(case: Case, name: str, call: Call) -> tuple[str, Row]:
    """The HLO of a program and what it needs, or why it does not compile."""
    begin = time.perf_counter()
    try:
        compiled = call.program.compiled(*call.arguments)
    except Exception as error:  # any failure of the compiler is a finding
        return "", Row(case.name, name, error=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    seconds = time.perf_counter() - begin
    text, memory = compiled.as_text() or "", cast("Any", compiled.memory_analysis())
    module = kernels.parse(text)
    found = kernels.kernels_of(module, per_step=name == "advance")
    least = kernels.roofline(found, targets.find(case.target), RATES[case.precision])
    return text, Row(
        case.name,
        name,
        round(seconds, 1),
        int(memory.argument_size_in_bytes),
        int(memory.temp_size_in_bytes),
        footprint.bytes_needed(compiled, call.held),
        least.kernels,
        least.flops,
        least.bytes,
        least.seconds,
        least.memory_bound,
        sum(kernels.collectives(module).values()),
    )


# --------------------------------------------------------------------------------------------------- what is said


def header() -> str:
    """The names of the columns."""
    return (
        f"{'case':<46} {'program':<13}{'compile':>8} {'arguments':>10} {'temporary':>10} {'needed':>9} {'kernels':>8}"
        f" {'GFLOP':>9} {'moved':>9} {'roofline':>10}  bound by"
    )


def line(row: Row) -> str:
    """A row of the table."""
    if row.error:
        return f"{row.case:<46} {row.program:<13} {row.error}"
    bound = f"memory {row.memory_bound:.0%}" if row.memory_bound >= 0.5 else f"products {1 - row.memory_bound:.0%}"
    exchanged = f", {row.collectives} COLLECTIVES" if row.collectives else ""
    return (
        f"{row.case:<46} {row.program:<13}{row.seconds:>6.1f} s {row.arguments / 1e9:>7.2f} GB"
        f" {row.temporaries / 1e9:>7.2f} GB {row.needed / 1e9:>6.2f} GB {row.kernels:>8,} {row.flops / 1e9:>9,.1f}"
        f" {row.bytes / 1e9:>6.2f} GB {1e3 * row.roofline:>7.2f} ms  {bound}{exchanged}"
    )


def write_json(rows: Sequence[Row], path: str) -> None:
    """The rows as JSON."""
    text = json.dumps({"jax": jax.__version__, "executed": False, "rows": [row._asdict() for row in rows]}, indent=1)
    if path == "-":
        print(text)
    else:
        atomic.write_bytes(Path(path), text.encode())


# ------------------------------------------------------------------------------------------------- the baseline


def read_baseline(path: Path) -> dict[str, dict[str, float]]:
    """The guarded numbers of every program by its case and name; empty if there is no such file."""
    return json.loads(path.read_text())["programs"] if path.exists() else {}


def complaints(rows: Sequence[Row], baseline: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is worse than in the baseline, or wrong in itself."""
    found = []
    for row in rows:
        name, before = f"{row.case}: {row.program}", baseline.get(f"{row.case}: {row.program}")
        if row.error:
            found.append(f"{name} does not compile: {row.error}")
        if row.collectives:
            found.append(f"{name} exchanges data between devices")
        for number in GUARDED if before and not row.error else ():
            now, then = getattr(row, number), before[number] if before else 0.0
            if now > (1 + TOLERANCE) * then + 1:
                found.append(f"{name}: {number} {then:,.0f} -> {now:,.0f}, {now / max(then, 1) - 1:+.0%}")
    return found


def baseline_text(baseline: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> str:
    """The baseline with these rows in place of their old ones, one program per line."""
    new = {
        f"{row.case}: {row.program}": {number: getattr(row, number) for number in GUARDED}
        for row in rows
        if not row.error
    }
    programs = dict(sorted((dict(baseline) | new).items()))
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in programs.items())
    return f'{{\n "jax": {json.dumps(jax.__version__)},\n "programs": {{\n{lines}\n }}\n}}\n'


if __name__ == "__main__":
    sys.exit(cli.run(main))
