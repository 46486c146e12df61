"""The operations against colorsys, scipy, hand-worked pixels and exact integer arithmetic."""

import colorsys
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import gaussian_filter1d

from soopf_jax.errors import UserError
from soopf_jax.substrates import edits

IMAGES = arrays(np.uint8, (6, 5, 3))
MASKS = arrays(np.bool_, (6, 5))
EVERYWHERE = np.ones((6, 5), bool)


def grey(level: int, shape: tuple[int, int] = (4, 8)) -> np.ndarray:
    return np.full((*shape, 3), level, np.uint8)


@settings(deadline=None)
@given(IMAGES, MASKS, st.sampled_from(edits.OPERATIONS), st.integers(0, 10**6))
def test_nothing_changes_outside_the_mask_or_in_the_source(image, mask, operation, seed):
    rng = np.random.default_rng(seed)
    if operation == "hue":
        edit = partial(edits.rotate_hue, turns=edits.uniform(rng, *edits.COCO_HUE))
    else:
        edit = edits.draw_edit(operation, rng, edits.SHAPES3D_STRIPES, width=64)
    before = image.copy()
    edited = edit(image, mask)
    assert edited.dtype == np.uint8
    assert edited.shape == image.shape
    np.testing.assert_array_equal(edited[~mask], before[~mask])
    np.testing.assert_array_equal(image, before)


@settings(deadline=None)
@given(IMAGES, st.floats(-2, 2))
def test_hue_rotates_as_in_colorsys(image, turns):
    rotated = edits.rotate_hue(image, EVERYWHERE, turns)
    for before, after in zip(image.reshape(-1, 3), rotated.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(before / 255))
        expected = 255 * np.array(colorsys.hsv_to_rgb((h + turns) % 1, s, v))
        assert np.abs(after - expected).max() <= 0.5 + 1e-6
        assert (after.max(), after.min()) == (before.max(), before.min())  # S and V to the last bit


def test_hue_of_primaries_and_greys():
    image = np.array([[[200, 0, 0], [0, 200, 0], [0, 0, 200], [90, 90, 90]]], np.uint8)
    third = edits.rotate_hue(image, np.ones((1, 4), bool), 1 / 3)
    np.testing.assert_array_equal(third[0], [[0, 200, 0], [0, 0, 200], [200, 0, 0], [90, 90, 90]])


def test_invert_is_255_minus_x():
    image = np.array([[[0, 255, 100], [1, 2, 3]]], np.uint8)
    edited = edits.invert(image, np.array([[True, False]]))
    np.testing.assert_array_equal(edited, [[[255, 0, 155], [1, 2, 3]]])


def test_stripes_by_hand():
    across = edits.stripes(grey(100), np.ones((4, 8), bool), frequency=0.25, angle=0.0, phase=0.0, amplitude=40)
    np.testing.assert_array_equal(across, np.tile([100, 140, 100, 60, 100, 140, 100, 60], (3, 4, 1)).transpose(1, 2, 0))
    down = edits.stripes(grey(240), np.ones((4, 8), bool), frequency=0.25, angle=0.25, phase=0.0, amplitude=40)
    np.testing.assert_array_equal(down[:, 0, 1], [240, 255, 240, 200])  # clipped at 255
    start = edits.stripes(grey(10), np.ones((4, 8), bool), frequency=0.25, angle=0.0, phase=0.75, amplitude=40)
    np.testing.assert_array_equal(start[0, :4, 2], [0, 10, 50, 10])  # clipped at 0


@settings(deadline=None)
@given(st.floats(0.05, 0.5), st.floats(0, 0.5), st.floats(0, 1), st.integers(1, 100))
def test_stripes_equal_the_formula(frequency, angle, phase, amplitude):
    edited = edits.stripes(grey(128, (16, 16)), np.ones((16, 16), bool), frequency, angle, phase, amplitude)
    y, x = np.mgrid[:16, :16]
    t = 2 * np.pi * angle
    wave = amplitude * np.sin(2 * np.pi * (frequency * (x * np.cos(t) + y * np.sin(t)) + phase))
    assert np.abs(edited - (128 + wave)[:, :, None]).max() <= 0.5 + 1e-9


def test_brightness_clips_and_does_not_wrap():
    image = np.array([[[0, 100, 250]]], np.uint8)
    np.testing.assert_array_equal(edits.brightness(image, np.ones((1, 1), bool), 50), [[[50, 150, 255]]])
    np.testing.assert_array_equal(edits.brightness(image, np.ones((1, 1), bool), -50), [[[0, 50, 200]]])


@pytest.mark.parametrize("sigma", [0.3, 1.5, 2.9, 12.0])
def test_blur_equals_scipy(sigma):
    image = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    edited = edits.blur(image, np.ones((40, 64), bool), sigma)
    expected = image.astype(float)
    for axis in (0, 1):
        expected = gaussian_filter1d(expected, sigma, axis, mode="reflect", radius=int(np.ceil(3 * sigma)))
    assert np.abs(edited - expected).max() <= 0.5 + 0.01  # 0.01: weights are rounded to 22 bits


