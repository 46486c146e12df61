"""The router diagnostic against plain loops over pairs, patches and permutations, and against values by hand."""

import itertools
import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from soopf_jax import plugins
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.assignments import FACTORIAL
from soopf_jax.fitting.devices import mesh_for
from soopf_jax.fitting.group import make_group
from soopf_jax.fitting.objectives import CORE
from soopf_jax.fitting.prepare import dims_of, prepare_table
from soopf_jax.fitting.program import FitState, Training
from soopf_jax.fitting.protocol import OPTIMISATION, UNUSED, Fits, Protocol, roles
from soopf_jax.fitting.router_stats import RouterStats, diagnose, fit_sums, has_masks, pair_stats
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.scoring import router_diagnostic
from tests.planted import GRID, planted_table

SIZES = [(1, 5, 2, 4), (7, 1, 3, 3), (9, 12, 3, 4), (8, 10, 4, 8)]
"""Pairs, patches, supports, pairs per block: few, as each is compiled."""

# ------------------------------------------------------------------------------------------------ by other means


def brute_force(masks, region, support, matched, scored):
    """The three scores of one fit from boolean masks, pair by pair, the match by trying all permutations."""
    _, n_supports, n_patches = masks.shape

    def overlap(match):
        return sum(
            float(masks[p, match[r], n]) * float(region[p, n, r])
            for p in np.flatnonzero(matched)
            for n, r in itertools.product(range(n_patches), range(n_supports))
        )

    match = max(itertools.permutations(range(n_supports)), key=overlap)
    ious, ious_edited, agreeing, counted = [], [], 0, 0
    for p in np.flatnonzero(scored):
        in_pair = {}
        known = np.array([max(region[p, n]) > 0.5 for n in range(n_patches)])
        true = np.array([list(region[p, n]).index(max(region[p, n])) for n in range(n_patches)])
        slot = np.array([list(masks[p, :, n]).index(max(masks[p, :, n])) for n in range(n_patches)])
        for r in range(n_supports):
            a, b = known & (true == r), known & (slot == match[r])
            if a.any():
                in_pair[r] = (a & b).sum() / (a | b).sum()
            agreeing += (a & b).sum()
        counted += known.sum()
        ious += [np.mean(list(in_pair.values()))] if in_pair else []
        ious_edited += [in_pair[support[p]]] if support[p] in in_pair else []

    def mean(values):
        return np.mean(values) if values else math.nan

    return {
        "iou": mean(ious),
        "iou_edited": mean(ious_edited),
        "agreement": agreeing / counted if counted else math.nan,
    }


def random_fit(seed, n_pairs, n_patches, n_supports):
    """Masks and regions of one fit; supports are absent from some pairs, and some patches belong to none."""
    stream = np.random.default_rng(seed)
    masks = stream.dirichlet(np.full(n_supports, 0.5), (n_pairs, n_patches)).swapaxes(1, 2)
    region = stream.dirichlet(np.full(n_supports, 0.5), (n_pairs, n_patches))
    region *= stream.uniform(0.4, 1.0, (n_pairs, n_patches, 1))
    region *= stream.random((n_pairs, 1, n_supports)) < 0.7
    matched, scored = stream.random((2, n_pairs)) < 0.6
    # One matched pair has something of every support: without it the match would be a matter of ties.
    matched[0], region[0] = True, stream.dirichlet(np.ones(n_supports), n_patches)
    support = stream.integers(n_supports, size=n_pairs).astype(np.int32)
    return masks.astype(np.float32), region.astype(np.float32), support, matched, scored


@pytest.mark.parametrize("seed", range(3))
def test_the_iou_of_a_picture_is_the_one_that_the_device_sums(seed):
    masks, region, *_ = random_fit(seed, 6, 12, 3)
    for pair in range(6):
        on_host = router_diagnostic.iou(masks[pair], region[pair])
        values = jnp.array(masks[pair]), jnp.array(region[pair]), jnp.int32(0), jnp.array(True), jnp.array(True)
        on_device = pair_stats(*values)
        present = np.isfinite(on_host)
        expected = np.where(present, on_host, 0.0) / max(present.sum(), 1)
        np.testing.assert_allclose(np.diagonal(on_device.iou), expected, rtol=1e-6)


@partial(jax.jit, static_argnames="block")
def device_stats(masks, region, support, matched, scored, block=4):
    """The sums of one fit whose prepared pairs are its masks."""
    return fit_sums(lambda pair: pair, masks, region, support, matched, scored, block)


def scores_of(*fit, block=4):
    return router_diagnostic.score_fit(jax.device_get(device_stats(*fit, block=block)))


