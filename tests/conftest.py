"""Shapes are checked at run time in every test: jaxtyping annotations through beartype."""

from jaxtyping import install_import_hook

install_import_hook("soopf_jax", "beartype.beartype")
