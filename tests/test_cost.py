"""Operations and bytes against sums by hand and against PyTorch's own counter; times against the rule of three."""

import time

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import ViTConfig, ViTModel

from benchmarks import plan
from soopf_jax import plugins
from soopf_jax.encoders import random_vit
from soopf_jax.encoders.hf_architectures import HUB_IDS, UNTRAINED
from soopf_jax.errors import UserError
from soopf_jax.fitting.targets import Target
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.studies import cost
from soopf_jax.types import Dims

PAPER = cost.Work(fits=450, steps=2000, batch=64, patches=196, channels=1024)


def test_floor_by_hand():
    # Router and pooling 8*2*3*5*7, MLP 6*2*7*5*11.
    work = cost.Work(fits=1, steps=1, batch=2, patches=3, channels=5, supports=7, operations=4, hidden=11)
    assert cost.fit_step_flops(work) == 1680 + 4620
    # Worked out when the trainer was designed: 2.7 ms at about 142 GFLOP/s.
    assert cost.fit_step_flops(PAPER) == 383_778_816


def test_floor_is_what_the_products_of_a_step_cost():
    """Counted by PyTorch: router, pooling and first layer, forward and backward (no gradient of the tokens)."""
    batch, patches, channels, supports, hidden = 4, 6, 8, 3, 5
    source, content = torch.randn(2, batch, patches, channels)
    queries = torch.randn(channels, supports, requires_grad=True)
    kernel = torch.randn(channels, hidden, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        masks = source.reshape(-1, channels) @ queries
        pooled = torch.bmm(masks.view(batch, patches, supports).transpose(1, 2), content)
        (pooled.view(-1, channels) @ kernel).sum().backward()
    work = cost.Work(1, 1, batch, patches, channels, supports, hidden=hidden)
    assert counter.get_total_flops() == cost.fit_step_flops(work)


def test_parameters_are_the_readouts():
    work = cost.Work(1, 1, 1, patches=6, channels=10, supports=3, operations=4, hidden=7, router_width=5)
    dims = Dims(6, 10, 3, 4, router_width=5, hidden=7)
    params = jax.eval_shape(lambda: READOUT.init(jax.random.key(0), dims))
    assert cost.parameters_per_fit(work) == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_bytes_by_hand():
    # Eight cells count of nine: 8 * 9/8 = 9 pairs. Tokens 4*9*2*10/45 = 16, masks 7*9*2*3 = 378, h 6*9*3*10 = 1620;
    # parameters (10+2+3)*4 + (10+1)*5 + (5+1)*3 = 133, eight times.
    work = cost.Work(1, 1, batch=8, patches=2, channels=10, hidden=5, router_width=4)
    assert cost.fit_step_bytes(work, sharing=45) == pytest.approx(4 * (16 + 378 + 1620 + 8 * 133))


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_sharing_a_minibatch_never_costs_more(a, b):
    fewer, more = sorted((a, b))
    assert cost.fit_step_bytes(PAPER, more) <= cost.fit_step_bytes(PAPER, fewer)


def test_machine_rate_agrees_with_numpy_within_an_order_of_magnitude():
    a, b = np.ones((1024, 1024), np.float32), np.ones((1024, 1024), np.float32)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - begin)
    assert 0.1 < cost.machine_rate(0.2) / (2 * 1024**3 / min(times)) < 10


def test_ratio_at_and_between_and_beyond_the_measured_sizes():
    ratios = cost.RATIO_TO_FLOOR
    for (patches, channels), ratio in ratios.items():
        assert cost.ratio_to_floor(patches, channels) == pytest.approx(ratio)
    assert cost.ratio_to_floor(4, 4) == ratios[64, 48]
    assert cost.ratio_to_floor(1024, 4096) == ratios[196, 1024]
    middle = (196 * 384 * 196 * 1024) ** 0.5  # halfway on a logarithmic scale
    assert cost.ratio_to_floor(1, round(middle)) == pytest.approx((ratios[196, 384] + ratios[196, 1024]) / 2, rel=1e-4)


def test_seconds_is_the_rule_of_three():
    rate = 142e9
    training = cost.seconds(PAPER, rate) - cost.COMPILE_SECONDS
    by_hand = 450 * 2000 * 383_778_816 / 142e9 * cost.RATIO_TO_FLOOR[196, 1024]
    assert training == pytest.approx(by_hand)
    doubled = cost.seconds(PAPER._replace(steps=4000), rate) - cost.COMPILE_SECONDS
    assert doubled == pytest.approx(2 * training)


