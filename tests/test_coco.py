"""COCO: regions against masks drawn by hand and by Pillow, the choice of photographs, and 153 real ones."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as run_lengths

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.substrates import coco, edits
from soopf_jax.substrates.coco_files import BACKGROUND, PERSON, VEHICLE, Outline, Photo
from soopf_jax.types import ImagePairs, Substrate, SubstrateRequest

MINI = Path(__file__).parents[2] / "shared" / "coco-mini"
needs_mini = pytest.mark.skipif(not MINI.exists(), reason=f"no real COCO images: {MINI} is not there")
REAL = SubstrateRequest("coco:val2017", data_root=str(MINI), pairs_per_cell=7)

CATEGORIES = [
    {"id": 1, "name": "person", "supercategory": "person"},
    {"id": 3, "name": "car", "supercategory": "vehicle"},
    {"id": 9, "name": "boat", "supercategory": "vehicle"},
    {"id": 18, "name": "dog", "supercategory": "animal"},
]


def rectangle(left: int, top: int, right: int, bottom: int) -> list[list[int]]:
    return [[left, top, right, top, right, bottom, left, bottom]]


def annotation(image_id: int, category: int, segmentation: Any, iscrowd: int = 0) -> dict[str, Any]:
    return {"image_id": image_id, "category_id": category, "segmentation": segmentation, "iscrowd": iscrowd}


def write(root: Path, images: dict[int, Image.Image], annotations: list[dict[str, Any]]) -> SubstrateRequest:
    """A split `tiny` in COCO's layout."""
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / "tiny").mkdir(exist_ok=True)
    entries = []
    for image_id, image in images.items():
        image.save(root / "tiny" / f"{image_id:012}.jpg", quality=95)
        entries.append(
            {"id": image_id, "file_name": f"{image_id:012}.jpg", "width": image.width, "height": image.height}
        )
    document = {"images": entries, "annotations": annotations, "categories": CATEGORIES}
    (root / "annotations" / "instances_tiny.json").write_text(json.dumps(document))
    return SubstrateRequest("coco:tiny", data_root=str(root))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


# ----------------------------------------------------------------------------------------------- regions


def uncompressed(mask: np.ndarray) -> dict[str, Any]:
    """COCO's run lengths as numbers, for crowds: column by column, beginning with zeros."""
    flat = mask.ravel(order="F").astype(int)
    edges = np.flatnonzero(np.diff(flat, prepend=0, append=1 - flat[-1]))
    return {"size": list(mask.shape), "counts": np.diff(edges, prepend=0).tolist()}


def test_a_region_by_hand():
    """512 x 256 pixels: the picture is columns 128 to 383 as they are."""
    crowd = np.zeros((256, 512), bool)
    crowd[200:230, 100:300] = True
    boat = np.zeros((256, 512), np.uint8, order="F")
    boat[0:30, 350:512] = 1
    outlines = [
        Outline(PERSON, rectangle(100, 40, 228, 140)),
        Outline(VEHICLE, rectangle(208, 100, 308, 220)),
        Outline(None, uncompressed(crowd)),  # a crowd covers what is nobody's, and leaves the car its pixels
        Outline(None, rectangle(118, 30, 148, 60)),  # a dog in front of the person takes nothing from them
        Outline(VEHICLE, run_lengths.encode(boat)),
    ]
    expected = np.full((256, 512), BACKGROUND)
    expected[200:230, 100:300] = -1
    expected[30:60, 118:148] = -1
    expected[40:140, 100:228] = PERSON
    expected[100:220, 208:308] = VEHICLE
    expected[100:140, 208:228] = -1  # person and car
    expected[0:30, 350:512] = VEHICLE
    np.testing.assert_array_equal(coco.find_region(Photo("", 256, 512, outlines)), expected[:, 128:384])


@pytest.mark.parametrize(("height", "width"), [(333, 500), (640, 427), (100, 91), (256, 256)])
def test_masks_are_resized_as_pillow_does_to_the_nearest_pixel(height, width):
    rng = np.random.default_rng(height)
    mask = np.asfortranarray(np.kron(rng.integers(0, 2, (20, 20)), np.ones((32, 32)))[:height, :width].astype(np.uint8))
    region = coco.find_region(Photo("", height, width, [Outline(PERSON, run_lengths.encode(mask))]))
    side = min(height, width)
    left, top = (width - side) // 2, (height - side) // 2
    square = Image.fromarray(mask).crop((left, top, left + side, top + side))
    expected = np.asarray(square.resize((256, 256), Image.Resampling.NEAREST)) == 1
    np.testing.assert_array_equal(region == PERSON, expected)
    np.testing.assert_array_equal(region == BACKGROUND, ~expected)


