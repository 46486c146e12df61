"""The MuJoCo substrate: scenes against their ranges, regions and shadows against rays, pairs against promises."""

import colorsys
import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.runtime import assets
from soopf_jax.substrates import mujoco as module
from soopf_jax.substrates import pairs
from soopf_jax.substrates.mujoco import Lamp, Scene
from soopf_jax.types import ImagePairs, Substrate, SubstrateRequest

FLOOR, WALL, OBJECT = range(3)
HUE, INVERT, PATTERN, BRIGHTNESS, BLUR, RELIGHT, TEXTURE = range(7)
REQUEST = SubstrateRequest("mujoco", operations=module.OPERATIONS, pairs_per_cell=3)
N_PAIRS = 3 * 7 * 3


def draws(operation: str, n: int = 40) -> Iterator[tuple[Scene, int, Scene]]:
    """n pairs per support of an operation that changes the scene: scene, support, and the scene after the edit."""
    plan = pairs.plan(REQUEST._replace(pairs_per_cell=n), module.SUPPORTS, 350, module.OPERATIONS)
    for pair in range(len(plan.cell)):
        ((support, name),) = plan.edits_of(pair)
        if name == operation:
            drawn = pairs.draw(plan, pair, module.STAGE)
            assert drawn.overlays == ()
            yield drawn.scene, support, drawn.changed


def hsv(colour: np.ndarray) -> tuple[float, float, float]:
    return colorsys.rgb_to_hsv(*colour.tolist())


# --------------------------------------------------------------------------------- scenes, without OpenGL


def test_source_materials_are_saturated_and_bright_under_one_lamp():
    scenes = [scene for scene, _, _ in draws("hue")]
    colours = np.array([hsv(colour) for scene in scenes for colour in scene.colours])
    assert colours[:, 1:].min() >= 0.5 - 1e-12
    assert np.histogram(colours[:, 0], bins=6, range=(0, 1))[0].min() > 30  # 60 expected, with a deviation of 7
    assert all(len(set(scene.lamps)) == 1 and scene.tiles == (0, 0, 0) for scene in scenes)


def test_hue_rotates_the_material_by_a_quarter_to_three_quarters_of_a_turn():
    turns = []
    for scene, support, after in draws("hue"):
        old, new = hsv(scene.colours[support]), hsv(after.colours[support])
        assert new[1:] == pytest.approx(old[1:])
        turns.append((new[0] - old[0]) % 1)
    assert 0.25 - 1e-9 <= min(turns) < 0.3
    assert 0.7 < max(turns) < 0.75 + 1e-9


def test_invert_is_one_minus_the_material():
    for scene, support, after in draws("invert"):
        np.testing.assert_array_equal(after.colours[support], 1 - scene.colours[support])


def test_relight_moves_the_lamp_by_a_quarter_to_three_quarters_of_its_circle():
    for scene, support, after in draws("relight"):
        old, new = scene.lamps[support], after.lamps[support]
        assert 0.25 - 1e-9 <= (new.azimuth - old.azimuth) % 1 < 0.75 + 1e-9
        assert new[1:] == old[1:]


def test_texture_lays_every_number_of_tiles():
    laid = {(support, after.tiles[support]) for _, support, after in draws("texture")}
    room = {(support, n) for support in (FLOOR, WALL) for n in (8, 12, 16)}
    assert laid == room | {(OBJECT, n) for n in (2, 3, 4)}


@pytest.mark.parametrize(
    ("operation", "field"), [("hue", "colours"), ("invert", "colours"), ("relight", "lamps"), ("texture", "tiles")]
)
def test_an_edit_of_the_scene_changes_one_property_of_one_support(operation, field):
    for scene, support, after in draws(operation):
        for name in Scene._fields:
            if name != field:
                np.testing.assert_equal(getattr(after, name), getattr(scene, name))
        entries = zip(getattr(scene, field), getattr(after, field), strict=True)
        assert [np.array_equal(old, new) for old, new in entries] == [s != support for s in range(3)]


