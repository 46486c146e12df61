"""`shapes3d`: the original Shapes3D data set, 3dshapes.h5, in; pairs of its images out.

Hue takes the image of the data set that differs in that hue alone. The file has no masks, but all colour comes from
the hues: a pixel belongs to the support whose hue changes it most, and to none where no hue does, as in the sky. The
factors and edits of a pair are those of the same pair of `shapes3d-lite`.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int, UInt8

from soopf_jax import edits
from soopf_jax.errors import UserError
from soopf_jax.progress import bar
from soopf_jax.substrates import pairs
from soopf_jax.substrates.pairs import Draw, Pair, Region
from soopf_jax.substrates.shapes3d_lite import (
    DEFAULT_PAIRS_PER_CELL,
    FACTOR_SIZES,
    SIZE,
    SUPPORTS,
    Scene,
    make_stage,
    with_hue,
)
from soopf_jax.types import Substrate, SubstrateRequest

FILE = "3dshapes.h5"
N_IMAGES = 480_000


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Pairs in the order of their cells. Their images are read when the first pair is rendered, all in one pass."""
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL)
    pairs.refuse(request, "coco_split")
    path = find_file(request.data_root)
    sizes = factor_sizes(path)
    stage = make_stage(sizes)
    draws = [pairs.draw(plan, pair, stage) for pair in range(len(plan.cell))]

    @cache
    def images() -> dict[Scene, edits.Image]:
        return read_scenes(path, sizes, scenes_needed(draws, sizes))

    @cache
    def region(scale: int, shape: int, orientation: int) -> Region:
        recoloured = recolourings(scale, shape, orientation, sizes)
        return find_region([np.stack([images()[scene] for scene in scenes]) for scenes in recoloured])

    def render_pair(pair: int) -> Pair:
        return pairs.render_draw(draws[pair], lambda scene: images()[scene], lambda scene: region(*scene[3:]))

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    identity = {"name": "shapes3d", "version": "1", "sha256": digest, **plan.settings}
    render = pairs.render_each(render_pair, len(draws), (SIZE, SIZE))
    return Substrate(plan.grid, plan.cell, (SIZE, SIZE), identity, render)


def scenes_needed(draws: Iterable[Draw[Scene]], sizes: Scene) -> set[Scene]:
    """Every scene whose image the pairs are made of, and those that show where their supports are."""
    shown = {scene for draw in draws for scene in (draw.scene, draw.changed)}
    views = {scene[3:] for scene in shown}
    return shown.union(*(scenes for view in views for scenes in recolourings(*view, sizes)))


# ----------------------------------------------------------------------------------------------- regions


def recolourings(scale: int, shape: int, orientation: int, sizes: Scene) -> list[list[Scene]]:
    """For each support, a few scenes of one view that differ in its hue alone, spread over all its hues."""
    plain = Scene(0, 0, 0, scale, shape, orientation)
    return [
        [with_hue(plain, support, hue) for hue in sorted({k * sizes[support] // 4 for k in range(4)})]
        for support in range(len(SUPPORTS))
    ]


def find_region(recoloured: Sequence[UInt8[np.ndarray, "_ height width 3"]]) -> Region:
    """The support in each pixel, -1 for none, from images that differ in one support's hue, for each support.

    A pixel on an edge, or lit by another support, follows several hues: the one that changes it most decides. The sky
    is what no hue changes; the supports' own colours are saturated, so their darkest channel keeps nothing.
    """
    change = np.stack([np.ptp(images, axis=0).max(axis=2) for images in recoloured])
    unchanged = np.concatenate(recoloured).min(axis=(0, 3))
    return np.where(unchanged >= change.max(axis=0), -1, change.argmax(axis=0)).astype(np.int8)


# ---------------------------------------------------------------------------------------------- the file


def find_file(data_root: str | None) -> Path:
    """Where 3dshapes.h5 is."""
    where = "download it from github.com/google-deepmind/3d-shapes and name its folder with --data-root"
    if data_root is None:
        raise UserError(f"dataset shapes3d reads {FILE}; {where}")
    path = Path(data_root).expanduser() / FILE
    if not path.is_file():
        raise UserError(f"there is no {FILE} in {data_root}; {where}")
    return path


def factor_sizes(path: Path) -> Scene:
    """How many values each factor has. All of the layout that the rest relies on is checked here."""
    try:
        with h5py.File(path) as file:
            shape, dtype, labels = file["images"].shape, file["images"].dtype, file["labels"][()]
    except (OSError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path} cannot be read as Shapes3D ({error}); download it again") from error
    if shape[1:] != (SIZE, SIZE, 3) or dtype != np.uint8 or labels.shape != (shape[0], len(Scene._fields)):
        found = f"images {list(shape)} of {dtype} and labels {list(labels.shape)}"
        raise UserError(
            f"{path} holds {found}, not images [n, 64, 64, 3] of uint8 and labels [n, 6]; download it again"
        )
    values = [np.unique(column) for column in labels.T]
    sizes = Scene(*map(len, values))
    if math.prod(sizes) != len(labels) or min(sizes[:3]) < 2 or (len(labels) == N_IMAGES and sizes != FACTOR_SIZES):
        found = f"{len(labels)} images with factors of sizes {list(sizes)}"
        raise UserError(f"{path} has {found}, not {N_IMAGES} with {list(FACTOR_SIZES)}; download it again")
    in_order = np.meshgrid(*values, indexing="ij")
    if any((column != grid.ravel()).any() for column, grid in zip(labels.T, in_order, strict=True)):
        raise UserError(f"{path} has its images in another order than Shapes3D; download it again")
    return sizes


def read_scenes(path: Path, sizes: Scene, scenes: Iterable[Scene]) -> dict[Scene, edits.Image]:
    """The images of some scenes."""
    wanted = sorted(scenes)  # as in the file, where the last factor changes fastest
    try:
        images = read_images(path, np.ravel_multi_index(np.array(wanted).T, sizes))
    except OSError as error:
        raise UserError(f"{path} is damaged ({error}); download it again") from error
    return dict(zip(wanted, images, strict=True))


def read_images(path: Path, numbers: Int[np.ndarray, "images"]) -> UInt8[np.ndarray, "images 64 64 3"]:
    """The images with these numbers, which increase. Reads each chunk of the file at most once.

    h5py's own chunks for the original, which fit its size, are 15,000 images x 4 x 4 pixels of one channel: a single
    image then takes as long to read as 15,000 do. So a substrate reads all of its images in one pass.
    """
    images = np.empty((len(numbers), SIZE, SIZE, 3), np.uint8)
    with h5py.File(path) as file:
        stored = file["images"]
        depth, *window = stored.chunks or (1, SIZE, SIZE, 3)
        blocks = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers // depth)) + 1)
        starts = (range(0, length, step) for length, step in zip(stored.shape[1:], window, strict=True))
        windows = [tuple(map(slice, corner, np.add(corner, window).tolist())) for corner in product(*starts)]
        with bar(f"reading {path.name}", len(blocks), "blocks") as advance:
            for places in blocks:
                first, last = numbers[places[[0, -1]]]
                for part in windows:
                    chunk = stored[(slice(first, last + 1), *part)]
                    images[(slice(places[0], places[-1] + 1), *part)] = chunk[numbers[places] - first]
                advance(1)
    return images
