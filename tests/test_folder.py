"""Folders of one's own pairs: the example of the documentation, then every way to get one wrong."""

import csv
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.substrates import folder
from soopf_jax.types import Substrate, SubstrateRequest

HEADER = ["source", "edited", "region", "support", "operation"]
KINDS = HEADER[:3]


def example() -> str:
    """The script in the module's documentation."""
    (script,) = re.findall(r"\n(    import csv\n.*?)\n`soopf run", folder.__doc__, flags=re.DOTALL)
    return textwrap.dedent(script)


def save(root: Path, name: str, source: np.ndarray, edited: np.ndarray, region: np.ndarray) -> None:
    for kind, image in zip(KINDS, (source, edited, region), strict=True):
        (root / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / kind / name)


def write(root: Path, rows: list[list[str]], header: list[str] = HEADER) -> Path:
    with (root / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return root


def small(root: Path, supports: tuple[str, ...] = ("sea", "sky"), operations: tuple[str, ...] = ("one", "two")) -> Path:
    """Three pairs of 4 x 6 pixels in each cell, in turn. Support k has row k; the last row has none."""
    rng = np.random.default_rng(0)
    region = np.full((len(supports) + 1, 6), 255, np.uint8)
    region[:-1] = np.arange(len(supports))[:, None]
    rows = []
    for number in range(3 * len(supports) * len(operations)):
        support, operation = divmod(number % (len(supports) * len(operations)), len(operations))
        source, edited = rng.integers(0, 256, (2, *region.shape, 3), np.uint8)
        save(root, f"{number}.png", source, edited, region)
        rows.append([f"{number}.png"] * 3 + [supports[support], operations[operation]])
    return write(root, rows)


def rows_of(root: Path) -> list[list[str]]:
    with (root / "pairs.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


def open_folder(root: Path, **fields) -> Substrate:
    return folder.open_substrate(SubstrateRequest(f"folder:{root}", **fields))


# ----------------------------------------------------------------------------------------------- reading


def test_the_documented_example_runs_and_is_what_it_says(tmp_path, monkeypatch):
    assert len([line for line in example().splitlines() if line]) <= 24
    subprocess.run([sys.executable, "-c", example()], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    substrate = plugins.resolve("dataset", plugins.SUBSTRATES, "folder:my-grid")(SubstrateRequest("folder:my-grid"))
    assert substrate.grid.cell_names == ("left/invert", "left/stripes", "right/invert", "right/stripes")
    assert np.bincount(substrate.cell).tolist() == [40] * 4
    assert substrate.image_size == (64, 64)
    source, edited, region = substrate.render(range(160))
    np.testing.assert_array_equal(region[:, :16], -1)
    np.testing.assert_array_equal(region[:, 16:, :32], 0)
    np.testing.assert_array_equal(region[:, 16:, 32:], 1)
    mask = region == (substrate.cell // 2)[:, None, None]
    inverted = (substrate.cell % 2 == 0)[:, None, None]
    np.testing.assert_array_equal(edited[~mask], source[~mask])
    np.testing.assert_array_equal(edited[mask & inverted], 255 - source[mask & inverted])
    change = edited.astype(int) - source
    np.testing.assert_array_equal(np.abs(change[mask & ~inverted]), 40)
    striped = change[substrate.cell % 2 == 1]
    assert not np.any(striped.reshape(-1, 64, 16, 4, 3).sum(axis=3)), "two columns brighter, two darker"


def test_pairs_come_in_the_order_of_the_table(tmp_path):
    substrate = open_folder(small(tmp_path))
    assert substrate.cell.tolist() == [0, 1, 2, 3] * 3
    assert substrate.image_size == (3, 6)
    source, edited, region = substrate.render([5, 0])
    for place, number in enumerate((5, 0)):
        np.testing.assert_array_equal(source[place], np.asarray(Image.open(tmp_path / "source" / f"{number}.png")))
        np.testing.assert_array_equal(edited[place], np.asarray(Image.open(tmp_path / "edited" / f"{number}.png")))
    assert region[0].tolist() == [[0] * 6, [1] * 6, [-1] * 6]
    assert region.dtype == np.int8


def test_supports_are_numbered_as_the_table_first_names_them(tmp_path):
    root = small(tmp_path, supports=("zebra", "ant", "moth", "bee"), operations=("two", "one"))
    grid = open_folder(root).grid
    assert grid.supports == ("zebra", "ant", "moth", "bee")
    assert grid.operations == ("two", "one")


def test_a_part_of_the_grid_and_of_the_pairs(tmp_path):
    root = small(tmp_path, operations=("one", "two", "three"))
    substrate = open_folder(root, operations=("three", "one"), pairs_per_cell=2)
    assert substrate.grid.cell_names == ("sea/three", "sea/one", "sky/three", "sky/one")
    # The table has sea/one, sea/two, sea/three, sky/one, ... in turn.
    assert substrate.cell.tolist() == [1, 0, 3, 2] * 2
    whole = open_folder(root).render(range(18))
    for part, full in zip(substrate.render(range(8)), whole, strict=True):
        np.testing.assert_array_equal(part, full[[0, 2, 3, 5, 6, 8, 9, 11]])


def test_files_may_serve_many_pairs_lie_in_subfolders_and_have_any_colour_mode(tmp_path):
    region = np.array([[0, 1]], np.uint8)
    grey, colour = np.array([[10, 20]], np.uint8), np.array([[[1, 2, 3, 4], [5, 6, 7, 8]]], np.uint8)
    for kind, image in (("source", grey), ("edited", colour), ("region", region)):
        (tmp_path / kind / "deep").mkdir(parents=True)
        Image.fromarray(image).save(tmp_path / kind / "deep" / "a.png")
    cells = [[s, o] for s in ("left", "right") for o in ("one", "two")]
    substrate = open_folder(write(tmp_path, [["deep/a.png"] * 3 + cell for cell in cells]))
    source, edited, region = substrate.render([3])
    assert source.tolist() == [[[[10] * 3, [20] * 3]]]
    assert edited.tolist() == [[[[1, 2, 3], [5, 6, 7]]]]
    assert region.tolist() == [[[0, 1]]]


def test_tables_as_spreadsheets_write_them(tmp_path):
    root = small(tmp_path)
    order = [4, 2, 1, 0, 3]
    lines = ["note," + ",".join(HEADER[i] for i in order)]
    lines += ["," + ", ".join(row[i] for i in order) for row in rows_of(root)] + [""]
    (root / "pairs.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert open_folder(root).cell.tolist() == [0, 1, 2, 3] * 3


def test_identity_follows_the_content_and_not_the_place(tmp_path):
    one, other = small(tmp_path / "one"), small(tmp_path / "other")
    assert open_folder(one).identity == open_folder(other).identity
    assert open_folder(one).identity["name"] == "folder"
    Image.new("RGB", (6, 3)).save(other / "edited" / "11.png")
    assert open_folder(one).identity != open_folder(other).identity
    assert open_folder(one).identity != open_folder(one, pairs_per_cell=2).identity


# --------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_root": "/data"}, "leave --data-root out"),
        ({"data_seed": 1}, "leave --data-seed out"),
        ({"operations": ("one", "tow")}, "unknown operation 'tow': did you mean 'two'"),
        ({"operations": ("one",)}, "at least two operations"),
        ({"pairs_per_cell": 0}, "ask for at least 1"),
        ({"pairs_per_cell": 4}, "cell sea/one has 3 pairs in pairs.csv, fewer than 4"),
    ],
)
def test_requests_that_cannot_be_met_get_one_line(tmp_path, fields, message):
    with pytest.raises(UserError, match=message):
        open_folder(small(tmp_path), **fields)


def test_no_folder_or_table_gets_one_line(tmp_path):
    with pytest.raises(UserError, match=r"nowhere/pairs.csv: No such file or directory; .* needs PATH/pairs.csv"):
        open_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column source, edited, region, support, operation"),
        ("source,edited,mask,support,operation\n", "no column region"),
        ("source,edited,region,support,operation\n", "at least two supports, not 0"),
        ("source,edited,region,support,operation\n0.png,0.png,0.png,sea\n", "line 2: a value is missing"),
        ("source,edited,region,support,operation\n0.png,0.png,,sea,one\n", "line 2: a value is missing"),
        ("source,edited,region,support,operation\n\xff,0.png,0.png,sea,one\n", "CSV in UTF-8"),
    ],
)
def test_bad_tables_get_one_line(tmp_path, text, message):
    (small(tmp_path) / "pairs.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        open_folder(tmp_path)


def test_an_empty_cell_gets_one_line(tmp_path):
    root = small(tmp_path)
    write(root, [row for row in rows_of(root) if row[3:] != ["sky", "one"]])
    with pytest.raises(UserError, match="cell sky/one has 0 pairs"):
        open_folder(root)


def test_names_with_slashes_are_no_trap(tmp_path):
    """`a/b` + `c` and `a` + `b/c` are two cells with one name."""
    root = small(tmp_path, supports=("a/b", "a"), operations=("c", "b/c"))
    assert np.bincount(open_folder(root).cell).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("name", ["../../secret.png", "/etc/hostname", "link.png"])
def test_files_outside_the_folder_are_not_read(tmp_path, name):
    root = small(tmp_path / "grid")
    Image.new("RGB", (6, 3)).save(tmp_path / "secret.png")
    (root / "source" / "link.png").symlink_to(tmp_path / "secret.png")
    write(root, [[name, *row[1:]] for row in rows_of(root)])
    with pytest.raises(UserError, match="outside"):
        open_folder(root)


def region_of(root: Path, region: np.ndarray | Image.Image) -> None:
    image = region if isinstance(region, Image.Image) else Image.fromarray(region)
    image.save(root / "region" / "7.png")


def test_bad_files_get_one_line_when_the_folder_is_opened(tmp_path):
    def check(message: str) -> None:
        with pytest.raises(UserError, match=message) as error:
            open_folder(tmp_path)
        assert "\n" not in str(error.value)
        small(tmp_path)

    small(tmp_path)
    (tmp_path / "edited" / "3.png").unlink()
    check(r"cannot read .*edited/3.png .*No such file")
    (tmp_path / "edited" / "3.png").write_text("no image")
    check(r"edited/3.png cannot be read as an image")
    Image.new("RGB", (7, 3)).save(tmp_path / "source" / "2.png")
    check(r"has \(6, 3\) pixels but .*source/2.png has \(7, 3\); make all images the same size")
    region_of(tmp_path, np.full((3, 6), 2, np.uint8))
    check(r"region/7.png holds 2; a region may hold only 0 = sea, 1 = sky, 255 = none")
    region_of(tmp_path, np.full((3, 6), 255, np.uint8))
    check(r"region/7.png has no pixel of sky, the edited support")
    region_of(tmp_path, Image.new("RGB", (6, 3)))
    check(r"region/7.png has mode RGB; save regions as 8-bit grey")
    whole = (tmp_path / "region" / "7.png").read_bytes()
    (tmp_path / "region" / "7.png").write_bytes(whole[:-30])
    check(r"region/7.png cannot be read as an image")
    open_folder(tmp_path)


def test_an_image_cut_short_gets_one_line_when_it_is_rendered(tmp_path):
    small(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (3, 6, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "edited" / "3.png")
    whole = (tmp_path / "edited" / "3.png").read_bytes()
    (tmp_path / "edited" / "3.png").write_bytes(whole[:-40])
    substrate = open_folder(tmp_path)
    substrate.render([2])
    with pytest.raises(UserError, match=r"edited/3.png cannot be read as an image"):
        substrate.render([3])


def test_a_pair_beyond_the_last_is_an_error(tmp_path):
    with pytest.raises(IndexError):
        open_folder(small(tmp_path)).render([12])