# ------------------------------------------------------------------------------------ pictures against rays


@pytest.fixture(scope="module")
def opened() -> Substrate:
    try:
        return module.open_substrate(REQUEST)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def rooms(opened):
    """The module that renders, importable once MUJOCO_GL is set."""
    from soopf_jax.substrates import mujoco_room

    return mujoco_room


@pytest.fixture(scope="module")
def room(rooms):
    with rooms.open_room() as room:
        yield room


class Box:
    """A box turned around the vertical."""

    def __init__(self, support: int, centre, half, yaw: float = 0.0) -> None:
        self.support, self.centre, self.half = support, np.array(centre), np.array(half)
        c, s = np.cos(2 * np.pi * yaw), np.sin(2 * np.pi * yaw)
        self.axes = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])

    def entry(self, start: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """How many directions away a ray from outside enters, by the slab method; inf if it does not."""
        local_start, local_direction = (start - self.centre) @ self.axes, direction @ self.axes
        with np.errstate(divide="ignore"):
            sides = (np.stack([-self.half, self.half])[:, None] - local_start) / local_direction
        near, far = sides.min(axis=0).max(axis=-1), sides.max(axis=0).min(axis=-1)
        return np.where((near < far) & (near > 0), near, np.inf)


def boxes(rooms, scene: Scene) -> list[Box]:
    """The walls and the floor as the file has them, and the box of the scene."""

    def numbers(geom, name):
        return [float(word) for word in geom.get(name).split()]

    geoms = ET.parse(rooms.scene_file()).findall(".//geom[@pos]")
    room = [Box(module.SUPPORTS.index(g.get("material")), numbers(g, "pos"), numbers(g, "size")) for g in geoms]
    return [*room, Box(OBJECT, [*scene.position, scene.half_size[2]], scene.half_size, scene.yaw)]


def camera_rays(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """The eye, and the direction through the centre of every pixel."""
    azimuth, elevation = np.radians([scene.camera.azimuth, scene.camera.elevation])
    forward = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0])
    up = np.cross(right, forward)
    offset = (np.arange(256) + 0.5 - 128) / 128 * np.tan(np.radians(45 / 2))
    direction = forward + offset[None, :, None] * right - offset[:, None, None] * up
    return np.array(scene.camera.target) - scene.camera.distance * forward, direction.reshape(-1, 3)


def lamp_place(lamp: Lamp) -> np.ndarray:
    angle = 2 * np.pi * lamp.azimuth
    return np.array([2.5 * np.cos(angle), 2.5 * np.sin(angle), lamp.height])


def test_regions_equal_rays_cast_through_the_boxes(rooms, room):
    for scene, _, _ in draws("hue", 2):
        eye, direction = camera_rays(scene)
        solids = boxes(rooms, scene)
        first = np.argmin([box.entry(eye, direction) for box in solids], axis=0)
        expected = np.array([box.support for box in solids])[first].reshape(256, 256)
        assert (rooms.regions(room, scene) == expected).mean() > 0.998  # silhouettes may round either way


def test_the_shadow_on_the_floor_is_where_the_box_hides_the_lamp(rooms, room):
    both = either = 0
    for scene, _, _ in draws("hue", 2):
        off = tuple(lamp._replace(power=0.0) for lamp in scene.lamps)
        lit, unlit = rooms.photograph(room, scene), rooms.photograph(room, scene._replace(lamps=off))
        on_floor = rooms.regions(room, scene) == FLOOR
        dark = (lit == unlit)[on_floor].all(axis=1)

        floor, *_, box = boxes(rooms, scene)
        eye, direction = camera_rays(scene)
        direction = direction[on_floor.ravel()]
        points = eye + floor.entry(eye, direction)[:, None] * direction
        hidden = box.entry(points, lamp_place(scene.lamps[0]) - points) < 1
        both, either = both + (dark & hidden).sum(), either + (dark | hidden).sum()
    assert both / either > 0.97


