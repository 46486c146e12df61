"""`soopf doctor --gpu`, as far as it can be tested without one: a CPU in the place of the GPU."""

import json

import jax
import numpy as np
import pytest

from soopf_jax import doctor
from soopf_jax.errors import UserError
from soopf_jax.fitting import self_check
from soopf_jax.fitting.self_check import Report


@pytest.fixture(scope="module")
def report():
    table = self_check.random_table(patches=4, channels=8, pairs_per_cell=6)
    return self_check.compare(table, jax.devices()[0], restarts=1)


def test_a_cpu_computes_what_a_cpu_does(report):
    assert (report.difference_before, report.difference_after, report.agrees) == (0, 0, True)
    assert (report.fits, report.patches, report.channels) == (9, 4, 8)
    assert report.seconds_per_step > 0
    assert report.roofline_seconds is None, "there are no figures of this CPU"


@pytest.mark.parametrize(("before", "after", "agrees"), [(5e-5, 5e-3, True), (5e-4, 0, False), (0, 5e-2, False)])
def test_energies_that_differ_are_measured_and_judged(monkeypatch, before, after, agrees):
    zeros = np.zeros((1, 2, 3, 9))
    moved = [zeros + distance * (np.arange(9) == 4) for distance in (before, after)]
    runs = iter([self_check.Trained(*moved, 0.1, ""), self_check.Trained(zeros, zeros, 0.2, "")])
    monkeypatch.setattr(self_check, "train_briefly", lambda table, device, protocol: next(runs))
    found = self_check.compare(self_check.random_table(1, 1, 1), jax.devices()[0])
    assert (found.difference_before, found.difference_after, found.agrees) == (before, after, agrees)


def test_without_a_gpu_the_doctor_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"no GPU here.*cuda12"):
        doctor.check_gpu(tmp_path / "report.json")


@pytest.mark.parametrize("agrees", [True, False])
def test_the_report_of_a_gpu_is_printed_and_kept(monkeypatch, tmp_path, capsys, report, agrees):
    class Device:
        platform = "gpu"

    found = report._replace(agrees=agrees, seconds_per_step=0.00125, roofline_seconds=0.001)
    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    monkeypatch.setattr(self_check, "random_table", lambda: None)
    monkeypatch.setattr(self_check, "compare", lambda table, device: found)
    out = tmp_path / "report.json"
    if agrees:
        doctor.check_gpu(out)
    else:
        with pytest.raises(UserError, match="does not compute what the CPU does"):
            doctor.check_gpu(out)
    assert Report(**json.loads(out.read_text())) == found
    assert "1.25 ms; at least 1.00 ms by the vendor's figures" in capsys.readouterr().out