@pytest.mark.parametrize("segmentation", [[], [[]], [[1, 2, 3]], {}, {"size": [9, 9], "counts": [81]}, None, "ab"])
def test_outlines_that_are_none_get_one_line(segmentation):
    with pytest.raises(UserError, match=r"an outline of a.jpg .*; correct the annotations"):
        coco.find_region(Photo("a.jpg", 50, 50, [Outline(PERSON, segmentation)]))


def test_a_photograph_without_outlines_is_all_background():
    assert (coco.find_region(Photo("", 90, 120, [])) == BACKGROUND).all()


def test_a_support_needs_a_twentieth_of_the_picture():
    region = np.full(65536, BACKGROUND, np.int8)
    region[:3277] = PERSON  # 5 % are 3276.8
    region[3277:6553] = VEHICLE
    assert coco.enough(region.reshape(256, 256)).tolist() == [True, False, True]


# ------------------------------------------------------------------------------------------- photographs


def smooth(width: int, height: int) -> Image.Image:
    row, column = np.mgrid[:height, :width]
    channels = np.stack([255 * row / height, 255 * column / width, 255 - 255 * row / height], axis=2)
    return Image.fromarray(channels.astype(np.uint8))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_photographs_of_any_mode_come_out_square_and_in_rgb(tmp_path, mode):
    image = smooth(500, 333).convert(mode)
    image.save(tmp_path / "a.jpg", quality=100)
    square = coco.read_photo(tmp_path / "a.jpg", Photo("a.jpg", 333, 500, []))
    expected = image.convert("RGB").crop((83, 0, 416, 333)).resize((256, 256), Image.Resampling.BILINEAR)
    assert square.shape == (256, 256, 3)
    assert np.abs(square.astype(int) - np.asarray(expected)).max() <= 6  # JPEG
    if mode == "L":
        assert (square == square[:, :, :1]).all()


def test_a_note_to_turn_the_image_counts_only_where_the_outlines_were_drawn_on_the_turned_one(tmp_path):
    image = smooth(300, 200)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees, clockwise
    image.save(tmp_path / "a.jpg", quality=100, exif=exif)
    as_stored = coco.read_photo(tmp_path / "a.jpg", Photo("a.jpg", 200, 300, []))
    turned = coco.read_photo(tmp_path / "a.jpg", Photo("a.jpg", 300, 200, []))
    assert np.abs(np.rot90(as_stored, -1).astype(int) - turned).max() <= 1