def one_hot_masks(slots, n_supports):
    """Masks [pairs, slots, patches] of a router that is sure of itself."""
    return np.eye(n_supports, dtype=np.float32)[np.asarray(slots)].swapaxes(1, 2)


def one_hot_region(true, n_supports):
    """Regions [pairs, patches, supports]; -1 for a patch of no support."""
    return (np.asarray(true)[..., None] == np.arange(n_supports)).astype(np.float32)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(SIZES))
def test_scores_equal_plain_loops(seed, sizes):
    *shape, block = sizes
    fit = random_fit(seed, *shape)
    assert scores_of(*fit, block=block) == pytest.approx(brute_force(*fit), rel=1e-5, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(3)))
def test_the_numbering_of_slots_does_not_matter(seed, order):
    masks, *labels = random_fit(seed, 9, 12, 3)
    assert scores_of(masks[:, order], *labels) == pytest.approx(scores_of(masks, *labels), rel=1e-6, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(3)))
def test_a_router_that_knows_the_regions_scores_one(seed, order):
    _, region, support, _, _ = random_fit(seed, 9, 12, 3)
    masks = one_hot_masks(np.array(order)[region.argmax(axis=2)], 3)
    # Patches without a majority go to any slot: they must not count.
    stream = np.random.default_rng(seed)
    unclear = (region.max(axis=2) <= 0.5)[:, None, :]
    masks = np.where(unclear, stream.dirichlet(np.ones(3), (9, 12)).swapaxes(1, 2), masks).astype(np.float32)
    # Matched on a pair with four clear patches of each support.
    region[0], masks[0] = np.eye(3)[np.arange(12) % 3], np.eye(3)[np.array(order)[np.arange(12) % 3]].T
    first = np.arange(9) == 0
    assert scores_of(masks, region, support, first, np.ones(9, bool)) == {
        "iou": pytest.approx(1.0),
        "iou_edited": pytest.approx(1.0),
        "agreement": 1.0,
    }


# --------------------------------------------------------------------------------------------------- by hand


def test_a_router_independent_of_the_regions():
    """Every (support, slot) on one patch of nine: |A & B| = 1, |A or B| = 5, and a third of the patches agree."""
    true, slot = np.divmod(np.arange(9), 3)
    both = np.ones(3, bool)
    scores = scores_of(
        one_hot_masks([slot] * 3, 3), one_hot_region([true] * 3, 3), np.arange(3, dtype=np.int32), both, both
    )
    assert scores == pytest.approx({"iou": 1 / 5, "iou_edited": 1 / 5, "agreement": 1 / 3})


def test_uniform_masks_are_all_the_first_slot():
    """Two patches per support, all in slot 0: IoU 2/6 for the support matched to it, 0 for the two others."""
    region = one_hot_region([[0, 0, 1, 1, 2, 2]] * 3, 3)
    masks, both = np.full((3, 3, 6), 1 / 3, np.float32), np.ones(3, bool)
    stats = device_stats(masks, region, np.arange(3, dtype=np.int32), both, both)
    assert np.array_equal(stats.patches, [[6, 0, 0]] * 3)
    scores = router_diagnostic.score_fit(jax.device_get(stats))
    assert scores == pytest.approx({"iou": 1 / 9, "iou_edited": 1 / 9, "agreement": 1 / 3})


def test_pairs_weigh_alike_however_many_supports_they_show():
    """Pair 0: IoU 1 and 1. Pair 1: support 0 alone, IoU 1/4, though 1 is edited. Pair 2: no patch of any support."""
    true = [[0, 0, 1, 1], [0, 0, 0, 0], [-1, -1, -1, -1]]
    slot = [[0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 0, 1]]
    support, scored = np.array([1, 1, 0], np.int32), np.ones(3, bool)
    scores = scores_of(one_hot_masks(slot, 2), one_hot_region(true, 2), support, np.arange(3) == 0, scored)
    assert scores == pytest.approx({"iou": (1 + 1 / 4) / 2, "iou_edited": 1.0, "agreement": 5 / 8})


def test_a_patch_half_of_one_support_is_left_out():
    """Of three patches the last is exactly half: IoU 1 for both supports, though its slot is wrong."""
    region = np.array([[[0.75, 0.25], [0.25, 0.75], [0.5, 0.25]]], np.float32)
    masks, yes = one_hot_masks([[0, 1, 1]], 2), np.ones(1, bool)
    stats = device_stats(masks, region, np.zeros(1, np.int32), yes, yes)
    assert np.array_equal(stats.patches, [[1, 0], [0, 1]])
    # Soft overlap has all patches, by their shares.
    np.testing.assert_allclose(stats.overlap, [[0.75, 0.25 + 0.5], [0.25, 0.75 + 0.25]])
    assert router_diagnostic.score_fit(jax.device_get(stats)) == {"iou": 1.0, "iou_edited": 1.0, "agreement": 1.0}


