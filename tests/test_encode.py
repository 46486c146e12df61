import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soopf_jax.features.encode import ahead, encode_blocks, region_fractions
from soopf_jax.types import EncoderRequest, SubstrateRequest, Window
from tests import tiny_parts


def test_ahead_is_map_in_order_and_a_bounded_number_of_items_ahead() -> None:
    taken = []
    results = ahead(lambda x: x * x, (taken.append(x) or x for x in range(20)), threads=2)
    for n, result in enumerate(results):
        assert result == n * n
        assert len(taken) <= n + 3
    assert taken == list(range(20))


def test_ahead_works_while_the_caller_does() -> None:
    second = threading.Event()
    results = ahead(lambda x: second.set() if x == 1 else None, range(3))
    next(results)
    assert second.wait(5)


def test_ahead_passes_an_error_on_and_stops() -> None:
    def fails(x: int) -> int:
        if x == 1:
            raise KeyError(x)
        return x

    results = ahead(fails, range(100))
    assert next(results) == 0
    with pytest.raises(KeyError):
        list(results)


def test_fractions_by_hand() -> None:
    region = np.array([[[0, 0, 1, -1], [0, 1, 1, 1]]])
    # Two rows of patches, two columns: each patch is one pixel high and two wide.
    found = region_fractions(region, Window(0.0, 0.0, 2.0, 4.0, 2, 2), 2)
    np.testing.assert_allclose(found, [[[1, 0], [0, 0.5], [0.5, 0.5], [0, 1]]])
    # One patch over columns 0.5 to 2.0 of row 0: half a pixel of 0, a pixel of 0, of 1.5 in all.
    found = region_fractions(region, Window(0.0, 0.5, 1.0, 1.5, 1, 1), 2)
    np.testing.assert_allclose(found, [[[1, 0]]])
    # One patch that reaches a whole pixel over every edge: 3 + 4 of 24 pixels.
    found = region_fractions(region, Window(-1.0, -1.0, 4.0, 6.0, 1, 1), 2)
    np.testing.assert_allclose(found, [[[3 / 24, 4 / 24]]], rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(-6, 20), st.integers(-6, 20), st.integers(1, 40), st.integers(1, 40)),
    st.integers(0, 2**32 - 1),
)
def test_fractions_equal_supersampling(shape, quarters, seed) -> None:
    """Edges on quarters of pixels and patches cut into pieces that never straddle a pixel: sampling is exact."""
    height, width, rows, columns = shape
    top, left, window_height, window_width = (quarter / 4 for quarter in quarters)
    region = np.random.default_rng(seed).integers(-1, 3, (2, height, width))
    found = region_fractions(region, Window(top, left, window_height, window_width, rows, columns), 3)
    fine = 4 * 12  # samples per pixel length; 12 is divisible by every number of rows and columns here
    y = np.floor(top + (np.arange(round(window_height * fine)) + 0.5) / fine).astype(int)
    x = np.floor(left + (np.arange(round(window_width * fine)) + 0.5) / fine).astype(int)
    inside = ((y >= 0) & (y < height))[:, None] & ((x >= 0) & (x < width))
    sampled = np.where(inside, region[:, y.clip(0, height - 1)][:, :, x.clip(0, width - 1)], -1)
    blocks = sampled.reshape(2, rows, len(y) // rows, columns, len(x) // columns)
    expected = np.stack([(blocks == s).mean(axis=(2, 4)).reshape(2, -1) for s in range(3)], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_encoder_in_two_stages_is_prepared_ahead_in_another_thread_and_gives_the_same_tokens() -> None:
    substrate = tiny_parts.open_substrate(SubstrateRequest("tiny"))
    whole = tiny_parts.open_encoder(EncoderRequest("tiny"))
    threads = {"prepare": set(), "forward": set()}

    def prepare(images: np.ndarray) -> list[np.ndarray]:
        threads["prepare"].add(threading.get_ident())
        return [images]

    def forward(prepared: list[np.ndarray]) -> np.ndarray:
        threads["forward"].add(threading.get_ident())
        return whole.encode(prepared[0])

    staged = whole._replace(encode=lambda images: pytest.fail("encode was called"), stages=(prepare, forward))
    for encoded, expected in zip(
        encode_blocks(substrate, staged, 0, 20, 16, "float32"),
        encode_blocks(substrate, whole, 0, 20, 16, "float32"),
        strict=True,
    ):
        for mine, theirs in zip(encoded[1], expected[1], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert threads["forward"] == {threading.get_ident()}
    assert threads["prepare"].isdisjoint(threads["forward"])