def test_the_shadow_map_holds_every_box(rooms):
    """The largest box, as near to a lamp as one can be, is within the angle that the map covers."""
    file = ET.parse(rooms.scene_file())
    cutoff = float(file.find(".//light[@name='lamp']").get("cutoff"))
    scale = float(file.find(".//map").get("shadowscale"))
    widths, heights = module.BOX_HALF_WIDTH, module.BOX_HALF_HEIGHT
    radius = np.linalg.norm([widths[1], widths[1], heights[1]])
    farthest_out = np.hypot(np.abs(module.BOX_X).max(), np.abs(module.BOX_Y).max())
    distance = np.hypot(module.LAMP_CIRCLE - farthest_out, module.LAMP_HEIGHT[0] - heights[1])
    assert np.degrees(np.arcsin(radius / distance)) < cutoff * scale


def test_a_pixel_is_its_material_times_the_light_plus_a_highlight(rooms, room):
    """Affine in the colour: black and grey pictures predict a coloured one, up to 8-bit rounding of two passes."""
    for scene, _, _ in draws("hue", 1):
        colours = 0.6 * scene.colours

        def picture(colours, scene=scene):
            return rooms.photograph(room, scene._replace(colours=colours)).astype(float)

        highlight, grey = picture(np.zeros((3, 3))), picture(np.full((3, 3), 0.6))
        material = colours[rooms.regions(room, scene)]
        expected = highlight + material / 0.6 * (grey - highlight)
        assert np.abs(picture(colours) - expected).max() <= 3


def test_a_lamp_lights_its_own_support_only(rooms, room):
    for scene, support, linked in draws("relight", 1):
        everything = scene._replace(lamps=(linked.lamps[support],) * 3)
        own = (rooms.regions(room, scene) == support)[:, :, None]
        expected = np.where(own, rooms.photograph(room, everything), rooms.photograph(room, scene))
        np.testing.assert_array_equal(rooms.photograph(room, linked), expected)


def test_tiles_by_hand(rooms):
    light, dark = 255, 115  # 0.45 * 255 = 114.75
    face = [
        [light, light, dark, dark],
        [light, light, dark, dark],
        [dark, dark, light, light],
        [dark, dark, light, light],
    ]
    np.testing.assert_array_equal(rooms.tiles(2, 4)[:, :, 0], np.tile(face, (6, 1)))


# --------------------------------------------------------------------------------------------------- pairs


@pytest.fixture(scope="module")
def rendered(opened) -> ImagePairs:
    """Three pairs of each of the 21 cells."""
    return opened.render(range(N_PAIRS))


def change_and_region(opened, rendered) -> tuple[np.ndarray, np.ndarray]:
    """Pixels that an edit changed, and pixels of the edited support."""
    support, _ = opened.grid.axes(opened.cell)
    return (rendered.source != rendered.edited).any(axis=3), rendered.region == support[:, None, None]


