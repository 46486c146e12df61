"""The look at a data set: measures worked out by hand, panels pixel by pixel, the command line."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soopf_jax.grid import Grid
from soopf_jax.runtime.palette import NO_SUPPORT_COLOUR, SUPPORT_COLOURS, region_colours
from soopf_jax.substrates.__main__ import main
from soopf_jax.substrates.look import measure
from soopf_jax.substrates.look.contact_sheet import FONT_SIZE, draw_panels, draw_sheet
from soopf_jax.substrates.shapes3d_lite import open_substrate
from soopf_jax.types import ImagePairs, Substrate, SubstrateRequest

GRID = Grid.of(["left", "right"], ["a", "b"])


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pair(source: np.ndarray, edited: np.ndarray, region: np.ndarray) -> ImagePairs:
    return ImagePairs(source[None].astype(np.uint8), edited[None].astype(np.uint8), region[None].astype(np.int8))


def plain(colour: tuple[int, int, int], height: int, width: int) -> np.ndarray:
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3))


# ---------------------------------------------------------------------------------------------- measures


def test_measures_by_hand() -> None:
    """2 x 2 pixels: the edited support 1 has the upper two, of which one changes by (3, 0, 30); one leaks by 6."""
    source = np.full((2, 2, 3), 100)
    edited = source.copy()
    edited[0, 0] = 103, 100, 70
    edited[1, 0] = 94, 100, 100
    region = np.array([[1, 1], [0, -1]])
    found = measure.measure(pair(source, edited, region), np.array([[False, True, False, False]]))
    assert found.inside == pytest.approx([(33 / 3 + 0) / 2])
    assert found.outside == pytest.approx([(6 / 3 + 0) / 2])
    assert found.changed == pytest.approx([2 / 4])
    np.testing.assert_allclose(found.shares, [[1 / 4, 2 / 4, 0, 1 / 4]])
    np.testing.assert_array_equal(found.source_range, [[100, 100]])
    np.testing.assert_array_equal(found.edited_range, [[70, 103]])


def test_a_support_that_has_no_pixel_or_every_pixel() -> None:
    source, region = np.zeros((2, 2, 3)), np.zeros((2, 2))
    found = measure.measure(pair(source, source + 9, region), np.array([[False, True, False]]))
    assert (found.inside.tolist(), found.outside.tolist()) == ([0.0], [9.0])
    found = measure.measure(pair(source, source + 9, region), np.array([[True, False, False]]))
    assert (found.inside.tolist(), found.outside.tolist()) == ([9.0], [0.0])


def test_the_hash_is_of_the_bytes_of_each_pair_in_turn_however_they_are_rendered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    substrate = open_substrate(SubstrateRequest("shapes3d-lite", pairs_per_cell=2))
    everything = substrate.render(range(18))
    expected = hashlib.sha256()
    for number in range(18):
        expected.update(everything.source[number].tobytes() + everything.edited[number].tobytes())
        expected.update(everything.region[number].tobytes())
    monkeypatch.setattr(measure, "PAIRS_PER_BLOCK", 5)
    calls: list[int] = []
    found = measure.survey(substrate, range(18), {3, 17}, calls.append)
    assert found.sha256 == expected.hexdigest()
    assert calls == [5, 5, 5, 3]
    assert sorted(found.kept) == [3, 17]
    np.testing.assert_array_equal(found.kept[17].edited[0], everything.edited[17])
    assert found.measures.inside.shape == (18,)


# ------------------------------------------------------------------------------------------------ panels


def test_small_images_are_repeated_pixel_by_pixel() -> None:
    rng = np.random.default_rng(0)
    source, edited = rng.integers(0, 256, (2, 4, 6, 3))
    region = rng.integers(-1, 3, (4, 6))
    panels = [np.asarray(panel) for panel in draw_panels(pair(source, edited, region), 3, 20)]
    np.testing.assert_array_equal(panels[0], source.repeat(3, axis=0).repeat(3, axis=1))
    np.testing.assert_array_equal(panels[1], edited.repeat(3, axis=0).repeat(3, axis=1))
    for y, x in np.ndindex(12, 18):
        colour = NO_SUPPORT_COLOUR if region[y // 3, x // 3] < 0 else SUPPORT_COLOURS[region[y // 3, x // 3]]
        assert "#{:02X}{:02X}{:02X}".format(*panels[3][y, x]) == colour


def test_large_images_shrink_by_blocks_and_all_panels_alike() -> None:
    source = np.zeros((5, 8, 3))
    source[:2, :2] = 40, 80, 120
    source[0, 0] = 0, 0, 0
    panels = draw_panels(pair(source, source, np.zeros((5, 8))), 2, 4)
    assert {panel.size for panel in panels} == {(4, 3)}
    assert panels[0].getpixel((0, 0)) == (30, 60, 90)  # the mean of the block


@pytest.mark.parametrize(("change", "shown"), [(0, 0), (1, 16), (64, 128), (255, 255)])
def test_the_difference_is_a_root_so_that_one_grey_level_shows(change: int, shown: int) -> None:
    source = np.full((2, 2, 3), 255)
    panel = draw_panels(pair(source, source - change, np.zeros((2, 2))), 2, 2)[2]
    assert panel.getpixel((0, 0)) == (shown, shown, shown)


def test_supports_have_colours_of_their_own() -> None:
    assert len({tuple(colour) for colour in region_colours(21).tolist()}) == 22


@pytest.mark.parametrize("size", [30, 90])  # smaller and larger than the word above it
def test_a_sheet_has_a_row_for_each_cell_and_a_legend(size: int) -> None:
    """Every image has a colour of its own: where it is on the sheet, and how large, is plain to see."""
    rows, region = {}, np.zeros((size, size))
    for cell, name in enumerate(GRID.cell_names):
        numbers = range(2 if cell else 1)  # the first cell has one pair only
        rows[name] = [pair(plain((cell, 7, n), size, size), plain((cell, 9, n), size, size), region) for n in numbers]
    sheet = np.asarray(draw_sheet("a title", GRID.supports, rows, size)).astype(int)

    def box(colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a colour, which must fill a rectangle."""
        y, x = np.nonzero((sheet == colour).all(axis=2))
        height, width = np.ptp(y) + 1, np.ptp(x) + 1
        assert len(y) == height * width
        return y.min(), x.min(), height, width

    sources = {(cell, n): box((cell, 7, n)) for cell in range(4) for n in range(2 if cell else 1)}
    edited = {key: box((key[0], 9, key[1])) for key in sources}
    assert {found[2:] for found in (*sources.values(), *edited.values())} == {(size, size)}
    assert all(edited[key][0] == sources[key][0] and edited[key][1] > sources[key][1] for key in sources)
    steps = {edited[key][1] - sources[key][1] for key in sources}
    assert len(steps) == 1
    assert steps.pop() - size <= 4
    tops = [sources[cell, 0][0] for cell in range(4)]
    assert np.all(np.diff(tops) > size)
    assert len({sources[cell, 0][1] for cell in range(4)}) == 1
    assert all(sources[cell, 1][1] > edited[cell, 0][1] and sources[cell, 1][0] == tops[cell] for cell in (1, 2, 3))

    def count(colour: str) -> int:
        return int((sheet == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=2).sum())

    assert count(SUPPORT_COLOURS[0]) == 7 * size**2 + FONT_SIZE**2
    assert count(SUPPORT_COLOURS[1]) == FONT_SIZE**2
    assert count(NO_SUPPORT_COLOUR) >= FONT_SIZE**2  # the smooth edges of letters are grey too


