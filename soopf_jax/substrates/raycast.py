"""Intersects rays with simple surfaces: rays in, distance and normal of each ray's first hit out.

Every sum is written out term by term. NumPy's elementwise + - * / and sqrt in float64 give the same result on every
machine, but the order of summation in its dot products may differ.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Vectors = Float[np.ndarray, "3 #rays"]
Numbers = Float[np.ndarray, "#rays"]

TINY = 1e-30
"""Replaces a zero divisor. The hit of a parallel ray is then very far away, but not infinitely far."""


class Rays(NamedTuple):
    """Half-lines `origin + distance * direction`, distance > 0. All rays may share one origin or one direction."""

    origin: Vectors
    direction: Vectors

    def at(self, distance: Numbers) -> Vectors:
        """The points at these distances; the origin for an infinite distance."""
        return self.origin + np.where(np.isfinite(distance), distance, 0.0) * self.direction


class Hit(NamedTuple):
    """Where rays first meet a surface, coming from outside."""

    distance: Numbers
    """In lengths of the ray's direction; infinity for a miss."""
    normal: Vectors
    """Points outwards and has length 1; meaningless for a miss."""


def dot(a: Vectors, b: Vectors) -> Numbers:
    """Inner products."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def unit(v: Vectors) -> Vectors:
    """The vectors scaled to length 1."""
    return v / np.sqrt(dot(v, v))


def nearest(*hits: Hit) -> Hit:
    """The first hit of each ray among several surfaces."""
    first, *others = hits
    for other in others:
        closer = other.distance < first.distance
        first = Hit(np.where(closer, other.distance, first.distance), np.where(closer, other.normal, first.normal))
    return first


def plane(rays: Rays, axis: int, position: float, facing: float) -> Hit:
    """The plane at `position` on an axis, seen from the side that it faces (+1 or -1)."""
    speed = rays.direction[axis]
    distance = (position - rays.origin[axis]) / np.where(speed == 0, TINY, speed)
    normal = np.zeros((3, 1))
    normal[axis] = facing
    return Hit(_ahead(distance, speed * facing < 0), normal)


def disc(rays: Rays, height: float, radius: float) -> Hit:
    """A horizontal disc around the vertical axis, seen from above."""
    distance, normal = plane(rays, axis=2, position=height, facing=1.0)
    x, y, _ = rays.at(distance)
    return Hit(_ahead(distance, x * x + y * y <= radius * radius), normal)


def sphere(rays: Rays, height: float, radius: float) -> Hit:
    """A sphere whose centre is on the vertical axis at this height."""
    centre = np.array([[0.0], [0.0], [height]])
    start, direction = rays.origin - centre, rays.direction
    distance = _first_root(dot(direction, direction), dot(start, direction), dot(start, start) - radius * radius)
    return Hit(distance, (rays.at(distance) - centre) / radius)


def tube(rays: Rays, low: float, high: float, radius: float) -> Hit:
    """The side of an upright cylinder around the vertical axis, between two heights."""
    (x, y, _), (dx, dy, _) = rays
    distance = _first_root(dx * dx + dy * dy, x * dx + y * dy, x * x + y * y - radius * radius)
    x, y, z = rays.at(distance)
    return Hit(_ahead(distance, (low <= z) & (z <= high)), np.stack([x, y, np.zeros_like(x)]) / radius)


def box(rays: Rays, low: Float[np.ndarray, "3"], high: Float[np.ndarray, "3"]) -> Hit:
    """A box along the axes, given by two opposite corners."""
    speed = np.where(rays.direction == 0, TINY, rays.direction)
    to_low, to_high = (low[:, None] - rays.origin) / speed, (high[:, None] - rays.origin) / speed
    enters, leaves = np.minimum(to_low, to_high), np.maximum(to_low, to_high)
    enter = np.maximum(np.maximum(enters[0], enters[1]), enters[2])
    leave = np.minimum(np.minimum(leaves[0], leaves[1]), leaves[2])
    return Hit(_ahead(enter, enter <= leave), np.where(enters == enter, -np.sign(speed), 0.0))


def _first_root(a: Numbers, half_b: Numbers, c: Numbers) -> Numbers:
    """The smaller root of `a t^2 + 2 half_b t + c` if it is real and positive, else infinity."""
    a = np.maximum(a, TINY)
    discriminant = half_b * half_b - a * c
    return _ahead((-half_b - np.sqrt(np.maximum(discriminant, 0.0))) / a, discriminant >= 0)


def _ahead(distance: Numbers, hit: Bool[np.ndarray, "#rays"]) -> Numbers:
    """The distance if there is a hit at a positive distance, else infinity."""
    return np.where(hit & (distance > 0), distance, np.inf)