def test_defaults_are_the_papers(opened):
    default = module.open_substrate(SubstrateRequest("mujoco"))
    assert default.grid.cell_names[:4] == ("floor/hue", "floor/invert", "floor/pattern", "wall/hue")
    np.testing.assert_array_equal(default.cell, np.arange(3150) // 350)
    assert default.image_size == (256, 256)
    identity = json.loads(json.dumps(default.identity))
    assert (identity["name"], identity["pairs_per_cell"], identity["data_seed"]) == ("mujoco", 350, 0)
    assert {"mujoco", "opengl", "scene_file"} < identity.keys()


def test_every_image_shows_all_supports_and_nothing_else(rooms, room):
    for scene, _, _ in draws("hue", 60):
        counts = np.bincount(rooms.regions(room, scene).ravel() + 1, minlength=4)
        assert counts[0] == 0
        assert counts[1:].min() >= 0.03 * 256 * 256


def test_no_edit_changes_another_support(opened, rendered):
    """Exactly: overlays are masked; re-rendered pixels show one surface each, and surfaces pass no light on."""
    changed, region = change_and_region(opened, rendered)
    assert not (changed & ~region).any()
    assert changed.any(axis=(1, 2)).all()


def test_the_pixels_that_hue_and_invert_change_are_the_region(opened, rendered):
    """The light that reaches any surface, at least 0.3, shows any change of a material that is at least 1/3."""
    changed, region = change_and_region(opened, rendered)
    _, operation = opened.grid.axes(opened.cell)
    chosen = np.isin(operation, (HUE, INVERT))
    np.testing.assert_array_equal(changed[chosen], region[chosen])


def test_texture_darkens_about_half_of_the_support(opened, rendered):
    _, operation = opened.grid.axes(opened.cell)
    _, region = change_and_region(opened, rendered)
    for pair in np.flatnonzero(operation == TEXTURE):
        before, after = (image[pair][region[pair]].max(axis=1) for image in (rendered.source, rendered.edited))
        share = after / before
        light, dark = np.abs(share - 1) < 0.03, np.abs(share - 0.45) < 0.03
        assert (light | dark).mean() > 0.5  # the rest are edges of tiles
        assert 0.3 < dark.sum() / (light | dark).sum() < 0.7


def test_relight_keeps_the_hue_of_unclipped_pixels(opened, rendered):
    _, operation = opened.grid.axes(opened.cell)
    changed, _ = change_and_region(opened, rendered)
    for pair in np.flatnonzero(operation == RELIGHT):
        before, after = rendered.source[pair].astype(int), rendered.edited[pair].astype(int)
        sure = changed[pair] & (np.maximum(before, after).max(axis=2) < 255)
        strongest = (before.argmax(axis=2) == after.argmax(axis=2))[sure]
        assert strongest.mean() > 0.95  # two channels may be all but equal


def test_of_two_edits_each_support_looks_as_if_it_alone_were_edited(rooms, room):
    """Hues, lamps and textures in one scene, and stripes over it."""
    request = REQUEST._replace(operations=("hue", "pattern", "relight", "texture"), pairs_per_cell=1, edits=2)
    substrate = module.open_substrate(request)
    assert len(substrate.cell) == 48
    plan = pairs.plan(request, module.SUPPORTS, 350, module.OPERATIONS)
    chosen = range(0, 48, 5)
    for pair, (source, edited, region) in zip(chosen, zip(*substrate.render(chosen), strict=True), strict=True):
        drawn = pairs.draw(plan, pair, module.STAGE)
        overlays = dict(drawn.overlays)
        expected = source.copy()
        for support, _ in plan.edits_of(pair):
            mask = region == support
            if support in overlays:
                alone = overlays[support](source, mask)
            else:
                properties = zip(drawn.scene[:3], drawn.changed[:3], strict=True)
                own = [[(old, new)[s == support][s] for s in range(3)] for old, new in properties]
                alone = rooms.photograph(
                    room, drawn.scene._replace(colours=np.stack(own[0]), tiles=own[1], lamps=own[2])
                )
            assert (alone != source)[mask].any()
            expected[mask] = alone[mask]
        np.testing.assert_array_equal(edited, expected)


def test_a_pair_does_not_depend_on_what_else_is_asked_for(opened, rendered):
    for chosen in ([7], [62, 0, 7], [55, 54]):
        for part, full in zip(opened.render(chosen), rendered, strict=True):
            np.testing.assert_array_equal(part, full[chosen])
    # A smaller number of pairs is a prefix of each cell; a smaller or reordered grid has the same cells.
    fewer = module.open_substrate(REQUEST._replace(operations=("texture", "hue"), pairs_per_cell=1)).render([2, 3])
    wall_texture, wall_hue = (3 * (7 * WALL + operation) for operation in (TEXTURE, HUE))
    np.testing.assert_array_equal(fewer.edited, rendered.edited[[wall_texture, wall_hue]])
    assert opened.render([]).source.shape == (0, 256, 256, 3)
    with pytest.raises(IndexError):
        opened.render([N_PAIRS])


def test_threads_render_side_by_side(opened, rendered):
    with ThreadPoolExecutor(2) as pool:
        for first, pairs in zip((0, 30, 60), pool.map(opened.render, ([0, 1], [30, 31], [60, 61])), strict=True):
            np.testing.assert_array_equal(pairs.edited, rendered.edited[first : first + 2])


def test_another_process_gives_the_same_bytes_and_ends_quietly(rendered):
    program = f"""
import hashlib, sys
from soopf_jax.substrates.mujoco import open_substrate
from soopf_jax.types import SubstrateRequest
assert "mujoco" not in sys.modules
pairs = open_substrate(SubstrateRequest("mujoco", {module.OPERATIONS}, 3)).render(range(0, {N_PAIRS}, 5))
print(hashlib.sha256(b"".join(array.tobytes() for array in pairs)).hexdigest())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    expected = hashlib.sha256(b"".join(array[::5].tobytes() for array in rendered)).hexdigest()
    assert (run.stdout.strip(), run.stderr) == (expected, "")


@pytest.mark.slow
def test_speed(opened):
    """All 3,150 pairs within three minutes of the two cores of a small machine, by the processor's clock."""
    program = """
import time
from soopf_jax.substrates.mujoco import open_substrate
from soopf_jax.types import SubstrateRequest
substrate = open_substrate(SubstrateRequest("mujoco"))
start = time.process_time()
for first in range(0, 3150, 450):
    substrate.render(range(first, first + 32))
print(3150 * (time.process_time() - start) / (7 * 32))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 180


# ------------------------------------------------------------------------------------ backends and mistakes


@pytest.mark.parametrize(("working", "chosen"), [({"egl", "osmesa"}, "egl"), ({"osmesa"}, "osmesa")])
def test_egl_comes_first_then_osmesa(monkeypatch, working, chosen):
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setattr(
        module.subprocess, "run", lambda command, env, **_: SimpleNamespace(returncode=env["MUJOCO_GL"] not in working)
    )
    module.choose_backend()
    assert os.environ["MUJOCO_GL"] == chosen


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        # MuJoCo refuses both of its headless backends when PyOpenGL is told to use a third.
        ({"MUJOCO_GL": "", "PYOPENGL_PLATFORM": "glx"}, "neither EGL nor OSMesa works; install the Debian packages"),
        ({"MUJOCO_GL": "vulkan"}, "MUJOCO_GL=vulkan does not work; unset it, or install the Debian packages"),
    ],
)
def test_where_nothing_renders_the_packages_are_named(monkeypatch, setting, message):
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message + " libegl1 and libgl1, or libosmesa6"):
        module.open_substrate(REQUEST)


def test_an_installed_package_has_its_own_scene_file(rooms, monkeypatch, tmp_path):
    package = tmp_path / "soopf_jax"
    (package / "assets").mkdir(parents=True)
    (package / "assets" / "mujoco_scene.xml").touch()
    monkeypatch.setattr(assets, "__file__", str(package / "runtime" / "assets.py"))
    assert rooms.scene_file() == package / "assets" / "mujoco_scene.xml"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"operations": ("hue", "relit")}, "unknown operation 'relit': did you mean 'relight'"),
        ({"operations": ("hue",)}, "at least two operations"),
        ({"operations": ()}, "at least two operations"),
        ({"pairs_per_cell": 0}, "at least 1"),
        ({"data_root": "/data"}, "leave --data-root out"),
    ],
)
def test_mistakes_get_one_line(field, message):
    with pytest.raises(UserError, match=message):
        module.open_substrate(REQUEST._replace(**field))
