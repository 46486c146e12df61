"""Turns image pairs into tables of patch tokens, and keeps them in a store on the disk.

`soopf_jax.features(dataset=..., encoder=...)` gives the tokens of a data set under an encoder. This folder has the name
of that function, so the module itself can be called; `soopf_jax.api.run.features` describes the arguments.
"""

import sys
from types import ModuleType
from typing import Any

from soopf_jax import plugins


class _Features(ModuleType):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The tokens of a data set under an encoder: `soopf_jax.api.run.features`."""
        return plugins.load("soopf_jax.api.run:features")(*args, **kwargs)


sys.modules[__name__].__class__ = _Features