def test_bad_photographs_get_one_line(tmp_path):
    noise(30, 20).save(tmp_path / "a.jpg")
    with pytest.raises(UserError, match=r"is \(30, 20\) pixels but annotated as \(31, 20\)"):
        coco.read_photo(tmp_path / "a.jpg", Photo("a.jpg", 20, 31, []))
    (tmp_path / "b.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:400])
    with pytest.raises(UserError, match=r"b.jpg cannot be read as an image"):
        coco.read_photo(tmp_path / "b.jpg", Photo("b.jpg", 20, 30, []))


# -------------------------------------------------------------------------------------- the choice of them


def write_many(root: Path, people: int, both: int, vehicles: int, empty: int) -> SubstrateRequest:
    """Photographs of 64 x 64: a person on the left, a vehicle on the right, each a quarter of the picture."""
    shown = [(True, False)] * people + [(True, True)] * both + [(False, True)] * vehicles + [(False, False)] * empty
    annotations = []
    for image_id, (person, vehicle) in enumerate(shown):
        if person:
            annotations.append(annotation(image_id, 1, rectangle(0, 0, 16, 64)))
        if vehicle:
            annotations.append(annotation(image_id, 9, rectangle(48, 0, 64, 64)))
    return write(root, {image_id: noise(64, 64, image_id) for image_id in range(len(shown))}, annotations)


def sources(request: SubstrateRequest) -> np.ndarray:
    substrate = coco.open_substrate(request)
    return substrate.render(range(len(substrate.cell))).source


def n_distinct(images: np.ndarray) -> int:
    return len({image.tobytes() for image in images})


def test_too_few_photographs_get_counts_and_the_number_that_works(tmp_path):
    # Person and vehicle have 12 between them: 6 each, 2 for each of 3 operations.
    request = write_many(tmp_path, people=3, both=7, vehicles=2, empty=20)
    with pytest.raises(UserError) as error:
        coco.open_substrate(request)
    assert str(error.value) == (
        "tiny has too few photographs for 300 pairs in each of 9 cells, none twice:"
        " 10 for person, 9 for vehicle, 32 for background; take --pairs-per-cell 2 or fewer"
    )
    assert n_distinct(sources(request._replace(pairs_per_cell=2))) == 18
    with pytest.raises(UserError, match="take --pairs-per-cell 2 or fewer"):
        coco.open_substrate(request._replace(pairs_per_cell=3))
    # With two operations the same photographs reach three pairs.
    assert n_distinct(sources(request._replace(pairs_per_cell=3, operations=("hue", "blur")))) == 18


def test_a_split_without_vehicles_cannot_be_used(tmp_path):
    with pytest.raises(UserError, match="0 for vehicle, 9 for background; take another split as coco:SPLIT"):
        coco.open_substrate(write_many(tmp_path, people=5, both=0, vehicles=0, empty=4))


def test_a_choice_depends_on_the_seed_and_fewer_pairs_are_the_first_of_more(tmp_path):
    request = write_many(tmp_path, people=40, both=20, vehicles=20, empty=60)._replace(pairs_per_cell=4)
    four = sources(request)
    np.testing.assert_array_equal(four, sources(request))
    assert not (four == sources(request._replace(data_seed=1))).all(axis=(1, 2, 3)).any()
    two = sources(request._replace(pairs_per_cell=2))
    np.testing.assert_array_equal(two, four.reshape(9, 4, 256, 256, 3)[:, :2].reshape(two.shape))


def test_hue_gets_no_photograph_in_black_and_white_while_there_are_others():
    grid = Grid.of(coco.SUPPORTS, ["invert", "hue", "blur"])
    picked = {0: [1, 2, 3, 4, 5, 6], 1: [11, 12, 13, 14, 15, 16], 2: [21, 22, 23, 24, 25, 26]}
    dealt = np.array(coco.deal(picked, grid, lambda image_id: image_id not in (2, 11, 12, 14, 15, 16)))
    # Rounds of three: 2 changes places with 1, 12 with 13; 14 to 16 are all grey and stay; the rest as picked.
    assert dealt.reshape(3, 3, 2).tolist() == [
        [[2, 4], [1, 5], [3, 6]],
        [[11, 14], [13, 15], [12, 16]],
        [[21, 24], [22, 25], [23, 26]],
    ]
    without_hue = coco.deal(picked, Grid.of(coco.SUPPORTS, ["invert", "blur", "pattern"]), lambda image_id: False)
    assert without_hue[:6] == [1, 4, 2, 5, 3, 6]


def test_black_and_white_is_told_from_colour(tmp_path):
    smooth(500, 333).save(tmp_path / "colour.jpg")
    smooth(500, 333).convert("L").save(tmp_path / "grey.jpg")
    smooth(500, 333).convert("L").convert("RGB").save(tmp_path / "grey-rgb.jpg")
    smooth(500, 333).convert("CMYK").save(tmp_path / "cmyk.jpg")
    names = ("colour.jpg", "grey.jpg", "grey-rgb.jpg", "cmyk.jpg")
    assert [coco.in_colour(tmp_path / name) for name in names] == [True, False, False, True]


def test_identity_follows_every_file_that_decides_the_pixels(tmp_path):
    request = write_many(tmp_path, people=3, both=0, vehicles=3, empty=3)._replace(pairs_per_cell=1)
    seen = [coco.open_substrate(request).identity]
    noise(64, 64, 99).save(tmp_path / "tiny" / f"{4:012}.jpg")
    seen.append(coco.open_substrate(request).identity)
    annotations = tmp_path / "annotations" / "instances_tiny.json"
    annotations.write_text(annotations.read_text() + " ")
    seen.append(coco.open_substrate(request).identity)
    assert len({json.dumps(identity, sort_keys=True) for identity in seen}) == 3
    assert seen[0]["name"] == "coco"


# --------------------------------------------------------------------------------------------- real images


@pytest.fixture(scope="module")
def real() -> tuple[Substrate, ImagePairs]:
    substrate = coco.open_substrate(REAL._replace(operations=edits.OPERATIONS, pairs_per_cell=2))
    return substrate, substrate.render(range(30))


@needs_mini
def test_the_largest_number_that_the_real_images_allow_works_and_no_source_occurs_twice(capsys):
    with pytest.raises(UserError, match="take --pairs-per-cell 7 or fewer"):
        coco.open_substrate(REAL._replace(pairs_per_cell=None))
    substrate = plugins.resolve("dataset", plugins.SUBSTRATES, "coco")(REAL)
    rendered = substrate.render(range(63))
    assert substrate.grid.cell_names[3:7] == ("vehicle/hue", "vehicle/invert", "vehicle/pattern", "background/hue")
    assert substrate.cell.tolist() == [cell for cell in range(9) for _ in range(7)]
    assert n_distinct(rendered.source) == 63
    assert (rendered.source != rendered.edited).any(axis=(1, 2, 3)).all()
    assert capsys.readouterr().out == ""


@needs_mini
def test_real_counts_against_pycocotools_own_reader(capsys):
    """The supports of every image once more, from full masks by COCO's own interface."""
    from pycocotools.coco import COCO

    reader = COCO(str(MINI / "annotations" / "instances_val2017.json"))
    photos = coco.read_annotations(MINI / "annotations" / "instances_val2017.json")
    vehicles = reader.getCatIds(supNms=["vehicle"])
    assert len(photos) == 153
    for image_id, photo in photos.items():
        masks = np.zeros((3, photo.height, photo.width), bool)
        for entry in reader.loadAnns(reader.getAnnIds(imgIds=[image_id])):
            kind = entry["category_id"]
            place = 2 if entry["iscrowd"] or kind not in (1, *vehicles) else int(kind in vehicles)
            masks[place] |= reader.annToMask(entry) == 1
        person, vehicle, _ = masks
        full = np.select([person & vehicle, person, vehicle, ~masks.any(axis=0)], [-1, 0, 1, 2], -1)
        rows, columns = coco.crop_lines(photo)
        np.testing.assert_array_equal(coco.find_region(photo), full[np.ix_(rows, columns)])


@needs_mini
def test_edits_change_their_region_and_nothing_else(real):
    substrate, rendered = real
    support, operation = substrate.grid.axes(substrate.cell)
    region = rendered.region == support[:, None, None]
    changed = (rendered.source != rendered.edited).any(axis=3)
    assert region.mean(axis=(1, 2)).min() >= 0.05
    assert not (changed & ~region).any()
    assert (changed.sum(axis=(1, 2)) > 0.5 * region.sum(axis=(1, 2)))[operation != 0].all()
    inverted = region & (operation == 1)[:, None, None]
    np.testing.assert_array_equal(rendered.edited[inverted], 255 - rendered.source[inverted])
    # A hue keeps the largest and the smallest channel.
    rotated = operation == 0
    for extreme in (np.max, np.min):
        np.testing.assert_array_equal(extreme(rendered.edited[rotated], 3), extreme(rendered.source[rotated], 3))


@needs_mini
def test_a_pair_does_not_depend_on_what_else_is_rendered(real):
    substrate, rendered = real
    for part, full in zip(substrate.render([29, 0, 7]), rendered, strict=True):
        np.testing.assert_array_equal(part, full[[29, 0, 7]])
    again = coco.open_substrate(REAL._replace(operations=edits.OPERATIONS, pairs_per_cell=2))
    assert again.identity == substrate.identity
    assert [hashlib.sha256(array).hexdigest() for array in again.render(range(30))] == [
        hashlib.sha256(array).hexdigest() for array in rendered
    ]


def test_hues_are_the_papers():
    rng = np.random.default_rng(0)
    turns = [coco.draw_edit("hue", rng).keywords["turns"] for _ in range(2000)]
    assert 0.15 <= min(turns) < 0.16
    assert 0.84 < max(turns) < 0.85


# --------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operations": ("hue", "inverted")}, "unknown operation 'inverted': did you mean 'invert'"),
        ({"pairs_per_cell": 0}, "at least 1"),
        ({"data_root": None}, r"reads annotations/instances_tiny.json and tiny/\*.jpg"),
        ({"data_root": "/nowhere"}, "there is no /nowhere/annotations/instances_tiny.json"),
        ({"name": "coco:val2017"}, "instances_val2017.json"),
        ({"name": "coco"}, "instances_train2017.json"),
        ({"name": "coco:"}, "write coco or, for example, coco:val2017"),
        ({"name": "coco:../train2017"}, "write coco or, for example, coco:val2017"),
    ],
)
def test_mistakes_get_one_line(tmp_path, fields, message):
    request = write_many(tmp_path, people=3, both=0, vehicles=3, empty=3)
    with pytest.raises(UserError, match=message):
        coco.open_substrate(request._replace(**fields))


def test_damaged_data_sets_get_one_line(tmp_path):
    request = write_many(tmp_path, people=3, both=0, vehicles=3, empty=3)._replace(pairs_per_cell=1)
    (tmp_path / "tiny" / f"{3:012}.jpg").unlink()
    with pytest.raises(UserError, match=r"cannot read .*000000000003.jpg: No such file"):
        coco.open_substrate(request)
    annotations = tmp_path / "annotations" / "instances_tiny.json"
    for text in ("{", "[]", '{"images": []}', "\xff"):
        annotations.write_text(text, encoding="latin-1")
        with pytest.raises(UserError, match="cannot be read as COCO instances"):
            coco.open_substrate(request)
