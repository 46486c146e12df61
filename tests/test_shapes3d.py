"""Shapes3D from files in the layout of 3dshapes.h5, drawn by shapes3d-lite, whose regions are known exactly."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.substrates import edits, pairs, shapes3d
from soopf_jax.substrates import shapes3d_lite as lite
from soopf_jax.types import SubstrateRequest

FACTORS = lite.Scene(
    floor_hue=[0, 3, 5, 8],
    wall_hue=[0, 2, 4, 6, 9],
    object_hue=[1, 4, 7],
    scale=[1, 7],
    shape=[0, 3],
    orientation=[2, 13],
)
"""The few values of the true factors that the generated files have."""
SIZES = tuple(map(len, FACTORS))
CHUNKS = (100, 4, 4, 1)
"""As h5py chooses them by itself, only fewer images deep."""

Draw = Callable[[lite.Scene], np.ndarray]


def scene_of(number: int) -> lite.Scene:
    """The true factors of an image of the file."""
    indices = np.unravel_index(number, SIZES)
    return lite.Scene(*(values[i] for values, i in zip(FACTORS, indices, strict=True)))


def labels() -> np.ndarray:
    values = lite.Scene(*(np.array(values) / 10 for values in FACTORS[:3]), *map(np.array, FACTORS[3:]))
    values = values._replace(
        scale=np.array(lite.SCALES)[values.scale], orientation=360 * np.array(lite.YAWS)[values.orientation]
    )
    return np.stack([grid.ravel() for grid in np.meshgrid(*values, indexing="ij")], axis=1)


def write(folder: Path, draw: Draw = lite.draw_scene, chunks: tuple[int, ...] | None = CHUNKS) -> Path:
    images = np.stack([draw(scene_of(number)) for number in range(np.prod(SIZES))])
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / "3dshapes.h5", "w") as file:
        file.create_dataset("images", data=images, chunks=chunks, compression="gzip" if chunks else None)
        file.create_dataset("labels", data=labels())
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("chunked"))


def request(root: Path, **fields) -> SubstrateRequest:
    five = {"operations": edits.OPERATIONS, "pairs_per_cell": 4, "data_root": str(root)}
    return SubstrateRequest("shapes3d", **(five | fields))


def find(images: np.ndarray, image: np.ndarray) -> int:
    """The number of an image in the file."""
    (number,) = np.flatnonzero((images == image).all(axis=(1, 2, 3)))
    return int(number)


@pytest.fixture(scope="module")
def stored(root) -> np.ndarray:
    with h5py.File(root / "3dshapes.h5") as file:
        return file["images"][()]


# ----------------------------------------------------------------------------------------------- regions


def ious(root: Path) -> np.ndarray:
    """Of every view's sky and supports with what the ray caster knows."""
    path = root / "3dshapes.h5"
    sizes = shapes3d.factor_sizes(path)
    recolourings = {view: shapes3d.recolourings(*view, sizes) for view in np.ndindex(*SIZES[3:])}
    images = shapes3d.read_scenes(
        path, sizes, {scene for some in recolourings.values() for scenes in some for scene in scenes}
    )
    found = []
    for view, some in recolourings.items():
        region = shapes3d.find_region([np.stack([images[scene] for scene in scenes]) for scenes in some])
        true = lite.view(*(values[i] for values, i in zip(FACTORS[3:], view, strict=True))).region
        found.append([((region == s) & (true == s)).sum() / ((region == s) | (true == s)).sum() for s in range(-1, 3)])
    return np.array(found)


def test_regions_are_those_of_the_renderer(root):
    assert ious(root).min() > 0.98


def smeared(scene: lite.Scene) -> np.ndarray:
    """Edges as an antialiasing renderer draws them: each pixel has a third of its neighbours below and to the right."""
    image = lite.draw_scene(scene).astype(float)
    padded = np.pad(image, ((0, 1), (0, 1), (0, 0)), mode="edge")
    return np.rint(image / 1.5 + padded[1:, :-1] / 6 + padded[:-1, 1:] / 6).astype(np.uint8)


