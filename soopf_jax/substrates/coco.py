"""`coco`: photographs and outlines in COCO's own layout in; pairs with an edited person, vehicle or background out.

Every pair has a photograph of its own: no source image occurs twice, in whatever cells. A photograph is cropped to its
central square and resized to 256 x 256. Outlines may overlap: a pixel of a person and a vehicle belongs to neither; the
background is what no outline covers, not even one around a crowd, which is itself no support.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
from jaxtyping import Bool, Int
from PIL import Image, ImageOps
from pycocotools import mask as run_lengths

from soopf_jax import edits
from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.progress import bar
from soopf_jax.substrates import pairs
from soopf_jax.substrates.draft import draft, most_rounds
from soopf_jax.substrates.pairs import Pair, Plan, Region
from soopf_jax.types import Substrate, SubstrateRequest

SUPPORTS = ("person", "vehicle", "background")
PERSON, VEHICLE, BACKGROUND = range(3)
PERSON_CATEGORY = 1
VEHICLE_SUPERCATEGORY = "vehicle"
DEFAULT_PAIRS_PER_CELL = 300
SIZE = 256
LEAST_AREA = 0.05
"""The share of the picture that a support must have to be edited."""


class Outline(NamedTuple):
    """An annotated object."""

    support: int | None
    """PERSON, VEHICLE or neither."""
    segmentation: Any
    """As COCO has it: polygons, or run lengths in one of two forms."""


class Photo(NamedTuple):
    """An image of the split."""

    file_name: str
    height: int
    width: int
    outlines: list[Outline]


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Pairs in the order of their cells."""
    pairs.refuse_two_edits(request)
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL)
    annotations, folder = find_files(request.data_root, request.coco_split)
    photos = read_annotations(annotations)
    picked = choose_photos(photos, plan, request.coco_split)
    photos = {image_id: photos[image_id] for ids in picked.values() for image_id in ids}  # frees gigabytes of others
    chosen = deal(picked, plan.grid, lambda image_id: in_colour(folder / photos[image_id].file_name))

    def render_pair(pair: int) -> Pair:
        photo = photos[chosen[pair]]
        source, region = read_photo(folder / photo.file_name, photo), find_region(photo)
        ((support, operation),) = plan.edits_of(pair)
        return source, draw_edit(operation, plan.random_stream(pair))(source, region == support), region

    identity = {
        "name": "coco",
        "version": "1",
        "split": request.coco_split,
        "annotations": sha256([annotations]),
        "photos": sha256(folder / photo.file_name for photo in photos.values()),
        "pillow": PIL.__version__,  # decodes and resizes
        **plan.settings,
    }
    render = pairs.render_each(render_pair, len(chosen), (SIZE, SIZE))
    return Substrate(plan.grid, plan.cell, (SIZE, SIZE), identity, render)


def draw_edit(operation: str, rng: np.random.Generator) -> edits.Edit:
    """An operation with its parameters drawn."""
    if operation == "hue":
        return partial(edits.rotate_hue, turns=edits.uniform(rng, *edits.COCO_HUE))
    return edits.draw_edit(operation, rng, edits.COCO_STRIPES, SIZE)


# ---------------------------------------------------------------------------------------- which photographs


def choose_photos(photos: Mapping[int, Photo], plan: Plan, split: str) -> dict[int, list[int]]:
    """The ids of each support's images, one per pair. Of person and vehicle, the one that fewer show chooses first."""

    @cache
    def usable(image_id: int) -> Bool[np.ndarray, "supports"]:
        return enough(find_region(photos[image_id]))

    def shown(support: int) -> int:
        return sum(support in (outline.support for outline in photo.outlines) for photo in photos.values())

    turns = [*sorted((PERSON, VEHICLE), key=shown), BACKGROUND]
    wishes = {support: shuffled(photos, f"{plan.data_seed}/{SUPPORTS[support]}") for support in turns}
    rounds = plan.pairs_per_cell * plan.grid.n_operations
    with bar(f"choosing photographs of {split}", rounds * len(SUPPORTS), "photographs") as advance:
        picked = draft(wishes, rounds, lambda image_id, support: bool(usable(image_id)[support]), advance)
    if picked is None:
        with bar(f"counting photographs of {split}", len(photos), "photographs") as advance:
            table = np.empty((len(photos), len(SUPPORTS)), bool)
            for row, image_id in enumerate(photos):
                table[row] = usable(image_id)
                advance(1)
        raise too_few(table, plan, split)
    return picked


