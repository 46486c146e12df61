"""The support x operation grid: its names, its cell numbers and its combinations of cells."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from soopf_jax.errors import UserError

MIN_PAIRS_PER_CELL = 5
"""The smallest number that can be split into optimisation, validation and test pairs."""


@dataclass(frozen=True)
class Grid:
    """Supports (where) x operations (what). A cell's number is `support * n_operations + operation`."""

    supports: tuple[str, ...]
    operations: tuple[str, ...]

    def __post_init__(self) -> None:
        for axis, names in (("support", self.supports), ("operation", self.operations)):
            if len(names) < 2:
                raise UserError(f"a grid needs at least two {axis}s, not {len(names)}; add {axis} names")
            if len(set(names)) < len(names):
                raise UserError(f"{axis} names must differ, not {', '.join(names)}; rename the repeated ones")
            if not all(names):
                raise UserError(f"a {axis} has an empty name; name every {axis}")
            # Names come from files and are printed, and a terminal would obey control characters.
            if strange := [name for name in names if not name.isprintable()]:
                raise UserError(f"{axis} name {strange[0]!a} has characters that cannot be printed; rename it")

    @classmethod
    def of(cls, supports: Sequence[str], operations: Sequence[str]) -> "Grid":
        """A grid from any two sequences of names."""
        return cls(tuple(map(str, supports)), tuple(map(str, operations)))

    @property
    def n_supports(self) -> int:
        """S, the number of supports."""
        return len(self.supports)

    @property
    def n_operations(self) -> int:
        """O, the number of operations."""
        return len(self.operations)

    @property
    def n_cells(self) -> int:
        """C = S * O, the number of cells."""
        return self.n_supports * self.n_operations

    @property
    def cell_names(self) -> tuple[str, ...]:
        """`floor/hue` and so on, in the order of the cell numbers."""
        return tuple(f"{s}/{o}" for s in self.supports for o in self.operations)

    def cell(self, support: int, operation: int) -> int:
        """The number of the cell (support, operation)."""
        return support * self.n_operations + operation

    def axes(self, cell: Any) -> tuple[Any, Any]:
        """(support, operation) of a cell number or, elementwise, of an array of cell numbers."""
        return cell // self.n_operations, cell % self.n_operations

    def combinations(self, n_edits: int) -> tuple[tuple[int, ...], ...]:
        """The sets of `n_edits` cells with different supports, in order. Two edits on a 3 x 3 grid have 27."""
        sets = itertools.combinations(range(self.n_cells), n_edits)
        return tuple(cells for cells in sets if len({self.axes(cell)[0] for cell in cells}) == n_edits)

    def edited_supports(self, n_edits: int) -> list[list[bool]]:
        """Which supports the cells of each combination edit, in the order of `combinations`."""
        edited = [{self.axes(cell)[0] for cell in cells} for cells in self.combinations(n_edits)]
        return [[support in supports for support in range(self.n_supports)] for supports in edited]

    def combination_names(self, n_edits: int) -> tuple[str, ...]:
        """`floor/hue+wall/invert` and so on, in the order of `combinations`; for one edit, the names of the cells."""
        names = self.cell_names
        return tuple("+".join(names[cell] for cell in cells) for cells in self.combinations(n_edits))