@settings(deadline=None)
@given(st.floats(0.3, 12), st.integers(0, 10**6))
def test_blur_is_exact_arithmetic(sigma, seed):
    image = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    rows, columns = (np.round(edits._blur_matrix(n, sigma) * 2**22).astype(np.int64) for n in (20, 24))
    exact = np.einsum("ij,jkc,lk->ilc", rows, image.astype(np.int64), columns)
    np.testing.assert_array_equal(edits.blur(image, np.ones((20, 24), bool), sigma), np.rint(exact / 2.0**44))
    np.testing.assert_array_equal(edits.blur(grey(77, (20, 24)), np.ones((20, 24), bool), sigma), grey(77, (20, 24)))


def test_blur_reads_the_whole_image_and_writes_the_mask():
    image = grey(0, (9, 9))
    image[4, 5] = 255
    mask = np.zeros((9, 9), bool)
    mask[4, 4] = True
    edited = edits.blur(image, mask, sigma=1.0)
    weight = np.exp(-(np.arange(-3, 4) ** 2) / 2)
    weight /= weight.sum()
    np.testing.assert_array_equal(edited[4, 4], np.round(255 * weight[3] * weight[2]))
    assert (edited != image).any(axis=2).sum() == 1


def test_sine_is_within_1e_15_and_periodic():
    x = np.linspace(-0.5, 0.5, 100_001)
    np.testing.assert_allclose(edits.sin_turns(x), np.sin(2 * np.pi * x), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(edits.sin_turns(np.array([0.0, 0.25, 0.5, -0.25, 0.75])), [0, 1, 0, -1, -1])
    dyadic = np.arange(-64, 64) / 128
    np.testing.assert_array_equal(edits.sin_turns(dyadic + 1000), edits.sin_turns(dyadic))


class Constant(np.random.Generator):
    """A generator that always draws the same real."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize(
    ("ranges", "least", "most"),
    [(edits.SHAPES3D_STRIPES, (0.15, 40), (0.45, 89)), (edits.MUJOCO_STRIPES, (0.08, 45), (0.22, 94))],
)
def test_ranges_are_half_open_and_amplitudes_inclusive(ranges, least, most):
    low = edits.draw_edit("pattern", Constant(0.0), ranges, width=64).keywords
    high = edits.draw_edit("pattern", Constant(1 - 2**-53), ranges, width=64).keywords
    assert (low["frequency"], low["amplitude"], low["angle"], low["phase"]) == (*least, 0, 0)
    assert (high["frequency"], high["amplitude"]) == (pytest.approx(most[0]), most[1])
    assert high["frequency"] < most[0]
    assert high["angle"] < 0.5
    assert high["phase"] < 1


@pytest.mark.parametrize(
    ("scale", "width", "frequency"),
    [
        (edits.StripeScale(), 64, (0.15, 0.45)),
        (edits.StripeScale("radians"), 64, (0.0238732, 0.0716197)),  # 0.15 / 6.28319, 0.45 / 6.28319
        (edits.StripeScale("cycles", 224), 256, (0.13125, 0.39375)),  # 0.875 of it
        (edits.StripeScale("radians", 512), 256, (0.0477465, 0.1432394)),
    ],
)
def test_the_frequency_of_stripes_in_other_units(scale, width, frequency):
    ranges = edits.scaled_stripes(edits.COCO_STRIPES, scale, width)
    assert ranges.frequency == pytest.approx(frequency, rel=1e-5)
    assert ranges.amplitude == edits.COCO_STRIPES.amplitude
    if scale == edits.StripeScale():
        assert ranges == edits.COCO_STRIPES, "exactly, so that stores keep their bytes"


def test_stripes_in_radians_per_pixel_follow_their_formula():
    """x + 40 sin(f x) with f in radians: the draw at the low end of the range has f = 0.15."""
    ranges = edits.scaled_stripes(edits.SHAPES3D_STRIPES, edits.StripeScale("radians"), 64)
    edit = edits.draw_edit("pattern", Constant(0.0), ranges, width=64)
    row = edit(grey(128, (1, 64)), np.ones((1, 64), bool))[0, :, 0]
    assert np.abs(row - (128 + 40 * np.sin(0.15 * np.arange(64)))).max() <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (edits.StripeScale("degrees"), "unknown unit of stripes 'degrees'"),
        (edits.StripeScale("radian"), "did you mean 'radians'"),
        (edits.StripeScale("cycles", 0), "must be positive"),
        (edits.StripeScale("cycles", 224), "up to 1.57 cycles per pixel of 64-pixel images, which show at most 0.5"),
    ],
)
def test_stripes_that_cannot_be_drawn_are_refused(scale, says):
    with pytest.raises(UserError, match=re.escape(says)):
        edits.scaled_stripes(edits.SHAPES3D_STRIPES, scale, 64)


def test_brightness_draws_every_level_both_ways_and_blur_scales_with_the_image():
    rng = np.random.default_rng(0)
    offsets = {edits.draw_edit("brightness", rng, edits.COCO_STRIPES, 64).keywords["offset"] for _ in range(5000)}
    assert offsets == {*range(-89, -39), *range(40, 90)}
    sigmas = [edits.draw_edit("blur", rng, edits.COCO_STRIPES, 256).keywords["sigma"] for _ in range(500)]
    assert 6 <= min(sigmas) < 6.1
    assert 11.9 < max(sigmas) < 12


@pytest.mark.parametrize("operation", ["hue", "inverse"])
def test_an_operation_that_is_not_on_pixels_is_refused(operation):
    with pytest.raises(UserError, match=f"'{operation}'.*choose from blur, brightness, invert, pattern"):
        edits.draw_edit(operation, np.random.default_rng(0), edits.COCO_STRIPES, 64)
