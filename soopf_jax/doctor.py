"""`soopf doctor`: what is installed and at hand on this machine, and what to do about the rest.

Nothing is downloaded. What is missing gets one line with the command that brings it.
"""

import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import tyro

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.text import count, is_address

if TYPE_CHECKING:
    from soopf_jax.fitting.self_check import Report

PROG = "soopf_jax.doctor"
GPU_REPORT = "soopf-gpu.json"
"""Where `--gpu` writes what it finds."""
ORIGINALS = {"shapes3d": "3dshapes.h5", "coco": "annotations/instances_train2017.json"}
"""The file by which an original data set is known, below the data root."""


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, which devices JAX sees, which data sets and weights are at hand, and what to do next."""

    data_root: Annotated[str, tyro.conf.arg(metavar="DIR")] = "data"
    """Folder of the original data sets."""
    cache_dir: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Where features are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache
    folder."""
    gpu: bool = False
    """Instead: train briefly on this machine's GPU, compare with its CPU, and write what was found to soopf-gpu.json.
    It takes about a minute."""


class Finding(NamedTuple):
    """One line of the report."""

    part: str
    state: str
    remedy: str = ""
    """What to do where something is missing."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, look, exit code."""
    return cli.run(lambda: run(cli.parse(Doctor, PROG, args, Doctor())))


def run(options: Doctor) -> None:
    """Print all findings, each as soon as it is known."""
    if options.gpu:
        check_gpu(Path(GPU_REPORT))
        return
    findings = []
    for finding in examine(options):
        findings.append(finding)
        remedy = f"  -> {finding.remedy}" if finding.remedy else ""
        print(f"{finding.part:<24} {finding.state}{remedy}", flush=True)
    print(f"\nnext: {next_step(findings)}")


def examine(options: Doctor) -> Iterator[Finding]:
    """All findings, the quick ones first."""
    yield from machine()
    yield from extras()
    yield from data_sets(options.data_root)
    yield renderer()
    yield from weights()
    yield features(options.cache_dir)


def next_step(findings: Sequence[Finding]) -> str:
    """The command that makes sense here: a first run, with an encoder if one is at hand."""
    ready = [f.part.removeprefix("weights ") for f in findings if f.part.startswith("weights ") and not f.remedy]
    return "soopf run --quick" + (f" --encoder {ready[0]}" if ready else "")


def check_gpu(out: Path) -> None:
    """Train on the GPU and on the CPU, and write and print how they compare.

    Raises:
        UserError: There is no GPU, or its energies are not those of the CPU.
    """
    import jax

    from soopf_jax.fitting import self_check

    device = jax.devices()[0]
    if device.platform == "cpu":
        raise UserError("JAX sees no GPU here; pip install 'soopf_jax[cuda12]', and see whether nvidia-smi lists one")
    report = self_check.compare(self_check.random_table(), device)
    atomic.write_bytes(out, json.dumps(report._asdict(), indent=1).encode())
    print(gpu_summary(report))
    if not report.agrees:
        raise UserError(f"this GPU does not compute what the CPU does; please send us {out}")
    print(f"\nplease send us {out}: this project has not seen a GPU yet")


def gpu_summary(report: "Report") -> str:
    """A report as lines of text."""
    from soopf_jax.fitting.self_check import AFTER, BEFORE

    step, least = 1e3 * report.seconds_per_step, report.roofline_seconds
    bound = f"; at least {1e3 * least:.2f} ms by the vendor's figures" if least else ""
    lines = [
        f"{report.device}: {report.fits} fits, {report.patches} x {report.channels} tokens, JAX {report.jax}",
        f"energies at the start: within {report.difference_before:.1e} of the CPU's (at most {BEFORE:.0e})",
        f"after {report.steps} steps: within {report.difference_after:.1e} of the CPU's (at most {AFTER:.0e})",
        f"a step of all fits: {step:.2f} ms{bound}; {1e3 * report.seconds_per_step_cpu:.0f} ms on the CPU",
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ the findings


def machine() -> Iterator[Finding]:
    """Versions, devices and the pace of products."""
    version = metadata.version("soopf_jax")
    yield Finding("soopf_jax", f"{version} on Python {platform.python_version()}, {platform.platform()}")
    import jax

    from soopf_jax.fitting import devices
    from soopf_jax.studies import cost

    device = jax.devices()[0]
    memory = devices.memory_of_device() / 1e9
    kind = f"{jax.device_count()} x {device.device_kind} ({device.platform}), {memory:.1f} GB each"
    yield Finding("JAX", f"{metadata.version('jax')}: {kind}; {os.cpu_count()} cores")
    yield Finding("float32 products", f"{cost.machine_rate(0.5) / 1e9:,.0f} GFLOP/s")


def extras() -> Iterator[Finding]:
    """The optional packages."""
    for extra in dict.fromkeys(plugins.EXTRAS.values()):
        packages = [package for package, brings in plugins.EXTRAS.items() if brings == extra]
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        state, remedy = "installed", ""
        if missing:
            state, remedy = f"lacks {', '.join(missing)}", f"pip install 'soopf_jax[{extra}]'"
        yield Finding(f"extra {extra}", state, remedy)


def data_sets(data_root: str) -> Iterator[Finding]:
    """The built-in data set and the original ones."""
    yield Finding("data shapes3d-lite", "built in")
    for name, file in ORIGINALS.items():
        found = (Path(data_root).expanduser() / file).exists()
        remedy = "" if found else f"soopf data fetch {name} --data-root {data_root}"
        yield Finding(f"data {name}", "at hand" if found else f"no {file} in {data_root}", remedy)


def renderer() -> Finding:
    """Whether MuJoCo renders here."""
    from soopf_jax.studies.opening import open_dataset
    from soopf_jax.studies.rows import Obstacle
    from soopf_jax.types import SubstrateRequest

    opened = open_dataset(SubstrateRequest("mujoco", pairs_per_cell=1))
    if isinstance(opened, Obstacle):
        return Finding("data mujoco", opened.reason, "; ".join(opened.remedies))
    return Finding("data mujoco", f"renders: {opened.identity.get('opengl', 'OpenGL')}")


def weights() -> Iterator[Finding]:
    """The pretrained encoders, as the cache of downloads has them."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return
    from soopf_jax.encoders.hf_architectures import HUB_IDS
    from soopf_jax.studies.opening import missing_weights

    for name in HUB_IDS:
        missing = missing_weights(name)
        if missing is None:
            yield Finding(f"weights {name}", "at hand")
        else:
            yield Finding(f"weights {name}", "not downloaded", missing.remedies[0].partition(": ")[2])


def features(cache_dir: str) -> Finding:
    """The stored features."""
    from soopf_jax.features import remote, store

    try:
        stores = remote.list_stores(cache_dir or None)
    except UserError as error:
        return Finding("features", "cannot be listed", str(error))
    size = sum(listed.bytes for listed in stores) / 1e9
    where = cache_dir if is_address(cache_dir) else store.features_folder(cache_dir or None)
    return Finding("features", f"{count(len(stores), 'store')}, {size:.1f} GB in {where}")


if __name__ == "__main__":
    sys.exit(main())
