"""`coco`: photographs and outlines in COCO's own layout in; pairs with an edited person, vehicle or background out.

`coco` reads the split train2017, and `coco:SPLIT` reads any other.

Every pair has its own photograph: no photograph is used twice, not even in different cells. A photograph is cropped to
its central square and resized to 256 x 256. A pixel inside the outlines of both a person and a vehicle belongs to no
support. The background is what no outline covers. A crowd is no support, but its outline is not background either.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from jaxtyping import Bool, Int
from PIL import Image, ImageOps
from pycocotools import mask as run_lengths

from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.runtime.progress import bar
from soopf_jax.substrates import edits, pairs
from soopf_jax.substrates.allocation import allocate, most_rounds
from soopf_jax.substrates.coco_files import (
    BACKGROUND,
    PERSON,
    SUPPORTS,
    VEHICLE,
    Photo,
    find_files,
    read_annotations,
    sha256_of_all,
    split_of,
)
from soopf_jax.substrates.pairs import Pair, PairPlan, Region
from soopf_jax.types import Substrate, SubstrateRequest

DEFAULT_PAIRS_PER_CELL = 300
SIZE = 256
LEAST_AREA = 0.05
"""The smallest share of the picture that a support may cover to be edited."""


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Pairs in the order of their cells."""
    pairs.refuse_two_edits(request)
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL)
    stripes = edits.scaled_stripes(edits.COCO_STRIPES, plan.stripe_scale, SIZE)
    split = split_of(request.name)
    annotations, folder = find_files(request.data_root, split)
    photos = read_annotations(annotations)
    picked = choose_photos(photos, plan, split)
    photos = {image_id: photos[image_id] for ids in picked.values() for image_id in ids}  # frees gigabytes
    chosen = deal(picked, plan.grid, lambda image_id: in_colour(folder / photos[image_id].file_name))

    def render_pair(pair: int) -> Pair:
        photo = photos[chosen[pair]]
        source, region = read_photo(folder / photo.file_name, photo), find_region(photo)
        ((support, operation),) = plan.edits_of(pair)
        edit = draw_edit(operation, plan.random_stream(pair), stripes)
        return source, edit(source, region == support), region

    identity = {
        "name": "coco",
        "version": "1",
        "split": split,
        "annotations": sha256_of_all([annotations]),
        "photos": sha256_of_all(folder / photo.file_name for photo in photos.values()),
        "pillow": PIL.__version__,  # decodes and resizes
        **plan.settings,
    }
    render = pairs.render_each(render_pair, len(chosen), (SIZE, SIZE))
    return Substrate(plan.grid, plan.cell, (SIZE, SIZE), identity, render)


def draw_edit(operation: str, rng: np.random.Generator, stripes: edits.StripeRanges = edits.COCO_STRIPES) -> edits.Edit:
    """An operation with its parameters drawn."""
    if operation == "hue":
        return partial(edits.rotate_hue, turns=edits.uniform(rng, *edits.COCO_HUE))
    return edits.draw_edit(operation, rng, stripes, SIZE)


# ---------------------------------------------------------------------------------------- which photographs


def choose_photos(photos: Mapping[int, Photo], plan: PairPlan, split: str) -> dict[int, list[int]]:
    """The image ids of each support, one per pair. The rarer of person and vehicle chooses first, background last."""

    @cache
    def usable(image_id: int) -> Bool[np.ndarray, "supports"]:
        return enough(find_region(photos[image_id]))

    def shown(support: int) -> int:
        return sum(support in (outline.support for outline in photo.outlines) for photo in photos.values())

    turns = [*sorted((PERSON, VEHICLE), key=shown), BACKGROUND]
    wishes = {support: shuffled(photos, f"{plan.data_seed}/{SUPPORTS[support]}") for support in turns}
    rounds = plan.pairs_per_cell * plan.grid.n_operations
    with bar(f"choosing photographs of {split}", rounds * len(SUPPORTS), "photographs") as advance:
        picked = allocate(wishes, rounds, lambda image_id, support: bool(usable(image_id)[support]), advance)
    if picked is None:
        with bar(f"counting photographs of {split}", len(photos), "photographs") as advance:
            table = np.empty((len(photos), len(SUPPORTS)), bool)
            for row, image_id in enumerate(photos):
                table[row] = usable(image_id)
                advance(1)
        raise too_few(table, plan, split)
    return picked


def deal(picked: Mapping[int, Sequence[int]], grid: Grid, coloured: Callable[[int], bool]) -> list[int]:
    """The image id of every pair. In every round, each operation of a support gets one of the support's images.

    A change of hue has no effect on a black-and-white photograph. The operation hue therefore gets a photograph in
    colour if its round has one.
    """
    hands: dict[int, list[int]] = {cell: [] for cell in range(grid.n_cells)}
    for support in range(grid.n_supports):
        for first in range(0, len(picked[support]), grid.n_operations):
            hand = list(picked[support][first : first + grid.n_operations])
            if "hue" in grid.operations:
                hue = grid.operations.index("hue")
                other = next((place for place in (hue, *range(len(hand))) if coloured(hand[place])), hue)
                hand[hue], hand[other] = hand[other], hand[hue]
            for operation, image_id in enumerate(hand):
                hands[grid.cell(support, operation)].append(image_id)
    return [image_id for hand in hands.values() for image_id in hand]


