"""The kernels of a program that XLA has compiled for a GPU, and the shortest time in which the device can run them.

In: the optimised HLO as text (`compiled.as_text()`). Out: for each kernel its floating-point operations and the bytes
that it moves, and from these a roofline. A roofline is a lower bound on the time, not an estimate of it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from soopf_jax.fitting.targets import Target

SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4}
SIZES |= {"s64": 8, "u64": 8, "f64": 8}
"""Bytes of a number of each type."""
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
"""Instructions that launch nothing."""
PARTIAL_READS = {"gather", "dynamic-slice", "slice"}
"""Instructions that read only as much of their first operand as they return."""

_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Instruction(NamedTuple):
    """One line of HLO."""

    name: str
    shape: str
    """The result's type, such as `f32[2,3]{1,0}` or a tuple of them."""
    operation: str
    operands: tuple[str, ...]
    rest: str
    """The line after the opening parenthesis."""
    is_root: bool

    @property
    def called(self) -> str | None:
        """The computation that it runs, if it runs one."""
        found = _CALLED.search(self.rest)
        return found[1] if found else None


class Module(NamedTuple):
    """A compiled program."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str


class Kernel(NamedTuple):
    """One kernel, as often as the program launches it."""

    name: str
    kind: str
    """`product`, `loop`, `reduction`, or the name of the instruction."""
    flops: float
    """Operations of the matrix products in one launch."""
    bytes: float
    """Bytes that one launch reads and writes, if nothing stays in a cache from the launch before."""
    launches: int = 1


class Roofline(NamedTuple):
    """What the kernels of a program, or of one step of it, need at least."""

    kernels: int
    """Launches."""
    flops: float
    bytes: float
    seconds: float
    """The sum over kernels of the longer of the two times: that of its products and that of its memory traffic."""
    memory_bound: float
    """The share of this time in kernels whose memory traffic takes longer than their products."""


def parse(text: str) -> Module:
    """Read HLO text."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif current is not None and (found := _INSTRUCTION.match(line)):
            root, name, shape, operation, rest = found.groups()
            operands = tuple(re.findall(r"%([\w.\-]+)", _between_parentheses(rest)))
            current.append(Instruction(name, shape, operation, operands, rest, bool(root)))
    return Module(computations, entry)


def kernels_of(module: Module, per_step: bool = False) -> list[Kernel]:
    """The kernels that a program launches.

    Args:
        module: The program.
        per_step: Whether to count one pass through the loop whose number of passes is not known to the compiler,
            which is the loop over training steps, and nothing outside of it.
    """
    return list(_walk(module, _step_loop(module) if per_step else module.entry, 1))


def collectives(module: Module) -> dict[str, int]:
    """How many instructions of each kind exchange data between devices."""
    operations = [i.operation.removesuffix("-start") for c in module.computations.values() for i in c]
    return {name: operations.count(name) for name in COLLECTIVES if name in operations}


def roofline(kernels: Sequence[Kernel], target: Target, precision: str = "float32") -> Roofline:
    """The least time of these kernels on a device, with products at the device's peak rate in this precision."""
    rate = target.rates[precision]
    times = [(k.launches * k.flops / rate, k.launches * k.bytes / target.bandwidth) for k in kernels]
    total = sum(max(pair) for pair in times)
    waiting = sum(traffic for products, traffic in times if traffic >= products)
    return Roofline(
        sum(k.launches for k in kernels),
        sum(k.launches * k.flops for k in kernels),
        sum(k.launches * k.bytes for k in kernels),
        total,
        waiting / total if total else 0.0,
    )


# ---------------------------------------------------------------------------------------------- of one instruction


def _walk(module: Module, computation: str, times: int) -> Iterator[Kernel]:
    """The kernels of a computation, and of those that it calls."""
    instructions = module.computations[computation]
    shapes = {i.name: i.shape for i in instructions}
    for instruction in instructions:
        operation, called = instruction.operation, instruction.called
        if operation in FREE:
            continue
        if operation in ("call", "while", "async-start") and called:
            passes = _TRIPS.search(instruction.rest)
            yield from _walk(module, called, times * (int(passes[1]) if passes else 1))
        elif operation == "conditional":
            for branch in re.findall(r"%([\w.\-]+)", instruction.rest.partition("branch_computations={")[2]):
                if branch in module.computations:
                    yield from _walk(module, branch, times)
        else:
            flops = _flops(module, instruction, shapes)
            kind = "product" if flops else _kind(instruction)
            yield Kernel(instruction.name, kind, flops, _traffic(module, instruction, shapes), times)


