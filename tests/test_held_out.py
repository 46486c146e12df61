"""The whole protocol on features whose answer is known by construction."""

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from scipy import stats

from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.held_out import benchmark
from soopf_jax.fitting import assignments
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.train import Session
from soopf_jax.runtime.arrays import npz_bytes
from soopf_jax.scoring import align
from tests.environment import optimised
from tests.planted import GRID, SMALL, planted_table, small_table

PROTOCOL = Protocol(seeds=2, restarts=2, steps=300)


@pytest.fixture(scope="module")
def planted():
    """All three arms on a grid that factors perfectly, and the router of fits that saw all cells."""
    shown = []
    with optimised():
        result = benchmark(planted_table(), protocol=PROTOCOL, session=Session(on_arm=shown.append), router=True)
    assert shown == result.document["arms"]
    return result


def arm(result, name):
    return next(a for a in result.document["arms"] if a["assignment"] == name)


def test_a_known_grid_that_factors_is_read_perfectly(planted):
    assert arm(planted, "factorial")["inj"]["mean"] >= 0.99
    assert arm(planted, "factorial")["collapse"] == {"0.4": 0.0, "0.5": 0.0, "0.6": 0.0}


def test_a_learned_grid_is_read_many_to_one_and_injectively_wherever_it_was_recovered(planted):
    assert arm(planted, "learned")["non_injective"]["mean"] >= 0.95
    fits = planted.fits
    rows = np.flatnonzero((fits["arm"] == 1) & (fits["validation"] >= 0.99))
    recovered = [
        row for row in rows if align.recovery(fits["Q"][row], np.arange(9) != fits["held_out"][row], GRID) == 1.0
    ]
    assert len(recovered) > 3
    assert fits["inj"][recovered].min() >= 0.99


def test_what_each_arm_sees_is_recorded(planted):
    assert [a["sees"] for a in planted.document["arms"]] == [["axes"], [], ["order"]]
    assert {a["selector"] for a in planted.document["arms"]} == {"flat-cell"}
    assert [a["recovery"] is None for a in planted.document["arms"]] == [True, False, True]


def test_the_result_validates_against_the_schema_and_has_a_row_per_fit(planted):
    jsonschema.validate(planted.document, results.schema())
    assert planted.document["protocol"] == "custom"
    assert len(planted.fits["seed"]) == 3 * 2 * 9 * 2
    assert planted.fits["selected"].sum() == 3 * 2 * 9
    assert np.all(planted.fits["test_counts"].sum(axis=1) == 40), "every held-out pair is a test pair"


def test_scores_in_the_document_follow_from_the_fits(planted):
    fits = planted.fits
    chosen = (fits["arm"] == 1) & fits["selected"]
    by_seed = [fits["inj"][chosen & (fits["seed"] == seed)].mean() for seed in range(2)]
    assert arm(planted, "learned")["inj"]["per_seed"] == pytest.approx(by_seed)
    assert arm(planted, "learned")["inj"]["mean"] == pytest.approx(np.mean(by_seed))


@pytest.mark.usefixtures("optimised")
def test_learned_q_started_at_the_true_grid_under_an_axis_permutation_stays_there():
    sigma, rho = (2, 0, 1), (1, 2, 0)
    columns = np.array([GRID.cell(sigma[c // 3], rho[c % 3]) for c in range(9)])

    def true_grid(key, grid):
        del key, grid
        return {"logits": 4.0 * jnp.eye(9)[columns]}

    # It declares the axes that its starting point knows, so that label l is cell l.
    started = assignments.LEARNED._replace(init=true_grid, sees=("axes",))
    result = benchmark(planted_table(), assignments=[started], protocol=PROTOCOL)
    (found,) = result.document["arms"]
    assert found["inj"]["mean"] >= 0.99
    assert found["recovery"] == found["exact_recovery"] == 1.0
    fits = result.fits
    alignment = [[tuple(align.injective(c)) for c in fits[name]] for name in ("C_sup", "C_op")]
    assert set(alignment[0]) == {sigma}
    assert set(alignment[1]) == {rho}


def test_an_assignment_that_cheats_meets_shuffled_labels_and_misses_the_grid():
    """The true grid is Q = I; a part that claims flat labels and uses I all the same gets another grid."""
    cheating = assignments.FACTORIAL._replace(sees=())
    fits = benchmark(small_table(), assignments=[cheating], protocol=SMALL).fits
    recovered = [align.recovery(q, np.arange(9) != h, GRID) for q, h in zip(fits["Q"], fits["held_out"], strict=True)]
    assert max(recovered) < 1.0


def test_finished_groups_are_not_trained_again(tmp_path, monkeypatch):
    first = benchmark(small_table(), assignments=["learned"], protocol=SMALL, session=Session(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["learned-0.npz", "learned-1.npz", "plan.json"]
    monkeypatch.setattr("soopf_jax.fitting.train.GroupOfFits.train", lambda *_: pytest.fail("trained again"))
    second = benchmark(small_table(), assignments=["learned"], protocol=SMALL, session=Session(tmp_path))
    assert npz_bytes(first.fits) == npz_bytes(second.fits)


def test_a_damaged_group_is_trained_again(tmp_path):
    first = benchmark(small_table(), assignments=["learned"], protocol=SMALL, session=Session(tmp_path))
    damaged = tmp_path / "learned-1.npz"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    second = benchmark(small_table(), assignments=["learned"], protocol=SMALL, session=Session(tmp_path))
    assert npz_bytes(first.fits) == npz_bytes(second.fits)


def test_pairs_that_the_encoder_does_not_see_are_reported():
    table = small_table()
    table.delta[[3, 5]] = 0
    result = benchmark(table, assignments=["learned"], protocol=SMALL)
    assert any(warning.startswith("2 of 90 pairs have zero delta") for warning in result.document["warnings"])
    assert result.document["arms"][0]["failed_fits"] == 0


def test_too_few_pairs_are_refused():
    with pytest.raises(UserError, match="at least 5"):
        benchmark(planted_table(4))


@pytest.mark.usefixtures("optimised")
def test_labels_shuffled_over_all_pairs_score_at_chance():
    table = planted_table(seed=3)
    shuffled = np.random.default_rng(3).permutation(table.cell)
    result = benchmark(table._replace(cell=shuffled), assignments=["learned"], protocol=Protocol(6, 2, 200))
    per_seed = result.document["arms"][0]["inj"]["per_seed"]
    assert stats.ttest_1samp(per_seed, 1 / 9).pvalue > 0.001
    assert np.mean(per_seed) < 0.2


def test_the_same_run_twice_gives_the_same_bytes():
    first, second = (benchmark(small_table(), assignments=["learned"], protocol=SMALL) for _ in range(2))
    assert npz_bytes(first.fits) == npz_bytes(second.fits)
    jax.clear_caches()


# ------------------------------------------------------------------------- the router of fits that saw all cells


def test_the_router_of_fits_on_all_cells_finds_the_planted_supports(planted):
    router = planted.document["router"]
    assert router["iou"]["mean"] > 0.9
    assert router["agreement"]["mean"] > 0.9


def test_the_router_diagnostic_says_what_it_lacks():
    table, protocol = planted_table(10), Protocol(seeds=1, restarts=1, steps=1)
    with pytest.raises(UserError, match="needs region maps"):
        benchmark(table._replace(region=None), protocol=protocol, router=True)
    with pytest.raises(UserError, match="a probe has no router"):
        benchmark(table, readout="mlp", protocol=protocol, router=True)