@pytest.mark.parametrize(
    ("name", "gmacs"),
    # Published multiply-adds of ViT-L/16, B/16 and S/16 at 224 (61.6, 17.6, 4.6 G), which have 197 tokens.
    [("random-vit", 61.6), ("mae-b", 17.6), ("random-vit-s", 4.6)],
)
def test_forward_operations_of_well_known_transformers(name, gmacs):
    assert cost.forward_flops(cost.VITS[name]) / 2e9 == pytest.approx(gmacs, rel=0.01)


def test_forward_operations_as_pytorch_counts_them():
    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        image_size=48,
        patch_size=8,
        attn_implementation="eager",
    )
    model = ViTModel(config, add_pooling_layer=False).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, 48, 48))
    assert counter.get_total_flops() == cost.forward_flops(cost.Vit(64, 3, patches=36, prefix=1, patch_side=8))


def test_every_named_transformer_has_its_sizes():
    assert set(cost.VITS) == {*HUB_IDS, *random_vit.SHAPES, *UNTRAINED}
    assert set(cost.VITS) < set(plugins.ENCODERS)


def test_encode_seconds():
    expected = 6300 * cost.forward_flops(cost.VITS["dinov3"]) / (cost.ENCODER_EFFICIENCY * 1e12)
    assert cost.encode_seconds("dinov3", 6300, 1e12) == pytest.approx(expected)
    assert cost.encode_seconds("hf:some/folder", 6300, 1e12) is None
    assert cost.encode_seconds("pixels", 6300, 1e12) is None


def test_plan_by_hand():
    """Two arms of 90 fits on 4 devices of 1 TFLOP/s and 1 GB/s: 45 fits each, bound by memory; half the peak."""
    options = plan.Options(
        patches=196, channels=1024, encoder="mine", arms=2, seeds=2, steps=10, efficiency=0.5, overhead_us=1e6
    )
    device = Target("slow", {"float32": 1e12}, bandwidth=1e9, memory=1e9)
    study = plan.study_of(options)
    assert (study.arm.fits, study.arm.batch, study.images) == (90, 64, 6300)
    estimate = plan.on_accelerators(study, device, options, count=4)
    traffic = cost.fit_step_bytes(study.arm, sharing=45) / 1e9
    assert traffic > cost.fit_step_flops(study.arm) / 1e12
    assert estimate.train == pytest.approx(10 * (45 * traffic / 0.5 + 1.0))
    assert estimate.compile == cost.COMPILE_SECONDS
    assert estimate.encode == 0  # unknown encoder: nothing to go by


def test_plan_is_bound_by_products_where_memory_is_fast():
    options = plan.Options(seeds=1, arms=1, efficiency=1.0, overhead_us=0)
    device = Target("wide", {"float32": 1e12}, bandwidth=1e15, memory=1e12)
    estimate = plan.on_accelerators(plan.study_of(options), device, options, count=1)
    assert estimate.train == pytest.approx(45 * 2000 * 383_778_816 / 1e12)
    assert estimate.encode == pytest.approx(6300 * cost.forward_flops(cost.VITS["dinov3"]) / 1e12)


def test_a_ten_by_ten_grid_takes_one_pair_of_every_cell():
    study = plan.study_of(plan.Options(grid="10x10", seeds=100, encoders=1000))
    assert study.arm.batch == 99
    assert study.arms * study.arm.fits == 1000 * 3 * 100 * 100 * 5


@pytest.mark.parametrize(
    ("seconds", "says"), [(0, "-"), (0.25, "0.2 s"), (90, "1.5 min"), (7200, "2.0 h"), (3 * 86400, "3.0 d")]
)
def test_durations(seconds, says):
    assert plan.duration(seconds) == says


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--grid", "3"], "SUPPORTSxOPERATIONS"),
        (["--encoder", "dinov4"], "did you mean 'dinov3'"),
        (["--device", "h10"], "did you mean 'h100'"),
        (["--precision", "int8"], "choose from float32, tf32"),
        (["--efficiency", "0"], "--efficiency must be positive"),
        (["--devices", "0"], "at least 1"),
    ],
)
def test_mistakes_in_a_plan(args, says):
    with pytest.raises(UserError, match=says):
        plan.main(args)