def _step_loop(module: Module) -> str:
    """The body of the loop with an unknown number of passes; where there are several, of the longest."""
    loops = [i for c in module.computations.values() for i in c if i.operation == "while" and not _TRIPS.search(i.rest)]
    bodies = [loop.called for loop in loops if loop.called]
    return max(bodies, key=lambda body: len(module.computations[body]), default=module.entry)


def _kind(instruction: Instruction) -> str:
    kinds = {"kind=kLoop": "loop", "kind=kInput": "reduction"}
    return next((kind for mark, kind in kinds.items() if mark in instruction.rest), instruction.operation)


def _flops(module: Module, instruction: Instruction, shapes: Mapping[str, str]) -> float:
    """Operations of the products in an instruction and in the computation that it fuses."""
    if instruction.operation == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
        return _product_flops(instruction, shapes, contracted[1] if contracted else "")
    if instruction.operation == "custom-call" and "gemm" in instruction.rest:
        contracted = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.rest)
        return _product_flops(instruction, shapes, contracted[1].replace('"', "") if contracted else "")
    if instruction.operation != "fusion" or instruction.called is None:
        return 0.0
    fused = module.computations[instruction.called]
    inside = {i.name: i.shape for i in fused}
    return sum(_flops(module, i, inside) for i in fused)


def _product_flops(product: Instruction, shapes: Mapping[str, str], contracted: str) -> float:
    left = _dimensions(shapes[product.operands[0]])
    inner = math.prod(left[int(axis)] for axis in contracted.split(",") if axis)
    return 2.0 * inner * math.prod(_dimensions(product.shape))


def _traffic(module: Module, instruction: Instruction, shapes: Mapping[str, str]) -> float:
    """Bytes that an instruction reads and writes."""
    fused = module.computations[instruction.called] if instruction.operation == "fusion" and instruction.called else ()
    written = _written(instruction, fused)
    if instruction.operation in PARTIAL_READS:
        return written + _bytes(instruction.shape)
    parameters = {int(i.rest.partition(")")[0]): i.name for i in fused if i.operation == "parameter"}
    read = 0
    for number, operand in enumerate(instruction.operands):
        if operand in shapes:
            read += _read(fused, parameters.get(number), _bytes(shapes[operand]))
    return float(written + read)


def _read(fused: Sequence[Instruction], parameter: str | None, whole: int) -> int:
    """Bytes that a fusion reads of one operand: what its slices and gathers take, if nothing else reads it."""
    same = {parameter}
    for instruction in fused:
        if instruction.operation == "bitcast" and same & set(instruction.operands):
            same.add(instruction.name)
    readers = [i for i in fused if same & set(i.operands) and i.name not in same]
    in_part = [i for i in readers if i.operation in PARTIAL_READS and i.operands[0] in same]
    updated = [i for i in readers if i.operation == "dynamic-update-slice" and i.operands[0] in same]
    if readers and len(in_part) + len(updated) == len(readers):
        return sum(_bytes(i.shape) for i in in_part)
    return whole


def _written(instruction: Instruction, fused: Sequence[Instruction]) -> int:
    """Bytes that an instruction writes. An update of a slice is written in place."""
    shapes = {i.name: i.shape for i in fused}
    root = next((i for i in fused if i.is_root), None)
    if root is not None and root.operation == "dynamic-update-slice":
        return _bytes(shapes[root.operands[1]])
    return _bytes(instruction.shape)


# ------------------------------------------------------------------------------------------------------- of shapes


def _bytes(shape: str) -> int:
    """Bytes of an array or of a tuple of arrays."""
    arrays = _ARRAY.findall(shape)
    return sum(SIZES.get(kind, 0) * math.prod(map(int, filter(None, sizes.split(",")))) for kind, sizes in arrays)


def _dimensions(shape: str) -> list[int]:
    found = _ARRAY.search(shape)
    return [int(size) for size in found[2].split(",") if size] if found else []


def _between_parentheses(rest: str) -> str:
    """The text before the parenthesis that closes the list of operands."""
    depth = 1
    for position, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return rest[:position]
    return rest
