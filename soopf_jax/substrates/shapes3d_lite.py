"""`shapes3d-lite`: pairs of images with the factors of Shapes3D, drawn by our own ray caster.

A scene has a floor, three walls under a plain sky and one object in the middle. A camera orbits the object. The view
(scale, shape, orientation) determines which support each pixel shows and how much light it gets; the hues determine the
colours. There is one ray per pixel and no interreflection. So a pixel shows exactly one support, and an edit of that
support changes no other pixel. The bytes are the same on every machine: see `edits` and `raycast`.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int8

from soopf_jax.substrates import edits, pairs
from soopf_jax.substrates.pairs import Pair, Region
from soopf_jax.substrates.raycast import (
    Hit,
    Numbers,
    Rays,
    Vectors,
    box,
    disc,
    dot,
    nearest,
    plane,
    sphere,
    tube,
    unit,
)
from soopf_jax.types import Substrate, SubstrateRequest

SUPPORTS = ("floor", "wall", "object")
DEFAULT_PAIRS_PER_CELL = 350

# ------------------------------------------------------------------------------------ the factor space


class Scene(NamedTuple):
    """The factors of an image in the order of Shapes3D. Each is an index below its entry in FACTOR_SIZES."""

    floor_hue: int
    wall_hue: int
    object_hue: int
    scale: int
    shape: int
    orientation: int


FACTOR_SIZES = Scene(floor_hue=10, wall_hue=10, object_hue=10, scale=8, shape=4, orientation=15)

COLOURS = np.stack([edits.rotate_colour(np.array([255.0, 0.0, 0.0]), k / 10) for k in range(10)])
"""The ten hues of the data set as RGB in grey levels: saturated, and a tenth of a turn apart."""
SCALES = tuple(0.75 + 0.5 * k / 7 for k in range(8))
YAWS = tuple((60 * k / 14 - 30) / 360 for k in range(15))
"""How far the camera has orbited, in turns."""


def _cube(rays: Rays, scale: float) -> Hit:
    return box(rays, np.array([-0.5, -0.5, 0.0]) * scale, np.array([0.5, 0.5, 1.0]) * scale)


def _cylinder(rays: Rays, scale: float) -> Hit:
    return nearest(tube(rays, 0.0, scale, 0.5 * scale), disc(rays, scale, 0.5 * scale))


def _ball(rays: Rays, scale: float) -> Hit:
    return sphere(rays, 0.55 * scale, 0.55 * scale)


def _capsule(rays: Rays, scale: float) -> Hit:
    radius, low, high = 0.38 * scale, 0.38 * scale, 1.42 * scale
    return nearest(tube(rays, low, high, radius), sphere(rays, low, radius), sphere(rays, high, radius))


SHAPES: tuple[Callable[[Rays, float], Hit], ...] = (_cube, _cylinder, _ball, _capsule)
"""(rays, scale) -> where the rays hit the object, which stands on the floor at the origin."""

# --------------------------------------------------------------------------------------------- the room
# x points to the right, y away from the camera at yaw 0, and z up. The unit is the side of a cube of scale 1. The
# colour of the sky comes from the pictures in the repository of Shapes3D; sizes and lights were matched to them by eye.

SIZE = 64
SKY = np.array([153.0, 226.0, 249.0])
WALL_DISTANCE, WALL_HEIGHT = 2.9, 2.0
CAMERA_DISTANCE, CAMERA_HEIGHT = 3.8, 1.35
HALF_WIDTH = 0.414
"""Half the width of the picture at distance 1."""
HORIZON = 24.0
"""The row at the camera's height. It is above the middle, which shows more floor and keeps vertical lines vertical."""

LAMP = np.array([[-1.2], [0.6], [5.5]])
"""The centre of a square lamp. The object casts its shadow on the floor."""
LAMP_SPOTS = (
    LAMP
    + np.array(
        [((i + (j + 0.5) / 5) / 5 - 0.5, (j + (i + 0.5) / 5) / 5 - 0.5, 0.0) for i in range(5) for j in range(5)]
    ).T
)
"""25 points of the lamp, no two in line along its sides. They give 26 depths of shadow."""
FRONT = unit(np.array([[0.4], [-1.0], [0.0]]))
"""The direction towards a distant light on the camera's side."""
AMBIENT_LIGHT, LAMP_LIGHT, FRONT_LIGHT = 0.28, 0.68, 0.62


class View(NamedTuple):
    """Everything about an image except its hues."""

    region: Int8[np.ndarray, "64 64"]
    """The support in each pixel, -1 for the sky."""
    light: Float[np.ndarray, "64 64"]
    """The share of its colour that each pixel shows."""