def mirrored(scene: lite.Scene) -> np.ndarray:
    """Light from surface to surface: floor and object show each other, the wall shows the floor, the sky all three."""
    region = lite.view(*scene[3:]).region
    floor, wall, body = lite.COLOURS[list(scene[:3])]
    stray = np.stack([0.25 * body, 0.2 * floor, 0.25 * floor, 0.03 * (floor + wall + body)])[region]
    return np.rint(np.minimum(0.75 * lite.draw_scene(scene) + 0.75 * stray, 255)).astype(np.uint8)


@pytest.mark.parametrize("draw", [smeared, mirrored])
def test_regions_withstand_antialiasing_and_interreflection(draw, tmp_path):
    assert ious(write(tmp_path, draw)).min() > 0.98


def test_a_region_by_hand():
    """One row: floor, mostly floor with some wall, black, sky, sky with a little wall, object in deep shadow."""
    plain = [[[200, 0, 0], [150, 0, 0], [0, 0, 0], [150, 220, 250], [140, 200, 230], [9, 0, 0]]]
    floor = [[[0, 200, 0], [0, 150, 0], [0, 0, 0], [150, 220, 250], [140, 200, 230], [9, 0, 0]]]
    wall = [[[200, 0, 0], [150, 50, 0], [0, 0, 0], [150, 220, 250], [140, 230, 230], [9, 0, 0]]]
    body = [[[200, 0, 0], [150, 0, 0], [0, 0, 0], [150, 220, 250], [140, 200, 230], [0, 9, 0]]]
    recoloured = [np.array([plain, other], np.uint8) for other in (floor, wall, body)]
    assert shapes3d.find_region(recoloured).tolist() == [[0, 0, -1, -1, -1, 2]]


# ------------------------------------------------------------------------------------------------- pairs


