"""Shapes are checked at run time in every test (jaxtyping through beartype), and nothing is compiled twice."""

import gc
import re
from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

from tests import environment

environment.pin_worker()
install_import_hook("soopf_jax", "beartype.beartype")

LONGEST_FIRST = (
    *("determinism", "docs", "held_out", "faults", "train", "bench", "fuzz", "devices", "api", "fit", "against_torch"),
    *("readouts", "choices", "failed_fits", "readme"),
)
"""Files that workers should not begin with when all others are done."""


def pytest_collectstart(collector: pytest.Collector) -> None:
    """transformers and timm import torchvision; beside a CPU build of torch that takes some help, and five seconds."""
    gc.disable()  # a third of the time of collection would be spent on looking for garbage among modules
    if isinstance(collector, pytest.Module) and re.search("transformers|timm", collector.path.read_text()):
        from soopf_jax.encoders.hf_torch import import_torchvision  # after the hook

        import_torchvision()


def pytest_collection_finish() -> None:
    """What was imported stays, and need not be looked at again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files: a worker takes a file at a time, and none should wait long for another at the end."""
    rank = {f"test_{name}": number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture
def optimised() -> Iterator[None]:
    """For tests that train for hundreds of steps."""
    with environment.optimised():
        yield


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of runs, not of reports: the figures of a report take longer than its fits."""
    monkeypatch.setattr("soopf_jax.report.page.pages", lambda result, examples=None: {})


@pytest.fixture
def no_cache_on_disk() -> Iterator[None]:
    """Everything is compiled anew."""
    import jax  # not before the variables above are set
    from jax.experimental.compilation_cache import compilation_cache

    def use(folder: str | None) -> None:
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()  # or what was set before would hold

    folder = jax.config.jax_compilation_cache_dir
    use(None)
    yield
    use(folder)


@pytest.fixture
def gpu_forms() -> Iterator[None]:
    """What is traced outside of compiled programs has the form that it has on a GPU, though it runs here."""
    from soopf_jax.runtime import platforms

    token = platforms._traced_for.set("gpu")
    yield
    platforms._traced_for.reset(token)
