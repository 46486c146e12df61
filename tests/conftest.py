"""Shapes are checked at run time in every test (jaxtyping through beartype), and nothing is compiled twice."""

import os
import tempfile
from pathlib import Path

from jaxtyping import install_import_hook

# Workers and the processes that tests start inherit these. The folder outlives the session, so that the next is quick.
_CACHE = Path(tempfile.gettempdir()) / f"soopf_jax-tests-{os.getuid()}" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

install_import_hook("soopf_jax", "beartype.beartype")
