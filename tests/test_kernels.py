"""Kernels, operations and bytes of a small program in HLO, worked out by hand; and of targets that no one has here."""

import pytest

from benchmarks import gpu_check
from soopf_jax import plugins
from soopf_jax.errors import MissingPackage, UserError
from soopf_jax.fitting import kernels, targets
from soopf_jax.fitting.targets import Target

HLO = """HloModule jit_advance, is_scheduled=true

%fused_gather (table: f16[100,8], rows: s32[5,1]) -> f16[5,8] {
  %table = f16[100,8]{1,0} parameter(0)
  %rows = s32[5,1]{1,0} parameter(1)
  ROOT %taken = f16[5,8]{1,0} gather(%table, %rows), offset_dims={1}, slice_sizes={1,8}
}

%product_computation (left: f16[5,8], right: f32[8,6]) -> f32[5,6] {
  %left = f16[5,8]{1,0} parameter(0)
  %wide = f32[5,8]{1,0} convert(%left)
  %right = f32[8,6]{1,0} parameter(1)
  ROOT %dot = f32[5,6]{1,0} dot(%wide, %right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%fused_update (all: f32[7,6], new: f32[6], at: s32[]) -> f32[7,6] {
  %all = f32[7,6]{1,0} parameter(0)
  %new = f32[6]{0} parameter(1)
  %line = f32[1,6]{1,0} bitcast(%new)
  %at = s32[] parameter(2)
  ROOT %set = f32[7,6]{1,0} dynamic-update-slice(%all, %line, %at, %at)
}

%fused_square (x: f32[5,6]) -> f32[6] {
  %x = f32[5,6]{1,0} parameter(0)
  ROOT %sum = f32[6]{0} reduce(%x, %x), dimensions={0}, to_apply=%add
}

%balance (x: f32[5,6]) -> f32[5,6] {
  %x.1 = f32[5,6]{1,0} parameter(0)
  ROOT %copied = f32[5,6]{1,0} copy(%x.1)
}

%step (carry: (s32[], f16[100,8], f32[8,6], f32[7,6])) -> (s32[], f16[100,8], f32[8,6], f32[7,6]) {
  %carry = (s32[], f16[100,8]{1,0}, f32[8,6]{1,0}, f32[7,6]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %tokens = f16[100,8]{1,0} get-tuple-element(%carry), index=1
  %w = f32[8,6]{1,0} get-tuple-element(%carry), index=2
  %kept = f32[7,6]{1,0} get-tuple-element(%carry), index=3
  %rows.1 = s32[5,1]{1,0} constant({...})
  %batch = f16[5,8]{1,0} fusion(%tokens, %rows.1), kind=kLoop, calls=%fused_gather
  %gemm = f32[5,6]{1,0} fusion(%batch, %w), kind=kCustom, calls=%product_computation, backend_config={"kind":"__triton"}
  %inner = f32[5,6]{1,0} while(%gemm), condition=%few, body=%balance, backend_config={"known_trip_count":{"n":"15"}}
  %sums = f32[6]{0} fusion(%inner), kind=kInput, calls=%fused_square
  %kept.1 = f32[7,6]{1,0} fusion(%kept, %sums, %i), kind=kLoop, calls=%fused_update
  ROOT %next = (s32[], f16[100,8]{1,0}, f32[8,6]{1,0}, f32[7,6]{1,0}) tuple(%i, %tokens, %w, %kept.1)
}

ENTRY %main (a: f32[4,4], state: (s32[], f16[100,8], f32[8,6], f32[7,6])) -> f32[4,4] {
  %a = f32[4,4]{1,0} parameter(0)
  %state = (s32[], f16[100,8]{1,0}, f32[8,6]{1,0}, f32[7,6]{1,0}) parameter(1)
  %loop = (s32[], f16[100,8]{1,0}, f32[8,6]{1,0}, f32[7,6]{1,0}) while(%state), condition=%go_on, body=%step
  %shared = f32[4,4]{1,0} all-reduce-start(%a), to_apply=%add
  ROOT %again = f32[4,4]{1,0} custom-call(%a, %a), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
}
"""


def by_name(found):
    return {kernel.name: kernel for kernel in found}


def test_a_step_is_one_pass_through_the_loop_of_unknown_length():
    found = by_name(kernels.kernels_of(kernels.parse(HLO), per_step=True))
    assert list(found) == ["batch", "gemm", "copied", "sums", "kept.1"]
    # The gather takes 5 x 8 halves of the table, reads 5 row numbers and writes the 5 x 8 halves.
    assert found["batch"].bytes == 80 + 20 + 80
    assert found["batch"].kind == "loop"
    # 5 x 6 sums of 8 products; both operands are read and the result is written.
    assert (found["gemm"].flops, found["gemm"].bytes) == (2 * 5 * 6 * 8, 80 + 192 + 120)
    assert found["gemm"].kind == "product"
    # The inner loop copies 5 x 6 floats 15 times.
    assert (found["copied"].launches, found["copied"].bytes) == (15, 240)
    assert (found["sums"].kind, found["sums"].bytes) == ("reduction", 120 + 24)
    # A line of the kept array is written in place: 6 floats in, 6 floats out, and the number of the line.
    assert found["kept.1"].bytes == 24 + 24 + 4


