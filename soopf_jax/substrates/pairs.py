"""What substrates share that make their own pairs: checked settings, a random stream for each pair, one edit or two.

A pair is drawn before it is rendered: a scene, the scene after those edits that change the scene, and the edits that
are laid over the pixels. Edits of one pair are on different supports and all start from the source, in no order.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int, Int8

from soopf_jax import edits
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.grid import Grid
from soopf_jax.types import ImagePairs, Json, SubstrateRequest

DEFAULT_OPERATIONS = ("hue", "invert", "pattern")
PAIRS_PER_COMBINATION = 20
"""Of two edits, by default: 540 test pairs on a 3 x 3 grid, where the held-back fifth of 350 per cell is 630."""

Region = Int8[np.ndarray, "height width"]
"""The support in each pixel, -1 for none."""
Pair = tuple[edits.Image, edits.Image, Region]
"""Source, edited image and region."""
Scene = TypeVar("Scene")
"""What a substrate makes a picture of."""

# -------------------------------------------------------------------------------------------- which pairs


class Plan(NamedTuple):
    """The pairs that a request asks for, in the order of their cells or, with two edits, combinations of cells."""

    grid: Grid
    pairs_per_cell: int
    data_seed: int
    n_edits: int = 1

    @property
    def cell(self) -> Int[np.ndarray, "pairs"]:
        """The cell of every pair; pair = cell * pairs_per_cell + number within the cell."""
        return np.repeat(np.arange(len(self.grid.combinations(self.n_edits))), self.pairs_per_cell)

    @property
    def settings(self) -> Json:
        """What a substrate's identity must say of its plan."""
        settings = {
            "operations": list(self.grid.operations),
            "pairs_per_cell": self.pairs_per_cell,
            "data_seed": self.data_seed,
        }
        return settings if self.n_edits == 1 else {**settings, "edits": self.n_edits}

    def edits_of(self, pair: int) -> list[tuple[int, str]]:
        """(support, name of the operation) of each edit of a pair."""
        cells = self.grid.combinations(self.n_edits)[pair // self.pairs_per_cell]
        return [(support, self.grid.operations[operation]) for support, operation in map(self.grid.axes, cells)]

    def random_stream(self, pair: int) -> np.random.Generator:
        """A pair's own random numbers: the same whatever other cells there are and however many pairs they have."""
        cell, number = divmod(pair, self.pairs_per_cell)
        seed = f"{self.data_seed}/{self.grid.combination_names(self.n_edits)[cell]}/{number}"
        digest = hashlib.sha256(seed.encode()).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def plan(
    request: SubstrateRequest,
    supports: Sequence[str],
    default_pairs_per_cell: int,
    operations: Sequence[str] = edits.OPERATIONS,
) -> Plan:
    """The plan of a request, checked; `operations` are all that the substrate knows."""
    asked = DEFAULT_OPERATIONS if request.operations is None else request.operations
    for operation in asked:
        if operation not in operations:
            raise unknown_name("operation", operation, operations)
    default = default_pairs_per_cell if request.edits == 1 else PAIRS_PER_COMBINATION
    pairs_per_cell = default if request.pairs_per_cell is None else request.pairs_per_cell
    if pairs_per_cell < 1:
        raise UserError(f"{pairs_per_cell} pairs per cell are too few; ask for at least 1")
    return Plan(Grid.of(supports, asked), pairs_per_cell, request.data_seed, request.edits)


def refuse(request: SubstrateRequest, *fields: str) -> None:
    """A UserError if a field that the substrate has no use for is not at its default."""
    for field in fields:
        if getattr(request, field) != SubstrateRequest._field_defaults[field]:
            option = f"--{field.replace('_', '-')}"
            raise UserError(f"dataset {request.name} has no use for {option}; leave {option} out")


def refuse_two_edits(request: SubstrateRequest) -> None:
    """A UserError from a substrate that edits one support at a time."""
    if request.edits != 1:
        works = "--edits two works on shapes3d-lite, shapes3d and mujoco"
        raise UserError(f"dataset {request.name} has no pairs with two edits; {works}")


# -------------------------------------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class Stage(Generic[Scene]):
    """How a substrate draws scenes and edits of them."""

    draw_scene: Callable[[np.random.Generator], Scene]
    """A random source scene."""
    scene_operations: Sequence[str]
    """Those operations that change the scene; the others are laid over the pixels."""
    change_scene: Callable[[Scene, int, str, np.random.Generator], Scene]
    """(scene, support, operation, stream) -> the scene after an edit, its parameters drawn."""
    stripes: edits.StripeRanges
    width: int
    """Of the images."""


@dataclass(frozen=True)
class Draw(Generic[Scene]):
    """A pair before anything is rendered."""

    scene: Scene
    """Of the source image."""
    changed: Scene
    """The scene after the edits that change it; the same object where there are none."""
    overlays: tuple[tuple[int, edits.Edit], ...]
    """(support, edit of its pixels)."""


def draw(plan: Plan, pair: int, stage: Stage[Scene]) -> Draw[Scene]:
    """One pair, from a random stream of its own."""
    rng = plan.random_stream(pair)
    scene = changed = stage.draw_scene(rng)
    overlays = []
    for support, operation in plan.edits_of(pair):
        if operation in stage.scene_operations:
            changed = stage.change_scene(changed, support, operation, rng)
        else:
            overlays.append((support, edits.draw_edit(operation, rng, stage.stripes, stage.width)))
    return Draw(scene, changed, tuple(overlays))


# --------------------------------------------------------------------------------------------- how it looks


def render_draw(
    drawn: Draw[Scene], photograph: Callable[[Scene], edits.Image], regions: Callable[[Scene], Region]
) -> Pair:
    """Source, edited image and region of one pair."""
    source, region = photograph(drawn.scene), regions(drawn.scene)
    edited = source if drawn.changed is drawn.scene else photograph(drawn.changed)
    for support, edit in drawn.overlays:
        mask = region == support
        edited = np.where(mask[:, :, None], edit(source, mask), edited)
    return source, edited, region


def render_each(
    render_pair: Callable[[int], Pair], n_pairs: int, image_size: tuple[int, int]
) -> Callable[[Sequence[int]], ImagePairs]:
    """A substrate's `render` from a function that renders one pair."""

    def render(pairs: Sequence[int]) -> ImagePairs:
        source, edited = np.empty((2, len(pairs), *image_size, 3), np.uint8)
        region = np.empty((len(pairs), *image_size), np.int8)
        for place, pair in enumerate(pairs):
            if not 0 <= pair < n_pairs:
                raise IndexError(f"pair {pair} of {n_pairs}")
            source[place], edited[place], region[place] = render_pair(pair)
        return ImagePairs(source, edited, region)

    return render
