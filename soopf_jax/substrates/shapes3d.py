"""`shapes3d`: the original Shapes3D data set, 3dshapes.h5, in; pairs of its images out.

For the operation hue, the edited image is the image of the data set that differs only in that hue. The file has no
masks, so they are inferred: a pixel belongs to the support whose hue changes it most, and to no support if no hue
changes it, as in the sky. Each pair has the same factors and edits as the pair of that number in `shapes3d-lite`.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int, UInt8

from soopf_jax.errors import UserError
from soopf_jax.runtime.hashing import file_sha256
from soopf_jax.runtime.progress import bar
from soopf_jax.substrates import edits, pairs
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
    """Pairs in the order of their cells. All images are read in one pass when the first pair is rendered."""
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL)
    path = find_file(request.data_root)
    sizes = factor_sizes(path)
    stage = pairs.with_stripes_of(plan, make_stage(sizes))
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

    identity = {"name": "shapes3d", "version": "1", "sha256": file_sha256(path), **plan.settings}
    render = pairs.render_each(render_pair, len(draws), (SIZE, SIZE))
    return Substrate(plan.grid, plan.cell, (SIZE, SIZE), identity, render)


def scenes_needed(draws: Iterable[Draw[Scene]], sizes: Scene) -> set[Scene]:
    """Every scene whose image is needed, for the pairs themselves or to find their supports."""
    shown = {scene for draw in draws for scene in (draw.scene, draw.changed)}
    views = {scene[3:] for scene in shown}
    return shown.union(*(scenes for view in views for scenes in recolourings(*view, sizes)))


# ----------------------------------------------------------------------------------------------- regions


def recolourings(scale: int, shape: int, orientation: int, sizes: Scene) -> list[list[Scene]]:
    """For each support, up to four scenes of one view that differ only in its hue. The hues are spread evenly."""
    plain = Scene(0, 0, 0, scale, shape, orientation)
    return [
        [with_hue(plain, support, hue) for hue in sorted({k * sizes[support] // 4 for k in range(4)})]
        for support in range(len(SUPPORTS))
    ]


def find_region(recoloured: Sequence[UInt8[np.ndarray, "_ height width 3"]]) -> Region:
    """The support in each pixel, -1 for none.

    Several hues may change a pixel on an edge, or one that receives light from another support. It belongs to the
    support whose hue changes it most. No hue changes the sky. The colours of supports are saturated, so some hue always
    makes one of their channels dark; in the sky all channels stay bright.

    Args:
        recoloured: For each support, images that differ only in its hue.
    """
    change = np.stack([np.ptp(images, axis=0).max(axis=2) for images in recoloured])
    unchanged = np.concatenate(recoloured).min(axis=(0, 3))
    return np.where(unchanged >= change.max(axis=0), -1, change.argmax(axis=0)).astype(np.int8)


# ---------------------------------------------------------------------------------------------- the file


def find_file(data_root: str | None) -> Path:
    """The path of 3dshapes.h5."""
    where = "soopf data fetch shapes3d downloads it to the folder data; name its folder with --data-root"
    if data_root is None:
        raise UserError(f"dataset shapes3d reads {FILE}; {where}")
    path = Path(data_root).expanduser() / FILE
    if not path.is_file():
        raise UserError(f"there is no {FILE} in {data_root}; {where}")
    return path


def factor_sizes(path: Path) -> Scene:
    """How many values each factor has.

    Raises:
        UserError: The layout of the file is not that of Shapes3D.
    """
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
    wanted = sorted(scenes)  # the order of the file, where the last factor changes fastest
    try:
        images = read_images(path, np.ravel_multi_index(np.array(wanted).T, sizes))
    except OSError as error:
        raise UserError(f"{path} is damaged ({error}); download it again") from error
    return dict(zip(wanted, images, strict=True))


def read_images(path: Path, numbers: Int[np.ndarray, "images"]) -> UInt8[np.ndarray, "images 64 64 3"]:
    """The images with these numbers, which must increase. Each chunk of the file is read at most once.

    The chunks that h5py chooses for data of this shape hold 15,000 images x 4 x 4 pixels of one channel; the size of
    the original file agrees with that. One image then takes as long to read as 15,000 images. A substrate therefore
    reads all of its images in one pass.
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
