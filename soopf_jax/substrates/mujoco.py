"""`mujoco`: pairs of images of a room with one box in it, rendered by MuJoCo.

Hue, invert and texture change the material of the support, relight moves its lamp, and the scene is rendered again.
Pattern, brightness and blur change the pixels of the rendered image. No edit changes a pixel of another support:
MuJoCo's renderer casts shadows but reflects no light from surface to surface, and with one sample per pixel a pixel
shows exactly one support. A seed always gives the same bytes on one machine; other drivers may round differently.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.substrates import edits, pairs
from soopf_jax.substrates.edits import integer, uniform
from soopf_jax.types import ImagePairs, Substrate, SubstrateRequest

SUPPORTS = ("floor", "wall", "object")
SCENE_OPERATIONS = ("hue", "invert", "relight", "texture")
"""The operations that change the scene rather than the pixels."""
OPERATIONS = (*edits.OPERATIONS, "relight", "texture")
DEFAULT_PAIRS_PER_CELL = 350
SIZE = 256

# ------------------------------------------------------------------------------------------------ scenes
# Lengths are in metres. x points to the right, y away from the camera and z up; the origin is on the floor near the
# middle of the room. Ranges are [low, high). assets/mujoco_scene.xml holds what is the same in every scene.

SATURATION = VALUE = (0.5, 1.0)
BOX_X, BOX_Y = (-0.7, 0.7), (-0.4, 0.9)
BOX_HALF_WIDTH, BOX_HALF_HEIGHT = (0.35, 0.6), (0.3, 0.65)

CAMERA_AZIMUTH, CAMERA_ELEVATION, CAMERA_DISTANCE = (60.0, 120.0), (-30.0, -14.0), (3.8, 4.6)
"""In MuJoCo's degrees: a camera of azimuth 90 looks along y, and one of negative elevation looks down."""
TARGET_X, TARGET_Y, TARGET_Z = (-0.3, 0.3), (0.0, 0.4), (0.5, 0.8)

LAMP_CIRCLE, LAMP_HEIGHT = 2.5, (3.2, 4.2)
"""Lamps hang on a circle around the middle of the room."""
LAMP_POWER = (0.7, 0.9)
RELIGHT = (0.25, 0.75)
"""How far relight moves a lamp around its circle, in turns."""

TILES = {"floor": (8, 12, 16), "wall": (8, 12, 16), "object": (2, 3, 4)}
"""The numbers of tiles along the side of a face for which the scene file has a texture."""


class Camera(NamedTuple):
    """A camera that looks at a target."""

    azimuth: float
    elevation: float
    distance: float
    target: tuple[float, float, float]


class Lamp(NamedTuple):
    """The lamp that casts the shadow. It points at the box."""

    azimuth: float
    """Its position on the circle, in turns."""
    height: float
    power: float
    """The strength of its diffuse light. The fill light of the scene file adds at most 0.45."""


class Scene(NamedTuple):
    """Everything that an image shows. Entries per support are in the order of SUPPORTS."""

    colours: Float[np.ndarray, "3 3"]
    """The RGB of each support's material, in [0, 1]."""
    tiles: tuple[int, ...]
    """Tiles along the side of each support's faces, 0 for a plain material."""
    lamps: tuple[Lamp, ...]
    """For each support, the only lamp that lights it. In a source image all three are the same."""
    position: tuple[float, float]
    half_size: tuple[float, float, float]
    yaw: float
    """How far the box is turned about the vertical, in turns."""
    camera: Camera


def draw_scene(rng: np.random.Generator) -> Scene:
    """A random source scene: plain materials under one lamp."""
    lamp = Lamp(uniform(rng, 0.0, 1.0), uniform(rng, *LAMP_HEIGHT), uniform(rng, *LAMP_POWER))
    return Scene(
        colours=np.stack([_draw_colour(rng) for _ in SUPPORTS]),
        tiles=(0, 0, 0),
        lamps=(lamp, lamp, lamp),
        position=(uniform(rng, *BOX_X), uniform(rng, *BOX_Y)),
        half_size=(uniform(rng, *BOX_HALF_WIDTH), uniform(rng, *BOX_HALF_WIDTH), uniform(rng, *BOX_HALF_HEIGHT)),
        yaw=uniform(rng, 0.0, 0.5),
        camera=Camera(
            uniform(rng, *CAMERA_AZIMUTH),
            uniform(rng, *CAMERA_ELEVATION),
            uniform(rng, *CAMERA_DISTANCE),
            (uniform(rng, *TARGET_X), uniform(rng, *TARGET_Y), uniform(rng, *TARGET_Z)),
        ),
    )