def deal(picked: Mapping[int, Sequence[int]], grid: Grid, coloured: Callable[[int], bool]) -> list[int]:
    """The image id of every pair: a support's images go to its operations in turn, one each in every round.

    Hue would not change a photograph in black and white: it swaps that for another of its round.
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


def too_few(usable: Bool[np.ndarray, "photos supports"], plan: Plan, split: str) -> UserError:
    """What to say when the photographs do not suffice."""
    counts = ", ".join(f"{count} for {name}" for count, name in zip(usable.sum(axis=0), SUPPORTS, strict=True))
    most = most_rounds(usable) // plan.grid.n_operations
    advice = f"take --pairs-per-cell {most} or fewer" if most else "take another --coco-split"
    wanted = f"{plan.pairs_per_cell} pairs in each of {plan.grid.n_cells} cells"
    return UserError(f"{split} has too few photographs for {wanted}, none twice: {counts}; {advice}")


def shuffled(image_ids: Collection[int], seed: str) -> list[int]:
    """In an order that depends on the seed and the ids alone."""
    return sorted(image_ids, key=lambda image_id: hashlib.sha256(f"{seed}/{image_id}".encode()).digest())


# ------------------------------------------------------------------------------------------- one photograph


def crop_lines(photo: Photo) -> tuple[Int[np.ndarray, "256"], Int[np.ndarray, "256"]]:
    """The rows and columns of a photograph nearest to those of the picture made of it."""
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
        # Stored column by column.
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
    """Which supports have enough of the picture to be edited."""
    pixels = [np.count_nonzero(region == support) for support in range(len(SUPPORTS))]
    return np.array(pixels) >= LEAST_AREA * region.size


def encode(segmentation: Any, photo: Photo) -> Any:
    """A segmentation in run lengths."""
    size = photo.height, photo.width
    try:
        if isinstance(segmentation, list):
            mask = run_lengths.merge(run_lengths.frPyObjects(segmentation, *size))
        elif isinstance(segmentation["counts"], list):
            mask = run_lengths.frPyObjects(segmentation, *size)
        else:
            mask = segmentation
        right = tuple(mask["size"]) == size
    # pycocotools raises whatever it comes upon.
    except Exception as error:
        raise UserError(f"an outline of {photo.file_name} cannot be read ({error}); correct the annotations") from error
    if not right:
        raise UserError(f"an outline of {photo.file_name} is not {size} pixels; correct the annotations")
    return mask


def read_photo(path: Path, photo: Photo) -> edits.Image:
    """The central square, 256 x 256, in RGB whatever the file has."""
    size = photo.width, photo.height
    with opened(path) as image:
        # Outlines are drawn on the pixels as stored, except where only the turned image has their size.
        pixels = (image if image.size == size else ImageOps.exif_transpose(image)).convert("RGB")
    if pixels.size != size:
        raise UserError(f"{path} is {pixels.size} pixels but annotated as {size}; download it again")
    side = min(size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    square = left, top, left + side, top + side
    return np.asarray(pixels.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=square))


def in_colour(path: Path) -> bool:
    """Whether the channels of a photograph differ, by one grey level on average."""
    with opened(path) as image:
        image.draft("RGB", (SIZE // 4, SIZE // 4))  # decode an eighth of the resolution
        return bool(np.ptp(np.asarray(image.convert("RGB")), axis=2).mean() >= 1)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """An image file; what goes wrong with it inside the block becomes a UserError."""
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path} cannot be read as an image ({error}); download it again") from error


# --------------------------------------------------------------------------------------------- the files


def find_files(data_root: str | None, split: str) -> tuple[Path, Path]:
    """The annotations of a split and the folder of its photographs."""
    layout = f"annotations/instances_{split}.json and {split}/*.jpg"
    if data_root is None:
        raise UserError(f"dataset coco reads {layout}; name the folder that holds them with --data-root")
    root = Path(data_root).expanduser()
    annotations, folder = root / "annotations" / f"instances_{split}.json", root / split
    for path in (annotations, folder):
        if not path.exists():
            raise UserError(f"there is no {path}; {data_root} must hold {layout}: check --data-root and --coco-split")
    return annotations, folder


def read_annotations(path: Path) -> dict[int, Photo]:
    """The images of a split by id, each with its outlines."""
    try:
        document = json.loads(path.read_bytes())
        vehicles = {c["id"] for c in document["categories"] if c["supercategory"] == VEHICLE_SUPERCATEGORY}
        photos = {i["id"]: Photo(i["file_name"], i["height"], i["width"], []) for i in document["images"]}
        kinds = {PERSON_CATEGORY: PERSON} | dict.fromkeys(vehicles, VEHICLE)
        for annotation in document["annotations"]:
            support = None if annotation["iscrowd"] else kinds.get(annotation["category_id"])
            photos[annotation["image_id"]].outlines.append(Outline(support, annotation["segmentation"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as COCO instances ({error!r}); download it again") from error
    return photos


def sha256(paths: Iterable[Path]) -> str:
    """Of the contents of some files."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}; download it again") from error
    return digest.hexdigest()
