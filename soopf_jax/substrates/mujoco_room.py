"""Renders the scenes of the `mujoco` substrate: a Scene in, its picture or its map of supports out.

Importing this module imports mujoco, which reads MUJOCO_GL only at that moment. `mujoco.open_substrate` therefore sets
MUJOCO_GL before it imports this module.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Int8, UInt8
from OpenGL import GL  # type: ignore[import-untyped]

from soopf_jax.runtime.assets import asset
from soopf_jax.runtime.hashing import file_sha256
from soopf_jax.substrates.edits import Image
from soopf_jax.substrates.mujoco import LAMP_CIRCLE, SIZE, SUPPORTS, Lamp, Scene
from soopf_jax.substrates.pairs import Region
from soopf_jax.types import Json

DARK_TILE = 0.45
"""The brightness of every other tile, as a share of the material's colour."""


class Room(NamedTuple):
    """The loaded scene file and a rendering context. Only the thread that opened it may use it."""

    model: mujoco.MjModel
    data: mujoco.MjData
    renderer: mujoco.Renderer
    support: Int8[np.ndarray, "geoms+1"]
    """The support of each geom. The last entry, -1, stands for pixels without a geom."""


@contextmanager
def open_room() -> Iterator[Room]:
    """Open a room for one block. Threads share nothing, and everything is freed at the end of the block."""
    model = mujoco.MjModel.from_xml_path(str(scene_file()))
    support = [SUPPORTS.index(model.mat(material).name) for material in model.geom_matid]
    for texture in map(model.tex, range(model.ntex)):
        n_tiles = int(texture.name.removeprefix("tiles-"))
        texture.data[:] = tiles(n_tiles, texture.data.shape[1])
    with mujoco.Renderer(model, SIZE, SIZE, max_geom=model.ngeom) as renderer:
        yield Room(model, mujoco.MjData(model), renderer, np.array([*support, -1], np.int8))


def scene_file() -> Path:
    """The path of the room's description for MuJoCo."""
    return asset("mujoco_scene.xml")


def identity() -> Json:
    """Everything that determines the pixels of a given scene: the scene file, MuJoCo and the OpenGL driver."""
    with open_room():
        driver = [GL.glGetString(part).decode() for part in (GL.GL_VENDOR, GL.GL_RENDERER, GL.GL_VERSION)]
    return {
        "scene_file": file_sha256(scene_file()),
        "mujoco": mujoco.__version__,
        "opengl": ", ".join(driver),
    }


def tiles(n: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """A grey chessboard of n x n tiles for each face of a cube, one below the other. The material colours it."""
    row, column = np.indices((width, width)) * n // width
    board = np.where((row + column) % 2 == 0, 255, round(255 * DARK_TILE)).astype(np.uint8)
    return np.tile(board[:, :, None], (6, 1, 3))


# ---------------------------------------------------------------------------------------------- pictures


def photograph(room: Room, scene: Scene) -> Image:
    """The scene as the camera sees it, each support under its own lamp.

    A lamp of MuJoCo lights everything. Its surfaces reflect no light onto each other, so a support under a lamp of its
    own looks as it does when that lamp lights the whole room. The picture is put together from one picture per lamp.
    """
    first, *others = dict.fromkeys(scene.lamps)
    image = _photograph(room, scene, first)
    for lamp in others:
        lit = np.array([*(own == lamp for own in scene.lamps), False])
        pixels = lit[regions(room, scene)]
        image[pixels] = _photograph(room, scene, lamp)[pixels]
    return image


def regions(room: Room, scene: Scene) -> Region:
    """The support in each pixel, from MuJoCo's segmentation."""
    _arrange(room, scene, scene.lamps[0])
    room.renderer.enable_segmentation_rendering()
    geom = room.renderer.render()[:, :, 0]
    room.renderer.disable_segmentation_rendering()
    return room.support[geom]


def _photograph(room: Room, scene: Scene, lamp: Lamp) -> Image:
    _arrange(room, scene, lamp)
    # Decor casts no shadow. The room is convex and never shades itself. In the shadow map it would only cost time and
    # cause speckles where light meets a surface at a small angle.
    box, drawn = room.model.geom("box").id, room.renderer.scene
    for geom in drawn.geoms[: drawn.ngeom]:
        if geom.objid != box:
            geom.category = mujoco.mjtCatBit.mjCAT_DECOR
    return room.renderer.render()


def _arrange(room: Room, scene: Scene, lamp: Lamp) -> None:
    """Set everything that differs between scenes. Nothing of the previous scene remains."""
    model = room.model
    for support, name in enumerate(SUPPORTS):
        n_tiles = scene.tiles[support]
        material = model.mat(f"tiles-{n_tiles}" if n_tiles else name).id
        model.mat_rgba[material, :3] = scene.colours[support]
        model.geom_matid[room.support[:-1] == support] = material

    centre = np.array([*scene.position, scene.half_size[2]])
    model.geom("box").size = scene.half_size
    room.data.mocap_pos[0] = centre
    room.data.mocap_quat[0] = math.cos(math.pi * scene.yaw), 0, 0, math.sin(math.pi * scene.yaw)

    angle = 2 * math.pi * lamp.azimuth
    place = np.array([LAMP_CIRCLE * math.cos(angle), LAMP_CIRCLE * math.sin(angle), lamp.height])
    beam = centre - place
    light = model.light("lamp")
    light.pos = place
    light.dir = beam / np.linalg.norm(beam)
    light.diffuse = lamp.power

    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation, camera.distance, camera.lookat = scene.camera
    mujoco.mj_forward(model, room.data)
    room.renderer.update_scene(room.data, camera)