def _draw_colour(rng: np.random.Generator) -> Float[np.ndarray, "3"]:
    """RGB of a random hue, saturation and value."""
    hue, saturation, value = uniform(rng, 0.0, 1.0), uniform(rng, *SATURATION), uniform(rng, *VALUE)
    weakest = value * (1 - saturation)
    return edits.rotate_colour(np.array([value, weakest, weakest]), hue)


def change_scene(scene: Scene, support: int, operation: str, rng: np.random.Generator) -> Scene:
    """The scene after one of SCENE_OPERATIONS, whose parameters are drawn here."""
    colours, tiles, lamps = scene.colours.copy(), list(scene.tiles), list(scene.lamps)
    match operation:
        case "hue":
            colours[support] = edits.rotate_colour(colours[support], uniform(rng, *edits.MUJOCO_HUE))
        case "invert":
            colours[support] = 1 - colours[support]
        case "relight":
            moved = lamps[support].azimuth + uniform(rng, *RELIGHT)
            lamps[support] = lamps[support]._replace(azimuth=moved % 1)
        case "texture":
            choices = TILES[SUPPORTS[support]]
            tiles[support] = choices[integer(rng, 0, len(choices) - 1)]
        case _:
            raise unknown_name("operation on a scene", operation, SCENE_OPERATIONS)
    return scene._replace(colours=colours, tiles=tuple(tiles), lamps=tuple(lamps))


# ------------------------------------------------------------------------------------------------- pairs


STAGE = pairs.Stage(draw_scene, SCENE_OPERATIONS, change_scene, edits.MUJOCO_STRIPES, SIZE)


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Pairs in the order of their cells."""
    pairs.refuse(request, "data_root")
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL, OPERATIONS)
    plugins.require("dataset 'mujoco'", "mujoco", "OpenGL")
    choose_backend()
    from soopf_jax.substrates import mujoco_room

    stage, cell = pairs.with_stripes_of(plan, STAGE), plan.cell

    def render(numbers: Sequence[int]) -> ImagePairs:
        with mujoco_room.open_room() as room:
            photograph, regions = partial(mujoco_room.photograph, room), partial(mujoco_room.regions, room)

            def render_pair(pair: int) -> pairs.Pair:
                return pairs.render_draw(pairs.draw(plan, pair, stage), photograph, regions)

            return pairs.render_each(render_pair, len(cell), (SIZE, SIZE))(numbers)

    identity = {"name": "mujoco", "version": "1", **plan.settings, **mujoco_room.identity()}
    return Substrate(plan.grid, cell, (SIZE, SIZE), identity, render)


# ------------------------------------------------------------------------------------------------ OpenGL

TRIAL = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).close()"


def choose_backend() -> None:
    """Set MUJOCO_GL to the first backend that works here. If the user has set it, only check that it works.

    Raises:
        UserError: No backend works.
    """
    # MuJoCo reads MUJOCO_GL when it is imported, and PyOpenGL keeps the first backend that it loads. Each backend is
    # therefore tried in a separate process. Systems other than Linux have only one backend.
    if "mujoco" in sys.modules or sys.platform != "linux":
        return
    asked = os.environ.get("MUJOCO_GL")
    for backend in (asked,) if asked else ("egl", "osmesa"):
        environment = os.environ | {"MUJOCO_GL": backend}
        if subprocess.run([sys.executable, "-P", "-c", TRIAL], env=environment, capture_output=True).returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return
    tried = f"MUJOCO_GL={asked} does not work" if asked else "neither EGL nor OSMesa works"
    remedy = "install the Debian packages libegl1 and libgl1, or libosmesa6"
    raise UserError(f"MuJoCo cannot render: {tried}; {'unset it, or ' if asked else ''}{remedy}")
