"""Surfaces against distances worked out by hand and against marching along the ray."""

import numpy as np
import pytest

from soopf_jax.substrates import raycast
from soopf_jax.substrates.raycast import Rays


def one_ray(origin, direction) -> Rays:
    return Rays(np.array(origin, float)[:, None], np.array(direction, float)[:, None])


def cube(rays):
    return raycast.box(rays, np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, 2.0]))


@pytest.mark.parametrize(
    ("surface", "origin", "direction", "distance", "normal"),
    [
        (lambda r: raycast.plane(r, 2, 0.0, 1.0), (3, 4, 6), (0, 0, -2), 3.0, (0, 0, 1)),
        (lambda r: raycast.plane(r, 0, 5.0, -1.0), (1, 0, 0), (1, 1, 0), 4.0, (-1, 0, 0)),
        (lambda r: raycast.disc(r, 1.0, 2.0), (0, 0, 3), (1, 0, -2), 1.0, (0, 0, 1)),
        (lambda r: raycast.sphere(r, 1.0, 1.0), (-5, 0, 1), (1, 0, 0), 4.0, (-1, 0, 0)),
        (lambda r: raycast.sphere(r, 1.0, 1.0), (0, 0, 9), (0, 0, -7), 1.0, (0, 0, 1)),
        (lambda r: raycast.tube(r, 0.0, 2.0, 3.0), (0, -7, 1), (0, 2, 0), 2.0, (0, -1, 0)),
        (cube, (-4, 0, 1), (1, 0, 0), 3.0, (-1, 0, 0)),
        (cube, (0.5, 0.5, 5), (0, 0, -1), 3.0, (0, 0, 1)),
    ],
)
def test_hits_by_hand(surface, origin, direction, distance, normal):
    hit = surface(one_ray(origin, direction))
    assert hit.distance.item() == pytest.approx(distance)
    np.testing.assert_allclose(hit.normal[:, 0], normal, atol=1e-12)


@pytest.mark.parametrize(
    ("surface", "origin", "direction"),
    [
        (lambda r: raycast.plane(r, 2, 0.0, 1.0), (0, 0, 1), (1, 0, 0)),  # parallel
        (lambda r: raycast.plane(r, 2, 0.0, 1.0), (0, 0, 1), (0, 0, 1)),  # behind
        (lambda r: raycast.plane(r, 2, 0.0, 1.0), (0, 0, -1), (0, 0, 1)),  # from the other side
        (
            lambda r: raycast.disc(r, 1.0, 2.0),
            (0, 0, 3),
            (2.1, 0, -2),
        ),  # beside it
        (lambda r: raycast.sphere(r, 1.0, 1.0), (-5, 0, 2.1), (1, 0, 0)),  # over it
        (lambda r: raycast.sphere(r, 1.0, 1.0), (5, 0, 1), (1, 0, 0)),  # behind
        (lambda r: raycast.tube(r, 0.0, 2.0, 3.0), (0, -7, 2.5), (0, 2, 0)),  # above its end
        (lambda r: raycast.tube(r, 0.0, 2.0, 3.0), (5, 0, 5), (0, 0, -1)),  # along it, outside
        (lambda r: raycast.tube(r, 0.0, 2.0, 3.0), (1, 0, 5), (0, 0, -1)),  # along it, inside
        (cube, (-4, 0, 2.1), (1, 0, 0)),  # over it, parallel to four faces
        (cube, (4, 0, 1), (1, 0, 0)),  # behind
    ],
)
def test_misses_by_hand(surface, origin, direction):
    assert np.isinf(surface(one_ray(origin, direction)).distance.item())


SOLIDS = {
    "cube": (cube, lambda x, y, z: (np.abs(x) <= 1) & (np.abs(y) <= 1) & (z >= 0) & (z <= 2)),
    "sphere": (lambda r: raycast.sphere(r, 1.0, 1.0), lambda x, y, z: x * x + y * y + (z - 1) ** 2 <= 1),
    "cylinder": (
        lambda r: raycast.nearest(raycast.tube(r, 0.0, 2.0, 1.0), raycast.disc(r, 2.0, 1.0)),
        lambda x, y, z: (x * x + y * y <= 1) & (z >= 0) & (z <= 2),
    ),
}


@pytest.mark.parametrize("solid", SOLIDS)
def test_first_hit_is_where_marching_enters_the_solid(solid):
    surface, inside = SOLIDS[solid]
    rng = np.random.default_rng(0)
    azimuth, height = rng.uniform(0, 2 * np.pi, 400), rng.uniform(0.5, 4, 400)
    origin = np.stack([4 * np.cos(azimuth), 4 * np.sin(azimuth), height])
    target = np.stack([rng.uniform(-1.5, 1.5, 400), rng.uniform(-1.5, 1.5, 400), rng.uniform(0, 2.5, 400)])
    rays = Rays(origin, raycast.unit(target - origin))
    hit = surface(rays)

    steps = np.arange(0, 10, 0.002)
    entered = inside(*(origin[:, :, None] + steps * rays.direction[:, :, None]))
    marched = np.where(entered.any(axis=1), steps[entered.argmax(axis=1)], np.inf)
    # From below the rim a ray may enter the cylinder through its base, which no picture shows.
    above_base = rays.at(np.where(np.isinf(marched), 0.0, marched))[2] > 0.01
    grazing = np.isinf(marched) != np.isinf(hit.distance)
    assert (grazing & above_base).mean() < 0.01
    both = np.isfinite(marched) & np.isfinite(hit.distance) & above_base
    assert both.sum() > 150
    assert np.abs(marched[both] - hit.distance[both]).max() <= 0.0021
    np.testing.assert_allclose(raycast.dot(hit.normal, hit.normal)[both], 1, atol=1e-12)
    assert (raycast.dot(hit.normal, rays.direction)[both] < 0).all()
