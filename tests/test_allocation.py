"""The allocation of images: against scipy's bipartite matching, and what it promises of order and fairness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from soopf_jax.substrates.allocation import allocate, most_rounds

TABLES = hnp.arrays(bool, st.tuples(st.integers(1, 14), st.integers(1, 4)))


def run(table: np.ndarray, rounds: int, seed: int = 0) -> dict[int, list[int]] | None:
    rng = np.random.default_rng(seed)
    wishes = {support: rng.permutation(len(table)).tolist() for support in rng.permutation(table.shape[1]).tolist()}
    return allocate(wishes, rounds, lambda image, support: bool(table[image, support]))


@given(TABLES, st.integers(1, 5), st.integers(0, 3))
def test_there_is_an_allocation_exactly_when_scipy_finds_a_matching(table, rounds, seed):
    """Each support is `rounds` vertices of a bipartite graph; all of them must be matched."""
    vertices = csr_matrix(np.repeat(table.T, rounds, axis=0).astype(int))
    matched = int((maximum_bipartite_matching(vertices, perm_type="column") >= 0).sum())
    picked = run(table, rounds, seed)
    assert (picked is not None) == (matched == rounds * table.shape[1])
    assert (most_rounds(table) >= rounds) == (picked is not None)
    if picked is not None:
        assert {support: len(images) for support, images in picked.items()} == dict.fromkeys(
            range(table.shape[1]), rounds
        )
        images = [image for images in picked.values() for image in images]
        assert len(set(images)) == len(images)
        assert all(table[image, support] for support, images in picked.items() for image in images)


def test_a_chain_of_three_supports_is_rearranged():
    # 0 can use only image 0, 1 only 0 and 1, 2 all; 2 takes 0 first, 1 takes 1, so 0 makes 2 give way.
    table = np.array([[True, True, True], [False, True, True], [False, False, True]])
    picked = allocate({2: [0, 1, 2], 1: [0, 1, 2], 0: [0, 1, 2]}, 1, lambda image, support: bool(table[image, support]))
    assert picked == {2: [2], 1: [1], 0: [0]}


def test_turns_by_hand():
    # Without shortage the first in each round has the first choice, and takes what others would have liked.
    everything = allocate({1: [5, 6, 7, 8], 0: [5, 7, 6, 8]}, 2, lambda image, support: True)
    assert everything == {1: [5, 6], 0: [7, 8]}


def test_a_longer_allocation_begins_with_a_shorter_one_while_nobody_runs_out():
    table = np.random.default_rng(1).random((400, 3)) < (0.5, 0.3, 0.9)
    long = run(table, 30)
    for rounds in (1, 7, 29):
        assert run(table, rounds) == {support: images[:rounds] for support, images in long.items()}


def test_every_support_gets_a_fair_sample():
    """Of the images that supports 0 and 1 can both use, 1 gets its share: being asked second costs it little."""
    both = np.arange(2000) < 400
    table = np.stack([both, np.arange(2000) < 1000], axis=1)
    shares = [np.mean([image < 400 for image in run(table, 50, seed)[1]]) for seed in range(40)]
    # 400 of 1,000, less about half of the 50 that support 0 takes meanwhile.
    assert np.mean(shares) == pytest.approx(375 / 975, abs=4 * np.sqrt(0.24 / 2000))


def test_images_are_looked_at_only_when_needed():
    asked = []
    allocate({0: list(range(1000))}, 10, lambda image, support: not asked.append(image))
    assert asked == list(range(10))


def test_most_rounds_by_hand():
    # 10 images for 0, the same 10 and one more for 1: each has enough for 10 rounds, together for 5.
    table = np.zeros((30, 3), bool)
    table[:10, 0] = table[:11, 1] = table[:, 2] = True
    assert most_rounds(table) == 5
    assert most_rounds(table[:, [0, 2]]) == 10
    assert most_rounds(table[:11]) == 3
    assert most_rounds(np.zeros((4, 2), bool)) == 0
