"""Shapes are checked at run time in every test (jaxtyping through beartype), and nothing is compiled twice."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Workers and the processes that tests start inherit these. The folder outlives the session, so that the next is quick.
_CACHE = Path(tempfile.gettempdir()) / f"soopf_jax-tests-{os.getuid()}" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

install_import_hook("soopf_jax", "beartype.beartype")


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
