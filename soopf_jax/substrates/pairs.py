"""Shared code of the substrates that make their own pairs: settings, random streams, and one or two edits per pair.

A pair is drawn before it is rendered. The draw holds the scene, the scene after the edits that change the scene, and
the edits that change pixels. The edits of one pair are on different supports. Each is applied to the source image, so
their order does not matter.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int, Int8

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.grid import Grid
from soopf_jax.substrates import edits
from soopf_jax.types import ImagePairs, Json, SubstrateRequest

DEFAULT_OPERATIONS = ("hue", "invert", "pattern")
PAIRS_PER_COMBINATION = 20
"""The default for two edits: 540 test pairs on a 3 x 3 grid. One edit has 630, a fifth of 350 in each of 9 cells."""

Region = Int8[np.ndarray, "height width"]
"""The support in each pixel, -1 for none."""
Pair = tuple[edits.Image, edits.Image, Region]
"""Source, edited image and region."""
Scene = TypeVar("Scene")
"""A substrate's own description of a picture."""

# -------------------------------------------------------------------------------------------- which pairs


class PairPlan(NamedTuple):
    """The pairs that a request asks for, in the order of their cells or, with two edits, combinations of cells."""

    grid: Grid
    pairs_per_cell: int
    data_seed: int
    n_edits: int = 1
    stripe_scale: edits.StripeScale = edits.StripeScale()

    @property
    def cell(self) -> Int[np.ndarray, "pairs"]:
        """The cell of every pair; pair = cell * pairs_per_cell + number within the cell."""
        return np.repeat(np.arange(len(self.grid.combinations(self.n_edits))), self.pairs_per_cell)

    @property
    def settings(self) -> Json:
        """The part of a substrate's identity that describes its plan."""
        settings = {
            "operations": list(self.grid.operations),
            "pairs_per_cell": self.pairs_per_cell,
            "data_seed": self.data_seed,
        }
        # A setting at its default is left out. Stores that were made before the setting existed keep their keys.
        others = {"edits": self.n_edits, "stripe_unit": self.stripe_scale.unit, "stripe_size": self.stripe_scale.size}
        defaults = SubstrateRequest._field_defaults
        return settings | {name: value for name, value in others.items() if value != defaults[name]}

    def edits_of(self, pair: int) -> list[tuple[int, str]]:
        """(support, name of the operation) of each edit of a pair."""
        cells = self.grid.combinations(self.n_edits)[pair // self.pairs_per_cell]
        return [(support, self.grid.operations[operation]) for support, operation in map(self.grid.axes, cells)]

    def random_stream(self, pair: int) -> np.random.Generator:
        """A pair's own random numbers. They do not depend on the other cells or on the number of pairs."""
        cell, number = divmod(pair, self.pairs_per_cell)
        seed = f"{self.data_seed}/{self.grid.combination_names(self.n_edits)[cell]}/{number}"
        digest = hashlib.sha256(seed.encode()).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def plan(
    request: SubstrateRequest,
    supports: Sequence[str],
    default_pairs_per_cell: int,
    operations: Sequence[str] = edits.OPERATIONS,
) -> PairPlan:
    """The plan of a request.

    Args:
        request: What the user asked for.
        supports: The supports of the substrate.
        default_pairs_per_cell: The number of pairs of each cell if the request names none.
        operations: All operations that the substrate knows.

    Raises:
        UserError: An operation is unknown, or fewer than one pair per cell is asked for.
    """
    asked = DEFAULT_OPERATIONS if request.operations is None else request.operations
    for operation in asked:
        if operation not in operations:
            raise unknown_name("operation", operation, operations)
    default = default_pairs_per_cell if request.edits == 1 else PAIRS_PER_COMBINATION
    pairs_per_cell = default if request.pairs_per_cell is None else request.pairs_per_cell
    if pairs_per_cell < 1:
        raise UserError(f"{pairs_per_cell} pairs per cell are too few; ask for at least 1")
    scale = edits.StripeScale(request.stripe_unit, request.stripe_size)
    return PairPlan(Grid.of(supports, asked), pairs_per_cell, request.data_seed, request.edits, scale)


def refuse(request: SubstrateRequest, *fields: str) -> None:
    """Raise a UserError if one of `fields`, which the substrate does not use, is not at its default."""
    for field in fields:
        if getattr(request, field) != SubstrateRequest._field_defaults[field]:
            option = f"--{field.replace('_', '-')}"
            raise UserError(f"dataset {request.name} has no use for {option}; leave {option} out")


def refuse_two_edits(request: SubstrateRequest) -> None:
    """Raise a UserError if a request asks for two edits; for substrates that support only one."""
    if request.edits != 1:
        works = "--edits two works on shapes3d-lite, shapes3d and mujoco"
        raise UserError(f"dataset {request.name} has no pairs with two edits; {works}")


# -------------------------------------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class Stage(Generic[Scene]):
    """How a substrate draws random scenes and their edits."""

    draw_scene: Callable[[np.random.Generator], Scene]
    """A random source scene."""
    scene_operations: Sequence[str]
    """The operations that change the scene; the others change pixels."""
    change_scene: Callable[[Scene, int, str, np.random.Generator], Scene]
    """(scene, support, operation, stream) -> the scene after an edit, whose parameters come from the stream."""
    stripes: edits.StripeRanges
    width: int
    """The width of the images."""


@dataclass(frozen=True)
class Draw(Generic[Scene]):
    """A pair before anything is rendered."""

    scene: Scene
    """The scene of the source image."""
    changed: Scene
    """The scene after the edits that change it; the same object as `scene` if there are none."""
    overlays: tuple[tuple[int, edits.Edit], ...]
    """The edits that change pixels: (support, edit)."""


def with_stripes_of(plan: PairPlan, stage: Stage[Scene]) -> Stage[Scene]:
    """The stage with its stripes at the scale of the plan.

    Raises:
        UserError: The stripes cannot be drawn.
    """
    return replace(stage, stripes=edits.scaled_stripes(stage.stripes, plan.stripe_scale, stage.width))


def draw(plan: PairPlan, pair: int, stage: Stage[Scene]) -> Draw[Scene]:
    """Draw one pair from its own random stream."""
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
    """Make the `render` of a substrate from a function that renders one pair."""

    def render(pairs: Sequence[int]) -> ImagePairs:
        source, edited = np.empty((2, len(pairs), *image_size, 3), np.uint8)
        region = np.empty((len(pairs), *image_size), np.int8)
        for place, pair in enumerate(pairs):
            if not 0 <= pair < n_pairs:
                raise IndexError(f"pair {pair} of {n_pairs}")
            source[place], edited[place], region[place] = render_pair(pair)
        return ImagePairs(source, edited, region)

    return render