def test_slots_are_matched_on_the_matched_pairs_and_not_on_the_scored_ones():
    """The scored pair has the slots the other way round: whoever matched on it would score 1."""
    masks, region = one_hot_masks([[0, 1], [1, 0]], 2), one_hot_region([[0, 1], [0, 1]], 2)
    scores = scores_of(masks, region, np.zeros(2, np.int32), np.array([True, False]), np.array([False, True]))
    assert scores == {"iou": 0.0, "iou_edited": 0.0, "agreement": 0.0}


def test_nothing_to_score_is_undefined():
    masks, region, support, matched, _ = random_fit(0, 9, 12, 3)
    scores = scores_of(masks, region, support, matched, np.zeros(9, bool))
    assert all(math.isnan(value) for value in scores.values())


# ------------------------------------------------------------------------------------------------- many fits


def test_vmapped_fits_equal_fits_one_by_one():
    fits = [random_fit(seed, 9, 12, 3) for seed in range(4)]
    together = jax.vmap(device_stats)(*(np.stack(column) for column in zip(*fits, strict=True)))
    for row, fit in enumerate(fits):
        for one, all_ in zip(device_stats(*fit), together, strict=True):
            np.testing.assert_allclose(all_[row], one, rtol=1e-6)


def test_memory_does_not_grow_with_the_number_of_pairs():
    def scratch(n_pairs, n_fits=8, patches=64, channels=16):
        def of_fit(weight, tokens, region, support, role):
            def masks_of(pair):
                return jax.nn.softmax(pair @ weight).T

            return fit_sums(masks_of, tokens, region, support, role, ~role)

        shapes = [(n_fits, channels, 3), (n_pairs, patches, channels), (n_pairs, patches, 3)]
        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        labels = [jax.ShapeDtypeStruct((n_pairs,), dtype) for dtype in (jnp.int32, bool)]
        compiled = jax.jit(jax.vmap(of_fit, in_axes=(0, None, None, None, None))).lower(*arguments, *labels).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # 1,900 more pairs: their masks alone would be 11.7 MB.
    assert scratch(2000) - scratch(100) < 0.1e6


TAU = jnp.float32(0.5)
FITS = Fits(*np.array([[3, 3, 5, 5], [-1, 4, -1, 4], [0, 1, 0, 1]], np.int32))
"""Two seeds, each with a fit on all cells and one without cell 4."""
ROWS = np.arange(4).reshape(2, 2)
PROTOCOL, ARM = Protocol(seeds=2, restarts=1, steps=1), Arm(READOUT, FACTORIAL, CORE)
TABLE = planted_table(pairs_per_cell=5)
SUPPORT = GRID.axes(TABLE.cell)[0]

SPEC = Training(ARM, GRID, dims_of(TABLE, PROTOCOL), PROTOCOL, mesh_for(1, 1))


@cache
def prepared():
    return prepare_table(TABLE, READOUT)


@cache
def initial():
    """Parameters of the readout of every fit, with (seeds, fits) in front."""
    init = jax.vmap(jax.vmap(lambda key: READOUT.init(key, dims_of(TABLE, PROTOCOL))))
    return jax.jit(init)(jax.random.split(jax.random.key(0), (2, 2)))