def too_few(usable: Bool[np.ndarray, "photos supports"], plan: PairPlan, split: str) -> UserError:
    """The error for a split that has too few photographs."""
    counts = ", ".join(f"{count} for {name}" for count, name in zip(usable.sum(axis=0), SUPPORTS, strict=True))
    most = most_rounds(usable) // plan.grid.n_operations
    advice = f"take --pairs-per-cell {most} or fewer" if most else "take another split as coco:SPLIT"
    wanted = f"{plan.pairs_per_cell} pairs in each of {plan.grid.n_cells} cells"
    return UserError(f"{split} has too few photographs for {wanted}, none twice: {counts}; {advice}")


def shuffled(image_ids: Collection[int], seed: str) -> list[int]:
    """The ids in a random order that depends only on the seed and the ids."""
    return sorted(image_ids, key=lambda image_id: hashlib.sha256(f"{seed}/{image_id}".encode()).digest())


# ------------------------------------------------------------------------------------------- one photograph


def crop_lines(photo: Photo) -> tuple[Int[np.ndarray, "256"], Int[np.ndarray, "256"]]:
    """For each row and column of the 256 x 256 picture, the nearest row or column of the photograph."""
    side = min(photo.height, photo.width)
    nearest = (2 * np.arange(SIZE) + 1) * side // (2 * SIZE)
    return (photo.height - side) // 2 + nearest, (photo.width - side) // 2 + nearest


def find_region(photo: Photo) -> Region:
    """The support in each pixel of the picture, -1 for none."""
    rows, columns = crop_lines(photo)
    masks = [encode(outline.segmentation, photo) for outline in photo.outlines]
    supports = [outline.support for outline in photo.outlines]

    def covered(some: list[Any]) -> Bool[np.ndarray, "256 256"]:
        if not some:
            return np.zeros((SIZE, SIZE), bool)
        # The mask is stored column by column; indexing its transpose reads memory in order.
        return run_lengths.decode(run_lengths.merge(some)).T[columns][:, rows].T == 1

    person, vehicle = (
        covered([mask for mask, support in zip(masks, supports, strict=True) if support == wanted])
        for wanted in (PERSON, VEHICLE)
    )
    region = np.full((SIZE, SIZE), -1, np.int8)
    region[~covered(masks)] = BACKGROUND
    region[person & ~vehicle] = PERSON
    region[vehicle & ~person] = VEHICLE
    return region


def enough(region: Region) -> Bool[np.ndarray, "supports"]:
    """Which supports cover enough of the picture to be edited."""
    pixels = [np.count_nonzero(region == support) for support in range(len(SUPPORTS))]
    return np.array(pixels) >= LEAST_AREA * region.size


def encode(segmentation: Any, photo: Photo) -> Any:
    """A segmentation as run lengths."""
    size = photo.height, photo.width
    try:
        if isinstance(segmentation, list):
            mask = run_lengths.merge(run_lengths.frPyObjects(segmentation, *size))
        elif isinstance(segmentation["counts"], list):
            mask = run_lengths.frPyObjects(segmentation, *size)
        else:
            mask = segmentation
        right = tuple(mask["size"]) == size
    # pycocotools raises exceptions of many types.
    except Exception as error:
        raise UserError(f"an outline of {photo.file_name} cannot be read ({error}); correct the annotations") from error
    if not right:
        raise UserError(f"an outline of {photo.file_name} is not {size} pixels; correct the annotations")
    return mask


def read_photo(path: Path, photo: Photo) -> edits.Image:
    """The central square of a photograph, 256 x 256, in RGB whatever the mode of the file."""
    size = photo.width, photo.height
    with opened(path) as image:
        # Outlines refer to the pixels as stored, unless only the image turned by its EXIF tag has the annotated size.
        pixels = (image if image.size == size else ImageOps.exif_transpose(image)).convert("RGB")
    if pixels.size != size:
        raise UserError(f"{path} is {pixels.size} pixels but annotated as {size}; download it again")
    side = min(size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    square = left, top, left + side, top + side
    return np.asarray(pixels.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=square))


def in_colour(path: Path) -> bool:
    """Whether the colour channels of a photograph differ by at least one grey level on average."""
    with opened(path) as image:
        image.draft("RGB", (SIZE // 4, SIZE // 4))  # lets a JPEG be decoded at a fraction of its resolution
        return bool(np.ptp(np.asarray(image.convert("RGB")), axis=2).mean() >= 1)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image file. An error of reading it inside the block becomes a UserError."""
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path} cannot be read as an image ({error}); download it again") from error
