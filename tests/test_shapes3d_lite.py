"""The built-in substrate: regions against marched rays, light against scalar arithmetic, pairs against promises."""

import colorsys
import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from scipy.stats import chisquare

from soopf_jax.errors import UserError
from soopf_jax.substrates import edits
from soopf_jax.substrates import shapes3d_lite as lite
from soopf_jax.types import ImagePairs, SubstrateRequest

FLOOR, WALL, OBJECT = range(3)
CUBE, CYLINDER, BALL, CAPSULE = range(4)
FIVE = SubstrateRequest("shapes3d-lite", operations=edits.OPERATIONS, pairs_per_cell=4)
GOLDEN = "5bd5705254148fa5bb4f85626acea77dc397366f78c7b27a10c1e4c622977356"


def digest(pairs: ImagePairs) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in pairs)).hexdigest()


def golden_digest() -> str:
    """Four pairs of each of the fifteen cells."""
    return digest(lite.open_substrate(FIVE).render(range(60)))


def changed(pairs: ImagePairs) -> np.ndarray:
    return (pairs.source != pairs.edited).any(axis=3)


# ------------------------------------------------------------------------------------------------ views


def inside(shape: int, scale: float, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Whether points are in the object, from the definitions of the solids."""
    x, y, z = x / scale, y / scale, z / scale
    radius = np.hypot(x, y)
    return (
        (np.abs(x) <= 0.5) & (np.abs(y) <= 0.5) & (z <= 1),
        (radius <= 0.5) & (z <= 1),
        np.hypot(radius, z - 0.55) <= 0.55,
        np.hypot(radius, z - np.clip(z, 0.38, 1.42)) <= 0.38,
    )[shape]


@pytest.mark.parametrize(("shape", "scale", "orientation"), [(0, 7, 0), (1, 0, 4), (2, 5, 7), (3, 3, 14), (0, 2, 10)])
def test_regions_equal_rays_marched_step_by_step(shape, scale, orientation):
    yaw = math.radians(-30 + 60 * orientation / 14)
    row, column = np.mgrid[:64, :64] + 0.5
    right, up = 0.414 * (column - 32) / 32, 0.414 * (24 - row) / 32
    dx, dy = math.sin(yaw) + right * math.cos(yaw), math.cos(yaw) - right * math.sin(yaw)
    region = np.full((64, 64), -1)
    for depth in np.arange(1.0, 10.0, 0.004):
        x, y, z = depth * dx - 3.8 * math.sin(yaw), depth * dy - 3.8 * math.cos(yaw), depth * up + 1.35
        behind_wall = (np.abs(x) >= 2.9) | (y >= 2.9)
        new = np.select(
            [inside(shape, 0.75 + scale / 14, x, y, z), z <= 0, behind_wall & (z <= 2.0), behind_wall],
            [OBJECT, FLOOR, WALL, -2],
            -1,
        )
        region = np.where(region == -1, new, region)
    agreement = (np.maximum(region, -1) == lite.view(scale, shape, orientation).region).mean()
    assert agreement > 0.995  # a march of finite steps slips on silhouettes


def test_opposite_orientations_mirror_each_other():
    for orientation in range(15):
        region = lite.view(4, CUBE, orientation).region
        mirrored = lite.view(4, CUBE, 14 - orientation).region[:, ::-1]
        assert (region == mirrored).mean() > 0.999  # up to a ray that meets an edge


def test_every_view_shows_all_supports_and_larger_scales_show_more_object():
    counts = np.empty((8, 4, 15, 4), int)
    for index in np.ndindex(8, 4, 15):
        counts[index] = np.bincount(lite.view(*index).region.ravel() + 1, minlength=4)
    assert counts.min() >= 0.05 * 64 * 64  # sky, floor, wall and object alike
    assert (np.diff(counts[..., 1 + OBJECT], axis=0) > 0).all()


def test_light_by_hand():
    """Two pixels of the frontal view, the lamp unshaded, from the formula in scalar arithmetic."""
    light = lite.view(0, BALL, 7).light

    def soft(cosine: float) -> float:
        return (cosine + math.sqrt(cosine**2 + 0.04)) / 2

    # Row 60, column 2: the floor, 1.35 below the camera, under the lamp at height 5.5.
    depth = 1.35 / (0.414 * (60.5 - 24) / 32)
    x, y = depth * 0.414 * (2.5 - 32) / 32, depth - 3.8
    cosine = 5.5 / math.dist((x, y, 0), (-1.2, 0.6, 5.5))
    assert light[60, 2] == pytest.approx(min(1.0, 0.28 + 0.68 * soft(cosine) + 0.62 * soft(0)))
    # Row 30, column 50: the back wall at depth 6.7, facing the camera.
    x, z = 6.7 * 0.414 * (50.5 - 32) / 32, 1.35 - 6.7 * 0.414 * (30.5 - 24) / 32
    cosine = (2.9 - 0.6) / math.dist((x, 2.9, z), (-1.2, 0.6, 5.5))
    front = 1 / math.hypot(1, 0.4)
    assert light[30, 50] == pytest.approx(min(1.0, 0.28 + 0.68 * soft(cosine) + 0.62 * soft(front)))


@pytest.mark.parametrize(
    ("shape", "umbra"),
    # Beside the flat foot of a cube or cylinder; beneath the overhang of a ball or capsule, away from the lamp.
    [(CUBE, (0.52, 0)), (CYLINDER, (0.52, 0)), (BALL, (0.13, -0.07)), (CAPSULE, (0.13, -0.07))],
)
def test_the_shadow_is_dark_at_the_foot_soft_at_the_edge_and_ends(shape, umbra):
    def body(rays):
        return lite.SHAPES[shape](rays, 1.0)

    away_from_lamp = np.array([[1.2], [-0.6], [0.0]]) * np.linspace(0, 2, 401) + np.array([[*umbra, 0.0]]).T
    seen = lite.lamp_in_sight(away_from_lamp, body)
    assert seen[0] == 0
    assert seen[-1] == 1
    assert (np.diff(seen) >= 0).all()
    assert len(np.unique(seen)) > 10  # of 26


@pytest.mark.parametrize("shape", [CYLINDER, BALL, CAPSULE])
def test_round_objects_are_shaded_smoothly_and_cubes_by_face(shape):
    region, light = lite.view(5, shape, 3)
    assert np.ptp(light[region == OBJECT]) > 0.2
    assert len(np.unique(light[region == OBJECT])) > 100
    region, light = lite.view(5, CUBE, 0)
    row = light[40][region[40] == OBJECT]  # across two upright faces
    assert np.abs(np.diff(row)).max() > 0.1


# ----------------------------------------------------------------------------------------------- scenes


def test_an_image_is_its_colours_times_its_light():
    scene = lite.Scene(floor_hue=0, wall_hue=3, object_hue=6, scale=4, shape=BALL, orientation=2)
    image, (region, light) = lite.draw_scene(scene), lite.view(4, BALL, 2)
    for support, hue in ((FLOOR, 0.0), (WALL, 0.3), (OBJECT, 0.6)):
        pixels = image[region == support]
        expected = 255 * np.outer(light[region == support], colorsys.hsv_to_rgb(hue, 1, 1))
        assert np.abs(pixels - expected).max() <= 0.5 + 1e-9
    assert (image[region == -1] == (153, 226, 249)).all()
    assert (region[0] == -1).all()  # sky over the walls


# ------------------------------------------------------------------------------------------------ pairs


def test_defaults_are_the_papers():
    substrate = lite.open_substrate(SubstrateRequest("shapes3d-lite"))
    assert substrate.grid.cell_names[:4] == ("floor/hue", "floor/invert", "floor/pattern", "wall/hue")
    np.testing.assert_array_equal(substrate.cell, np.arange(3150) // 350)
    assert substrate.image_size == (64, 64)
    assert json.loads(json.dumps(substrate.identity)) == {
        "name": "shapes3d-lite",
        "version": "1",
        "operations": ["hue", "invert", "pattern"],
        "pairs_per_cell": 350,
        "data_seed": 0,
    }


def test_another_scale_of_stripes_changes_them_and_the_identity_and_nothing_else():
    request = FIVE._replace(pairs_per_cell=3)
    usual, other = (lite.open_substrate(r) for r in (request, request._replace(stripe_unit="radians", stripe_size=128)))
    assert other.identity == {**usual.identity, "stripe_unit": "radians", "stripe_size": 128}
    pairs, changed_pairs = usual.render(range(45)), other.render(range(45))
    differ = (pairs.edited != changed_pairs.edited).any(axis=(1, 2, 3))
    np.testing.assert_array_equal(differ, usual.grid.axes(usual.cell)[1] == 2)
    assert usual.grid.operations[2] == "pattern"
    with pytest.raises(UserError, match="choose a smaller one"):
        lite.open_substrate(request._replace(stripe_size=224))


def test_edits_change_their_region_and_nothing_else():
    substrate = lite.open_substrate(FIVE._replace(pairs_per_cell=20))
    pairs = substrate.render(range(300))
    support, operation = substrate.grid.axes(substrate.cell)
    region = pairs.region == support[:, None, None]
    assert not (changed(pairs) & ~region).any()
    assert changed(pairs).any(axis=(1, 2)).all()
    exact = np.isin(operation, (0, 1))  # a hue and an inversion leave no pixel as it was
    np.testing.assert_array_equal(changed(pairs)[exact], region[exact])
    inverted = operation == 1
    np.testing.assert_array_equal(
        pairs.edited[inverted][region[inverted]], 255 - pairs.source[inverted][region[inverted]]
    )


def test_a_pair_does_not_depend_on_what_else_is_asked_for():
    whole = lite.open_substrate(FIVE)
    pairs = whole.render(range(60))
    for chosen in ([7], [59, 0, 7], list(range(0, 60, 11))):
        for part, full in zip(whole.render(chosen), pairs, strict=True):
            np.testing.assert_array_equal(part, full[chosen])
    # A smaller number of pairs is a prefix of each cell; a smaller or reordered grid has the same cells.
    prefix = lite.open_substrate(FIVE._replace(pairs_per_cell=3)).render(range(45))
    np.testing.assert_array_equal(prefix.edited, pairs.edited.reshape(15, 4, 64, 64, 3)[:, :3].reshape(45, 64, 64, 3))
    fewer = lite.open_substrate(FIVE._replace(operations=("blur", "hue"))).render(range(24))
    by_cell = pairs.edited.reshape(3, 5, 4, 64, 64, 3)[:, [4, 0]]
    np.testing.assert_array_equal(fewer.edited, by_cell.reshape(24, 64, 64, 3))


def test_no_pairs_are_no_pairs():
    assert [array.shape for array in lite.open_substrate(FIVE).render([])] == [
        (0, 64, 64, 3),
        (0, 64, 64, 3),
        (0, 64, 64),
    ]


def test_all_pairs_of_all_seeds_differ():
    seeds = [lite.open_substrate(FIVE._replace(data_seed=seed)).render(range(60)) for seed in (0, 1)]
    sources = {image.tobytes() for pairs in seeds for image in pairs.source}
    assert len(sources) == 120


def test_hue_takes_each_of_the_nine_other_native_hues_equally_often():
    substrate = lite.open_substrate(SubstrateRequest("shapes3d-lite", operations=("hue", "invert")))
    offsets = []
    for support in range(3):
        pairs = substrate.render(range(700 * support, 700 * support + 350))
        for source, edited, region in zip(*pairs, strict=True):
            brightest = np.argmax(source.max(axis=2) * (region == support))
            before, after = (
                10 * colorsys.rgb_to_hsv(*image.reshape(-1, 3)[brightest] / 255)[0] for image in (source, edited)
            )
            assert abs(after - round(after)) < 0.05
            offsets.append(round(after - before) % 10)
    counts = np.bincount(offsets, minlength=10)
    assert counts[0] == 0
    assert chisquare(counts[1:]).pvalue > 1e-3


def test_factors_are_uniform():
    substrate = lite.open_substrate(SubstrateRequest("shapes3d-lite"))
    regions = substrate.render(np.flatnonzero(substrate.cell % 3 == 1).tolist()).region
    by_bytes = {lite.view(*index).region.tobytes(): index for index in np.ndindex(8, 4, 15)}
    drawn = np.array([by_bytes[region.tobytes()] for region in regions])
    for factor, size in ((0, 8), (1, 4), (2, 15)):
        assert chisquare(np.bincount(drawn[:, factor], minlength=size)).pvalue > 1e-3


# --------------------------------------------------------------------------------- the same bytes anywhere


def test_golden():
    assert golden_digest() == GOLDEN


def test_golden_without_simd_and_with_another_blas_kernel():
    optional = [feature for feature in __cpu_dispatch__ if __cpu_features__[feature]]
    program = (
        "import test_shapes3d_lite as t;"
        "print(t.golden_digest(), sum(t.__cpu_features__[f] for f in t.__cpu_dispatch__))"
    )
    environment = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(optional), "OPENBLAS_CORETYPE": "Nehalem"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [GOLDEN, "0"]


@pytest.mark.slow
def test_speed():
    """All 3,150 pairs from a cold start, by the processor's clock and without run-time shape checks."""
    program = """
import time
from soopf_jax.substrates.shapes3d_lite import open_substrate
from soopf_jax.types import SubstrateRequest
substrate = open_substrate(SubstrateRequest("shapes3d-lite"))
start = time.process_time()
for first in range(0, 3150, 126):
    substrate.render(range(first, first + 126))
print(3150 / (time.process_time() - start))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(run.stdout) > 300


# --------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"operations": ("hue", "inverted")}, "unknown operation 'inverted': did you mean 'invert'"),
        ({"operations": ("hue",)}, "at least two operations"),
        ({"operations": ("hue", "hue")}, "must differ"),
        ({"pairs_per_cell": 0}, "at least 1"),
        ({"data_root": "/data"}, "leave --data-root out"),
    ],
)
def test_mistakes_get_one_line(field, message):
    with pytest.raises(UserError, match=message):
        lite.open_substrate(SubstrateRequest("shapes3d-lite")._replace(**field))


def test_a_pair_beyond_the_last_is_an_error():
    with pytest.raises(IndexError):
        lite.open_substrate(FIVE).render([60])