class StoredLike:
    """Like an array of a store: it only reads slices."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, rows: slice):
        assert isinstance(rows, slice)
        return self.array[rows]


def diagnosed(params, region):
    """The sums of the fits of FITS with these parameters of the readout."""
    group = make_group(TABLE, ARM, PROTOCOL, FITS, ROWS)
    params = {"readout": params, "assignment": {}}
    state = FitState(params, SPEC.optimiser.init(params), jnp.ones((2, 2), bool))
    return jax.device_get(diagnose(SPEC, state, prepared(), region, group))


def test_routers_of_a_readout_equal_plain_loops_over_their_masks():
    stats = diagnosed(initial(), TABLE.region)
    apply = jax.jit(jax.vmap(READOUT.apply, in_axes=(None, 0, None)))
    for seed, column in np.ndindex(2, 2):
        params, fit = jax.tree.map(lambda leaf, at=(seed, column): leaf[at], (initial(), stats))
        masks = np.asarray(apply(params, prepared().inputs, TAU).masks)
        role = roles(TABLE.cell, GRID, seed=(3, 5)[seed])
        matched = (role == OPTIMISATION) & ((TABLE.cell != 4) | (column == 0))
        expected = brute_force(masks, TABLE.region, SUPPORT, matched, role == UNUSED)
        assert router_diagnostic.score_fit(fit) == pytest.approx(expected, rel=1e-5)
        # Of five pairs of a cell three are for optimisation, one is unused; nine patches each.
        assert fit.pairs == fit.pairs_edited == 9
        assert fit.patches.sum() == 9 * 9
        assert fit.overlap.sum() == pytest.approx((9 - column) * 3 * 9, rel=1e-5)


def test_a_router_that_reads_the_planted_supports_scores_one():
    """Source tokens name their support by a direction; W_z q_s is set to that of one support each."""
    directions = np.stack([TABLE.source[:, s::3].mean(axis=(0, 1)) for s in (2, 0, 1)])
    router = {"W_z": jnp.zeros((16, 64)).at[:, :3].set(directions.T), "p": jnp.zeros((9, 64)), "q": jnp.eye(3, 64)}
    router = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, 2, *leaf.shape)), router)
    stats = diagnosed(initial() | {"router": router}, StoredLike(TABLE.region))
    flat = RouterStats(*(column.reshape(4, *column.shape[2:]) for column in stats))
    # Slot 0 is support 2, slot 1 support 0, slot 2 support 1: nine pairs with three patches of each.
    assert np.array_equal(flat.patches, [9 * 3 * np.eye(3)[[1, 2, 0]]] * 4)
    for values in router_diagnostic.score_fits(flat, np.zeros(4, bool)).values():
        np.testing.assert_allclose(values, 1.0, rtol=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("soopf", True), ("dense", True), ("bilinear", False), ("mlp", False)])
def test_which_readouts_have_masks(name, expected):
    readout = plugins.resolve("readout", plugins.READOUTS, name)
    table = prepare_table(TABLE, readout)
    assert has_masks(readout, table, dims_of(TABLE, PROTOCOL)) is expected


# -------------------------------------------------------------------------------------------------- summaries


def test_failed_fits_have_no_score_and_leave_the_others_alone():
    fits = [jax.device_get(device_stats(*random_fit(seed, 9, 12, 3))) for seed in range(4)]
    stacked = RouterStats(*(np.stack(column) for column in zip(*fits, strict=True)))
    stacked.overlap[2, 0, 0] = np.nan
    scores = router_diagnostic.score_fits(stacked, np.array([False, True, False, False]))
    for name, values in scores.items():
        assert np.array_equal(np.isnan(values), [False, True, True, False])
        assert values[[0, 3]].tolist() == [router_diagnostic.score_fit(fits[f])[name] for f in (0, 3)]


def test_summary_by_hand():
    """Seeds 0 and 1 with two folds and two restarts: only what is selected counts, folds first, then seeds."""
    fits = Fits(*np.array([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1] * 2, [0, 1] * 4], np.int32))
    selected = np.array([True, False, False, True, False, True, True, False])
    iou = np.array([0.5, 0.0, 0.0, 0.7, 0.0, 0.8, 1.0, 0.0])  # seed means 0.6 and 0.9
    undefined = np.where(np.arange(8) == 3, np.nan, iou)
    summary = router_diagnostic.summarise(fits, selected, {"iou": iou, "agreement": undefined})
    assert summary["iou"] == {
        "mean": pytest.approx(0.75),
        "sd": pytest.approx(0.15),
        "ci95": None,
        "ci95_method": None,
        "per_seed": [pytest.approx(0.6), pytest.approx(0.9)],
    }
    undefined = dict.fromkeys(("mean", "sd", "ci95", "ci95_method"))
    assert summary["agreement"] == undefined | {"per_seed": [None, pytest.approx(0.9)]}


def test_a_number_without_an_upper_bound_has_a_t_interval():
    fits = Fits(*np.array([[0, 1, 2], [0, 0, 0], [0, 0, 0]], np.int32))
    values = np.array([3.0, 7.0, 5.0])
    found = router_diagnostic.summarise(fits, np.ones(3, bool), {"spread": values, "iou": values / 10})
    low, high = scipy_stats.t.interval(0.95, 2, loc=5, scale=scipy_stats.sem(values))
    assert found["spread"]["ci95"] == pytest.approx([low, high])
    assert found["spread"]["ci95_method"] == "approximate t"
    assert found["iou"]["ci95_method"] == "approximate t and score"