def test_a_whole_program_has_the_loop_and_what_is_around_it():
    found = by_name(kernels.kernels_of(kernels.parse(HLO)))
    assert set(found) == {"batch", "gemm", "copied", "sums", "kept.1", "shared", "again"}
    assert (found["again"].flops, found["again"].bytes) == (2 * 4 * 4 * 4, 3 * 64)


def test_exchanges_between_devices_are_counted():
    assert kernels.collectives(kernels.parse(HLO)) == {"all-reduce": 1}
    assert kernels.collectives(kernels.parse(HLO.replace("all-reduce-start", "copy-start"))) == {}


def test_a_roofline_takes_the_slower_of_products_and_memory_for_each_kernel():
    device = Target("slow", {"float32": 10.0, "tf32": 1e9}, bandwidth=5.0, memory=1e3)
    found = [kernels.Kernel("a", "product", 100.0, 10.0), kernels.Kernel("b", "loop", 0.0, 15.0, launches=2)]
    least = kernels.roofline(found, device)
    assert (least.kernels, least.flops, least.bytes) == (3, 100.0, 40.0)
    assert least.seconds == pytest.approx(100 / 10 + 2 * 15 / 5)
    assert least.memory_bound == pytest.approx(6 / 16)
    assert kernels.roofline(found, device, "tf32").seconds == pytest.approx(10 / 5 + 6)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_a_target_s_units_give_its_vendor_s_rate(name):
    """Two operations of each float32 unit in each cycle. Vendors round, and A100's figure is at its boost clock."""
    target = targets.find(name)
    units = target.chip.cores * target.chip.fpus_per_core * target.chip.clock_ghz * 1e9
    assert 2 * units == pytest.approx(target.rates["float32"], rel=0.02)
    assert f"core_count: {target.chip.cores}\n" in targets.config(target)
    assert targets.config(target).count("{") == targets.config(target).count("}")


def test_without_the_compiler_a_target_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'soopf_jax\[cuda12\]'"):
        targets.devices_of(targets.find("h100"))
    with pytest.raises(UserError, match="h100"):
        targets.find("h1000")


# ------------------------------------------------------------------------------------------- make gpu-check

ROW = gpu_check.Row("h100 x", "advance", kernels=100, bytes=2e9, temporaries=1000)
BASELINE = {"h100 x: advance": {"kernels": 100, "bytes": 2e9, "temporaries": 1000}}


def test_more_than_five_per_cent_above_the_baseline_is_a_complaint():
    assert gpu_check.complaints([ROW, ROW._replace(kernels=105, bytes=1e9)], BASELINE) == []
    (complaint,) = gpu_check.complaints([ROW._replace(bytes=2.2e9)], BASELINE)
    assert "bytes 2,000,000,000 -> 2,200,000,000, +10%" in complaint
    assert len(gpu_check.complaints([ROW._replace(kernels=107, temporaries=1100)], BASELINE)) == 2


def test_what_does_not_compile_or_exchanges_data_is_a_complaint():
    assert "does not compile: no tiles" in gpu_check.complaints([ROW._replace(error="no tiles")], BASELINE)[0]
    assert "exchanges data" in gpu_check.complaints([ROW._replace(collectives=1)], BASELINE)[0]


def test_an_update_keeps_the_rows_that_were_not_checked(tmp_path):
    other = {"a100 x: advance": {"kernels": 1, "bytes": 2.0, "temporaries": 3}}
    path = tmp_path / "baseline.json"
    path.write_text(gpu_check.baseline_text(BASELINE | other, [ROW._replace(kernels=90)]))
    assert gpu_check.read_baseline(path) == other | {
        "h100 x: advance": {"kernels": 90, "bytes": 2e9, "temporaries": 1000}
    }


def test_the_check_has_every_target_and_every_part_once():
    cases = list(gpu_check.cases())
    assert len({case.name for case in cases}) == len(cases)
    assert {case.target for case in cases} == set(targets.TARGETS)
    assert {case.readout for case in cases} == set(plugins.READOUTS)
    assert {case.assignment for case in cases} == set(plugins.ASSIGNMENTS)
    assert {case.objective for case in cases} == set(plugins.OBJECTIVES)
    assert {case.devices for case in cases} == {1, 2, 8}
