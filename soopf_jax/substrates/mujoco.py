"""`mujoco`: a room with one box in it, rendered by MuJoCo, and pairs of its images.

Edits are made where they belong. Hue, invert and texture change the support's material, relight moves its lamp, and
the scene is rendered again; pattern, brightness and blur are laid over the pixels. MuJoCo's renderer casts shadows
but carries no light from surface to surface, and with one sample per pixel a pixel shows exactly one support: no edit
changes a pixel of another support. A seed gives the same bytes on one machine; other drivers may round otherwise.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from soopf_jax import edits
from soopf_jax.edits import integer, uniform
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.substrates import pairs
from soopf_jax.types import ImagePairs, Substrate, SubstrateRequest

SUPPORTS = ("floor", "wall", "object")
SCENE_OPERATIONS = ("hue", "invert", "relight", "texture")
"""Those that change the scene rather than the pixels."""
OPERATIONS = (*edits.OPERATIONS, "relight", "texture")
DEFAULT_PAIRS_PER_CELL = 350
SIZE = 256

# ------------------------------------------------------------------------------------------------ scenes
# Metres; x is to the right, y away from the camera, z up, and the origin is on the floor near the middle of the room.
# Real ranges are [low, high). assets/mujoco_scene.xml holds what is the same in every scene.

SATURATION = VALUE = (0.5, 1.0)
BOX_X, BOX_Y = (-0.7, 0.7), (-0.4, 0.9)
BOX_HALF_WIDTH, BOX_HALF_HEIGHT = (0.35, 0.6), (0.3, 0.65)

CAMERA_AZIMUTH, CAMERA_ELEVATION, CAMERA_DISTANCE = (60.0, 120.0), (-30.0, -14.0), (3.8, 4.6)
"""Degrees as MuJoCo counts them: azimuth 90 looks along y, elevations below 0 look down."""
TARGET_X, TARGET_Y, TARGET_Z = (-0.3, 0.3), (0.0, 0.4), (0.5, 0.8)

LAMP_CIRCLE, LAMP_HEIGHT = 2.5, (3.2, 4.2)
"""Lamps hang on a circle around the middle of the room."""
LAMP_POWER = (0.7, 0.9)
RELIGHT = (0.25, 0.75)
"""How far relight moves a lamp around its circle, in turns."""

TILES = {"floor": (8, 12, 16), "wall": (8, 12, 16), "object": (2, 3, 4)}
"""Tiles along the side of a face, as the scene file has them."""


class Camera(NamedTuple):
    """A camera that looks at a target."""

    azimuth: float
    elevation: float
    distance: float
    target: tuple[float, float, float]


class Lamp(NamedTuple):
    """The lamp that casts the shadow. It shines at the box."""

    azimuth: float
    """Where it hangs on its circle, in turns."""
    height: float
    power: float
    """Its diffuse light; the scene file's fill light adds at most 0.45."""


class Scene(NamedTuple):
    """All of an image. Entries per support are in the order of SUPPORTS."""

    colours: Float[np.ndarray, "3 3"]
    """The RGB of each support's material, in [0, 1]."""
    tiles: tuple[int, ...]
    """Tiles along the side of each support's faces, 0 for a plain material."""
    lamps: tuple[Lamp, ...]
    """The lamp that each support is lit by, and no other is. In a source image they are the same."""
    position: tuple[float, float]
    half_size: tuple[float, float, float]
    yaw: float
    """Of the box, in turns."""
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
    """The scene after one of SCENE_OPERATIONS, its parameters drawn."""
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
    pairs.refuse(request, "data_root", "coco_split")
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL, OPERATIONS)
    choose_backend()
    from soopf_jax.substrates import mujoco_room

    cell = plan.cell

    def render(numbers: Sequence[int]) -> ImagePairs:
        with mujoco_room.open_room() as room:
            photograph, regions = partial(mujoco_room.photograph, room), partial(mujoco_room.regions, room)

            def render_pair(pair: int) -> pairs.Pair:
                return pairs.render_draw(pairs.draw(plan, pair, STAGE), photograph, regions)

            return pairs.render_each(render_pair, len(cell), (SIZE, SIZE))(numbers)

    identity = {"name": "mujoco", "version": "1", **plan.settings, **mujoco_room.identity()}
    return Substrate(plan.grid, cell, (SIZE, SIZE), identity, render)


# ------------------------------------------------------------------------------------------------ OpenGL

TRIAL = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).close()"


def choose_backend() -> None:
    """Sets MUJOCO_GL, unless the user did, to the first backend that renders here."""
    # MuJoCo reads MUJOCO_GL when it is imported, and PyOpenGL stays with the first backend it meets: a backend that
    # may fail is tried in a process of its own. Other systems than Linux have only one.
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
