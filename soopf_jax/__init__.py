"""Compositional readout from frozen vision encoders: a vectorised JAX/Flax benchmark with injective scoring.

The names below are the library; `python -m soopf_jax.bench --help` is the command line.
"""

from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.npz import load_npz as load_features
from soopf_jax.objectives import Term, Weighted
from soopf_jax.protocol import Protocol
from soopf_jax.results import Result
from soopf_jax.runner import benchmark
from soopf_jax.train import Session
from soopf_jax.types import (
    Assignment,
    Dims,
    Encoder,
    EncoderRequest,
    FeatureTable,
    ImagePairs,
    PairView,
    Readout,
    ReadoutOutput,
    Substrate,
    SubstrateRequest,
    Window,
)

__all__ = [
    "Assignment",
    "Dims",
    "Encoder",
    "EncoderRequest",
    "FeatureTable",
    "Grid",
    "ImagePairs",
    "PairView",
    "Protocol",
    "Readout",
    "ReadoutOutput",
    "Result",
    "Session",
    "Substrate",
    "SubstrateRequest",
    "Term",
    "UserError",
    "Weighted",
    "Window",
    "benchmark",
    "load_features",
]