def test_a_long_title_is_not_cut_off() -> None:
    rows = {"a": [pair(np.zeros((2, 2, 3)), np.zeros((2, 2, 3)), np.zeros((2, 2)))]}
    assert draw_sheet("W" * 200, ["x"], rows, 2).width > draw_sheet("W" * 100, ["x"], rows, 2).width + 500


# ------------------------------------------------------------------------------------------ command line


def test_a_look_writes_the_picture_and_prints_counts_and_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes3d-lite", "--pairs-per-cell", "2", "--columns", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shapes3d-lite, version 1, data seed 0, soopf_jax ")
    assert lines[0].endswith(": 18 pairs of 64 x 64 pixels")
    floor_hue = lines[3].split()
    assert floor_hue[:2] == ["floor/hue", "2"]
    assert float(floor_hue[2]) > 10  # another hue
    assert floor_hue[3] == "0"  # shapes3d-lite changes nothing outside
    assert floor_hue[4] == floor_hue[5]  # every pixel of the floor changes
    assert [line.split()[0] for line in lines[3:12]] == [f"{s}/{o}" for s in SUPPORTS for o in OPERATIONS]
    assert lines[-1] == "picture: shapes3d-lite.png"
    substrate = open_substrate(SubstrateRequest("shapes3d-lite", pairs_per_cell=2))
    assert lines[-2].endswith(measure.survey(substrate, range(0, 18, 2), (), lambda n: None).sha256)
    assert lines[-2].startswith("sha256 of the 9 pairs shown (")
    with Image.open("shapes3d-lite.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 4 * 128
        assert picture.height > 9 * 128


SUPPORTS, OPERATIONS = ("floor", "wall", "object"), ("hue", "invert", "pattern")


def test_all_pairs_are_hashed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pairs-per-cell", "2", "--columns", "1", "--all-pairs", "--out", "deep/sheet.png"]) == 0
    hashed = capsys.readouterr().out.splitlines()[-2]
    substrate = open_substrate(SubstrateRequest("shapes3d-lite", pairs_per_cell=2))
    assert hashed.startswith("sha256 of all pairs ")
    assert hashed.endswith(measure.survey(substrate, range(18), (), lambda n: None).sha256)
    assert Path("deep/sheet.png").stat().st_size > 1000


def test_options_reach_the_substrate(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--pairs-per-cell", "1", "--operations", "blur", "hue", "--data-seed", "5", "--tile", "64"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "data seed 5" in out
    assert [line.split()[0] for line in out.splitlines()[3:9]] == [
        f"{s}/{o}" for s in SUPPORTS for o in ("blur", "hue")
    ]


def test_two_edits(capsys: pytest.CaptureFixture[str]) -> None:
    """Both edited supports count as inside: the three pairs of 3 supports, with 3 x 3 operations each."""
    assert main(["--edits", "two", "--pairs-per-cell", "1", "--columns", "1", "--tile", "64"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:30]]
    pairs_of_supports = (("floor", "wall"), ("floor", "object"), ("wall", "object"))
    expected = {f"{s}/{o}+{t}/{p}" for s, t in pairs_of_supports for o in OPERATIONS for p in OPERATIONS}
    assert {row[0] for row in rows} == expected
    assert all(row[3] == "0" and float(row[2]) > 10 for row in rows)


def lonely(request: SubstrateRequest) -> Substrate:
    """A plug-in that lacks the last cell."""
    return Substrate(GRID, np.array([0, 1, 2]), (2, 2), {}, lambda pairs: ImagePairs(*[np.empty(0)] * 3))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([f"{__name__}:lonely"], "no pair of right/b"),
        (["shapes3d-light"], "did you mean 'shapes3d-lite'?"),
        (["--columns", "0"], "--columns 0"),
        (["--tile", "0"], "--tile 0"),
        (["--edits", "three"], "choose from one, two"),
        (["--pairs-per-cell", "-1"], "--pairs-per-cell must be positive"),
        (["--out", "sheet.jpg"], "end it with .png"),
        (["--out", "/proc/sheet.png"], "cannot write to /proc"),
        (["--data-root", "x"], "leave --data-root out"),
        (["--colums", "2"], "did you mean --columns?"),
        (["fetch"], "fetch --help"),
        (["fetch", "cocoa"], "did you mean 'coco'?"),
        (["fetch", "coco:test2017"], "choose from coco, coco:train2017, coco:val2017, shapes3d"),
        (["fetch", "coco", "--coco-split", "val2017"], "write coco:val2017"),
        (["coco", "--coco-split", "val2017"], "write coco:val2017"),
    ],
)
def test_a_mistake_gets_one_line(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(Path().iterdir()) == []