def test_hue_takes_the_image_that_differs_in_that_hue_alone(root, stored):
    substrate = shapes3d.open_substrate(request(root, operations=("hue", "invert"), pairs_per_cell=12))
    rendered = substrate.render(range(72))
    for pair in np.flatnonzero(substrate.cell % 2 == 0):
        before, after = (
            np.array(scene_of(find(stored, images[pair]))) for images in (rendered.source, rendered.edited)
        )
        assert np.flatnonzero(before != after).tolist() == [substrate.cell[pair] // 2]


def test_the_other_edits_are_those_of_the_lite_substrate(root, stored):
    """The stripes and shifts that follow the six factors in a pair's stream, on the true masks."""
    substrate = shapes3d.open_substrate(request(root))
    rendered = substrate.render(range(60))
    for pair, cell in enumerate(substrate.cell):
        support, operation = divmod(int(cell), 5)
        source, region = rendered.source[pair], rendered.region[pair]
        np.testing.assert_array_equal(region, lite.view(*scene_of(find(stored, source))[3:]).region)
        if operation:
            rng = pairs.PairPlan(substrate.grid, 4, 0).random_stream(pair)
            rng.random(6)  # the six factors
            edit = edits.draw_edit(edits.OPERATIONS[operation], rng, edits.SHAPES3D_STRIPES, 64)
            np.testing.assert_array_equal(rendered.edited[pair], edit(source, region == support))


def test_two_hues_take_the_image_that_differs_in_both_and_an_overlay_is_laid_over_it(root, stored):
    substrate = shapes3d.open_substrate(request(root, operations=("hue", "invert"), pairs_per_cell=3, edits=2))
    rendered = substrate.render(range(36))
    for pair, combination in enumerate(substrate.cell):
        source, edited, region = (images[pair] for images in rendered)
        changes = [substrate.grid.axes(cell) for cell in substrate.grid.combinations(2)[combination]]
        inverted = np.isin(region, [support for support, operation in changes if operation == 1])
        np.testing.assert_array_equal(edited[inverted], 255 - source[inverted])
        # Elsewhere it is as in the image of the file that differs in the changed hues alone.
        before = np.array(scene_of(find(stored, source)))
        alike = np.flatnonzero((stored == edited)[:, ~inverted].all(axis=(1, 2)))
        changed = [np.flatnonzero(before != scene_of(number)).tolist() for number in alike]
        assert [support for support, operation in changes if operation == 0] in changed


def test_a_pair_does_not_depend_on_what_else_is_asked_for(root):
    whole = shapes3d.open_substrate(request(root)).render(range(60))
    part = shapes3d.open_substrate(request(root)).render([59, 0, 7])
    prefix = shapes3d.open_substrate(request(root, pairs_per_cell=3)).render(range(45))
    fewer = shapes3d.open_substrate(request(root, operations=("blur", "hue"))).render(range(24))
    for i, full in enumerate(whole):
        by_cell = full.reshape(3, 5, 4, *full.shape[1:])
        np.testing.assert_array_equal(part[i], full[[59, 0, 7]])
        np.testing.assert_array_equal(prefix[i], by_cell[:, :, :3].reshape(prefix[i].shape))
        np.testing.assert_array_equal(fewer[i], by_cell[:, [4, 0]].reshape(fewer[i].shape))


def test_defaults_are_the_papers(root):
    substrate = shapes3d.open_substrate(SubstrateRequest("shapes3d", data_root=str(root)))
    assert substrate.grid.cell_names[:4] == ("floor/hue", "floor/invert", "floor/pattern", "wall/hue")
    np.testing.assert_array_equal(substrate.cell, np.arange(3150) // 350)
    assert substrate.image_size == (64, 64)


def test_identity_tells_files_and_settings_apart(root, tmp_path):
    identity = shapes3d.open_substrate(request(root)).identity
    assert json.loads(json.dumps(identity))["name"] == "shapes3d"
    assert identity == shapes3d.open_substrate(request(root)).identity
    others = [request(root, data_seed=1), request(root, pairs_per_cell=3), request(write(tmp_path, smeared))]
    assert all(shapes3d.open_substrate(other).identity != identity for other in others)


# ---------------------------------------------------------------------------------------------- the file


@pytest.fixture
def reads(monkeypatch) -> list:
    """What is read of /images from now on, as tuples of slices."""
    seen = []
    read = h5py.Dataset.__getitem__

    def counted(dataset, selection, **options):
        if dataset.name == "/images":
            seen.append(selection)
        return read(dataset, selection, **options)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return seen


def test_only_what_is_needed_is_read_and_only_once(tmp_path, stored, reads):
    """One image per read where the file is not chunked."""
    substrate = shapes3d.open_substrate(
        request(write(tmp_path, chunks=None), operations=("hue", "blur"), pairs_per_cell=1)
    )
    assert not reads
    rendered = substrate.render(range(6))
    numbers = [selection[0].start for selection in reads]
    assert all(selection[0].stop == selection[0].start + 1 for selection in reads)
    assert len(set(numbers)) == len(numbers)
    shown = {find(stored, image) for image in rendered.source} | {find(stored, image) for image in rendered.edited[::2]}
    views = {scene_of(number)[3:] for number in shown}
    assert shown <= set(numbers)
    assert {scene_of(number)[3:] for number in numbers} == views
    # Four hues of floor and wall, three of the object; the plain scene is the same for all.
    assert len(numbers) <= len(shown) + len(views) * (4 + 4 + 3 - 2)
    substrate.render(range(6))
    assert len(reads) == len(numbers)


def test_every_chunk_is_read_at_most_once(root, reads):
    shapes3d.open_substrate(request(root, pairs_per_cell=50)).render([3, 0])
    chunks = [tuple(s.start // size for s, size in zip(selection, CHUNKS, strict=True)) for selection in reads]
    ends = [tuple((s.stop - 1) // size for s, size in zip(selection, CHUNKS, strict=True)) for selection in reads]
    assert chunks == ends
    assert len(set(chunks)) == len(chunks) == 16 * 16 * 3 * -(-np.prod(SIZES) // 100)


def test_chunks_do_not_change_what_is_read(root, tmp_path):
    chunked, whole = (
        shapes3d.open_substrate(request(r)).render(range(60)) for r in (root, write(tmp_path, chunks=None))
    )
    for one, other in zip(chunked, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def of_true_size(path: Path, sizes: tuple[int, ...]) -> Path:
    """480,000 images that take no room, and labels with factors of these sizes."""
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (480_000, 64, 64, 3), np.uint8, chunks=True)
        file.create_dataset("labels", data=np.indices(sizes, np.float64).reshape(6, -1).T)
    return path


def test_the_true_sizes_are_asserted_on_a_file_of_the_true_size(tmp_path):
    assert shapes3d.factor_sizes(of_true_size(tmp_path / "right.h5", (10, 10, 10, 8, 4, 15))) == lite.FACTOR_SIZES
    with pytest.raises(UserError, match=r"sizes \[10, 10, 10, 8, 15, 4\], not 480000 with \[10, 10, 10, 8, 4, 15\]"):
        shapes3d.factor_sizes(of_true_size(tmp_path / "wrong.h5", (10, 10, 10, 8, 15, 4)))


def test_h5pys_own_chunks_are_4_x_4_pixels_of_many_images(tmp_path):
    """What the reader is made for."""
    with h5py.File(of_true_size(tmp_path / "3dshapes.h5", (10, 10, 10, 8, 4, 15))) as file:
        assert file["images"].chunks == (15000, 4, 4, 1)


# --------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operations": ("hue", "inverted")}, "unknown operation 'inverted': did you mean 'invert'"),
        ({"pairs_per_cell": 0}, "at least 1"),
        ({"data_root": None}, "name its folder with --data-root"),
        ({"data_root": None}, "soopf data fetch shapes3d downloads it"),
        ({"data_root": "/nowhere"}, "no 3dshapes.h5 in /nowhere"),
    ],
)
def test_mistakes_get_one_line(root, fields, message):
    with pytest.raises(UserError, match=message):
        shapes3d.open_substrate(request(root, **fields))


def damaged(folder: Path, **arrays: np.ndarray) -> SubstrateRequest:
    with h5py.File(folder / "3dshapes.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return request(folder)


def test_files_of_another_layout_get_one_line(root, stored, tmp_path):
    small = stored[:, ::2, ::2]
    cases = [
        ({"images": stored}, "cannot be read as Shapes3D"),
        ({"images": stored.astype(np.float32), "labels": labels()}, "of float32"),
        ({"images": small, "labels": labels()}, r"32, 32, 3\] of uint8"),
        ({"images": stored, "labels": labels()[:, :5]}, r"labels \[480, 5\]"),
        ({"images": stored, "labels": labels()[:-1]}, r"labels \[479, 6\]"),
        ({"images": stored[:-1], "labels": labels()[:-1]}, r"479 images with factors of sizes \[4, 5, 3, 2, 2, 2\]"),
        ({"images": stored[:120], "labels": labels()[:120]}, r"120 images with factors of sizes \[1, "),
        ({"images": stored, "labels": labels()[::-1]}, "in another order"),
        ({"images": stored, "labels": np.random.default_rng(0).permutation(labels())}, "in another order"),
    ]
    for arrays, message in cases:
        with pytest.raises(UserError, match=message):
            shapes3d.open_substrate(damaged(tmp_path, **arrays))
    (tmp_path / "3dshapes.h5").write_bytes(b"<html>not found</html>")
    with pytest.raises(UserError, match="download it again"):
        shapes3d.open_substrate(request(tmp_path))


def test_a_damaged_chunk_gets_one_line(root, tmp_path):
    content = bytearray((root / "3dshapes.h5").read_bytes())
    with h5py.File(root / "3dshapes.h5") as file:
        chunk = file["images"].id.get_chunk_info(0)
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"?" * chunk.size
    (tmp_path / "3dshapes.h5").write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged .*; download it again"):
        shapes3d.open_substrate(request(tmp_path)).render([0])


def test_a_pair_beyond_the_last_is_an_error(root):
    for pair in (60, -1):
        with pytest.raises(IndexError):
            shapes3d.open_substrate(request(root)).render([pair])
