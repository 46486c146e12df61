"""Compositional readout from frozen vision encoders: a vectorised JAX/Flax benchmark with injective scoring.

    import soopf_jax as soopf
    result = soopf.benchmark(dataset="shapes3d-lite", encoder="pixels", protocol=soopf.QUICK)

The names below are the public library; `python -m soopf_jax.bench --help` describes the command line. A name is
imported when it is first used, because command lines must answer quickly, without loading JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from soopf_jax.api.options import FULL, PAPER, QUICK
    from soopf_jax.api.result import Result, load
    from soopf_jax.api.run import benchmark, evaluate, features
    from soopf_jax.api.scores import Arm, Score
    from soopf_jax.encoders.torch_module import encoder
    from soopf_jax.errors import UserError
    from soopf_jax.experiments.predictions import Predictions
    from soopf_jax.experiments.results import params as load_params
    from soopf_jax.experiments.results import predictions as load_predictions
    from soopf_jax.features.given import load_features
    from soopf_jax.fitting.objectives import Term, Weighted
    from soopf_jax.fitting.protocol import Protocol
    from soopf_jax.fitting.train import Session
    from soopf_jax.grid import Grid
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
else:
    _ADDRESSES = {
        "Arm": "soopf_jax.api.scores:Arm",
        "Assignment": "soopf_jax.types:Assignment",
        "Dims": "soopf_jax.types:Dims",
        "Encoder": "soopf_jax.types:Encoder",
        "EncoderRequest": "soopf_jax.types:EncoderRequest",
        "FULL": "soopf_jax.api.options:FULL",
        "FeatureTable": "soopf_jax.types:FeatureTable",
        "Grid": "soopf_jax.grid:Grid",
        "ImagePairs": "soopf_jax.types:ImagePairs",
        "PAPER": "soopf_jax.api.options:PAPER",
        "PairView": "soopf_jax.types:PairView",
        "Predictions": "soopf_jax.experiments.predictions:Predictions",
        "Protocol": "soopf_jax.fitting.protocol:Protocol",
        "QUICK": "soopf_jax.api.options:QUICK",
        "Readout": "soopf_jax.types:Readout",
        "ReadoutOutput": "soopf_jax.types:ReadoutOutput",
        "Result": "soopf_jax.api.result:Result",
        "Score": "soopf_jax.api.scores:Score",
        "Session": "soopf_jax.fitting.train:Session",
        "Substrate": "soopf_jax.types:Substrate",
        "SubstrateRequest": "soopf_jax.types:SubstrateRequest",
        "Term": "soopf_jax.fitting.objectives:Term",
        "UserError": "soopf_jax.errors:UserError",
        "Weighted": "soopf_jax.fitting.objectives:Weighted",
        "Window": "soopf_jax.types:Window",
        "benchmark": "soopf_jax.api.run:benchmark",
        "encoder": "soopf_jax.encoders.torch_module:encoder",
        "evaluate": "soopf_jax.api.run:evaluate",
        "features": "soopf_jax.api.run:features",
        "load": "soopf_jax.api.result:load",
        "load_features": "soopf_jax.features.given:load_features",
        "load_params": "soopf_jax.experiments.results:params",
        "load_predictions": "soopf_jax.experiments.results:predictions",
    }

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used (PEP 562)."""
        if name == "features":
            import soopf_jax.features as folder  # it has the name of the function, and can be called

            return folder
        if name not in _ADDRESSES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from soopf_jax.plugins import load

        value = globals()[name] = load(_ADDRESSES[name])
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "FULL",
    "PAPER",
    "QUICK",
    "Arm",
    "Assignment",
    "Dims",
    "Encoder",
    "EncoderRequest",
    "FeatureTable",
    "Grid",
    "ImagePairs",
    "PairView",
    "Predictions",
    "Protocol",
    "Readout",
    "ReadoutOutput",
    "Result",
    "Score",
    "Session",
    "Substrate",
    "SubstrateRequest",
    "Term",
    "UserError",
    "Weighted",
    "Window",
    "benchmark",
    "encoder",
    "evaluate",
    "features",
    "load",
    "load_features",
    "load_params",
    "load_predictions",
]