@cache
def view(scale: int, shape: int, orientation: int) -> View:
    """Cast a ray through the centre of every pixel. The cache of all 480 views takes 18 MB."""
    rays = camera_rays(YAWS[orientation])

    def body(rays: Rays) -> Hit:
        return SHAPES[shape](rays, SCALES[scale])

    surfaces = floor(rays), walls(rays), body(rays)
    hit = nearest(*surfaces)
    sky = np.isinf(hit.distance)
    support = np.argmin(np.stack([surface.distance for surface in surfaces]), axis=0)
    region = np.where(sky, -1, support).astype(np.int8)

    points = rays.at(hit.distance)
    lamp = lambert(hit.normal, unit(LAMP - points))
    on_floor = region == SUPPORTS.index("floor")
    lamp[on_floor] *= lamp_in_sight(points[:, on_floor], body)
    light = AMBIENT_LIGHT + LAMP_LIGHT * lamp + FRONT_LIGHT * lambert(hit.normal, FRONT)
    light = np.where(sky, 1.0, np.minimum(light, 1.0))
    for shared in (region, light):
        shared.setflags(write=False)
    return View(region.reshape(SIZE, SIZE), light.reshape(SIZE, SIZE))


def camera_rays(yaw: float) -> Rays:
    """A ray through the centre of every pixel, row by row."""
    sine, cosine = edits.sin_turns(np.array([yaw, yaw + 0.25])).tolist()
    row, column = (index.ravel() + 0.5 for index in np.indices((SIZE, SIZE)))
    right = HALF_WIDTH * (column - SIZE / 2) / (SIZE / 2)
    up = HALF_WIDTH * (HORIZON - row) / (SIZE / 2)
    eye = np.array([[-CAMERA_DISTANCE * sine], [-CAMERA_DISTANCE * cosine], [CAMERA_HEIGHT]])
    return Rays(eye, np.stack([sine + right * cosine, cosine - right * sine, up]))


def floor(rays: Rays) -> Hit:
    """The endless floor."""
    return plane(rays, axis=2, position=0.0, facing=1.0)


def walls(rays: Rays) -> Hit:
    """The left, right and back wall."""
    hit = nearest(
        plane(rays, axis=0, position=-WALL_DISTANCE, facing=1.0),
        plane(rays, axis=0, position=WALL_DISTANCE, facing=-1.0),
        plane(rays, axis=1, position=WALL_DISTANCE, facing=-1.0),
    )
    above = rays.at(hit.distance)[2] > WALL_HEIGHT
    return Hit(np.where(above, np.inf, hit.distance), hit.normal)


def lambert(normal: Vectors, towards: Vectors) -> Numbers:
    """Lambert's cosine law, max(cosine, 0), smoothed around zero like the light of a wide lamp."""
    cosine = dot(normal, towards)
    return (cosine + np.sqrt(cosine * cosine + 0.04)) / 2


def lamp_in_sight(points: Vectors, body: Callable[[Rays], Hit]) -> Numbers:
    """The share of the lamp that each point sees past a body."""
    n_points, n_spots = points.shape[1], LAMP_SPOTS.shape[1]
    start = np.tile(points, n_spots)
    blocked = np.isfinite(body(Rays(start, np.repeat(LAMP_SPOTS, n_points, axis=1) - start)).distance)
    return 1.0 - np.count_nonzero(blocked.reshape(n_spots, n_points), axis=0) / n_spots


def draw_scene(scene: Scene) -> edits.Image:
    """The image with these factors."""
    region, light = view(*scene[3:])
    # The sky comes last: a region of -1 indexes it.
    colours = np.stack([*COLOURS[list(scene[:3])], SKY])
    return np.rint(light[:, :, None] * colours[region]).astype(np.uint8)


# -------------------------------------------------------------------------------------------- the pairs


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Pairs in the order of their cells."""
    pairs.refuse(request, "data_root")
    plan = pairs.plan(request, SUPPORTS, DEFAULT_PAIRS_PER_CELL)
    stage, cell = pairs.with_stripes_of(plan, make_stage(FACTOR_SIZES)), plan.cell

    def render_pair(pair: int) -> Pair:
        return pairs.render_draw(pairs.draw(plan, pair, stage), draw_scene, region_of)

    identity = {"name": "shapes3d-lite", "version": "1", **plan.settings}
    return Substrate(plan.grid, cell, (SIZE, SIZE), identity, pairs.render_each(render_pair, len(cell), (SIZE, SIZE)))


def region_of(scene: Scene) -> Region:
    """The support in each pixel of a scene's image."""
    return view(*scene[3:]).region


def make_stage(sizes: Scene) -> pairs.Stage[Scene]:
    """Scenes and edits in a factor space of these sizes."""
    return pairs.Stage(
        draw_scene=lambda rng: Scene(*(edits.integer(rng, 0, size - 1) for size in sizes)),
        scene_operations=("hue",),
        change_scene=lambda scene, support, _, rng: change_hue(scene, support, sizes[support], rng),
        stripes=edits.SHAPES3D_STRIPES,
        width=SIZE,
    )


def change_hue(scene: Scene, support: int, n_hues: int, rng: np.random.Generator) -> Scene:
    """The scene with another hue of one support; all other hues are equally likely."""
    return with_hue(scene, support, (scene[support] + edits.integer(rng, 1, n_hues - 1)) % n_hues)


def with_hue(scene: Scene, support: int, hue: int) -> Scene:
    """The scene with this hue of one support."""
    return scene._replace(**{f"{SUPPORTS[support]}_hue": hue})
