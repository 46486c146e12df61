"""Names to plug-ins: tables of `name -> "module:attr"`, imported on use; a user's own is `package.module:attr`."""

import importlib
from collections.abc import Mapping
from typing import Any

from soopf_jax.errors import UserError, unknown_name

ENCODERS: Mapping[str, str] = {
    "pixels": "soopf_jax.encoders.pixels:open_encoder",
    "random-vit": "soopf_jax.encoders.random_vit:open_encoder",
    "random-vit-s": "soopf_jax.encoders.random_vit:open_encoder",
    "dinov3": "soopf_jax.encoders.hf:open_encoder",
    "dinov3-b": "soopf_jax.encoders.hf:open_encoder",
    "dinov3-s": "soopf_jax.encoders.hf:open_encoder",
    "siglip2": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-l": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-b": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-s": "soopf_jax.encoders.hf:open_encoder",
    "clip-l": "soopf_jax.encoders.hf:open_encoder",
    "mae-b": "soopf_jax.encoders.hf:open_encoder",
    "hf:": "soopf_jax.encoders.hf:open_encoder",
    "hf-random:": "soopf_jax.encoders.hf:open_encoder",
}
SUBSTRATES: Mapping[str, str] = {
    "shapes3d-lite": "soopf_jax.substrates.shapes3d_lite:open_substrate",
    "mujoco": "soopf_jax.substrates.mujoco:open_substrate",
    "shapes3d": "soopf_jax.substrates.shapes3d:open_substrate",
    "coco": "soopf_jax.substrates.coco:open_substrate",
    "folder:": "soopf_jax.substrates.folder:open_substrate",
}
READOUTS: Mapping[str, str] = {
    "soopf": "soopf_jax.readouts.soopf:READOUT",
    "dense": "soopf_jax.readouts.dense:READOUT",
    "bilinear": "soopf_jax.readouts.bilinear:READOUT",
    "mlp": "soopf_jax.readouts.mlp:READOUT",
    "attention": "soopf_jax.readouts.attention:READOUT",
    "oracle": "soopf_jax.readouts.oracle:READOUT",
}
ASSIGNMENTS: Mapping[str, str] = {
    "factorial": "soopf_jax.assignments:FACTORIAL",
    "learned": "soopf_jax.assignments:LEARNED",
    "learned-sinkhorn": "soopf_jax.assignments:SINKHORN",
    "compressed": "soopf_jax.assignments:COMPRESSED",
    "native": "soopf_jax.assignments:NATIVE",
}
OBJECTIVES: Mapping[str, str] = {
    "core": "soopf_jax.objectives:CORE",
    "enhanced": "soopf_jax.objectives:ENHANCED",
    "native": "soopf_jax.objectives:NATIVE",
}


def resolve(kind: str, table: Mapping[str, str], name: str) -> Any:
    """The plug-in called `name`.

    `dinov3` is looked up in the table, and so is `hf` for `hf:../folder` (a name with an argument);
    `package.module:attr` is imported. The nearest valid name is offered for anything else.
    """
    address = table.get(name) or table.get(name.partition(":")[0] + ":") or _own(kind, name)
    if address is None:
        valid = [key + "..." if key.endswith(":") else key for key in table]
        raise unknown_name(kind, name, valid, also=" or give your own as package.module:attr")
    module, _, attribute = address.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and not module.startswith(error.name):
            raise UserError(f"{kind} '{name}' needs the package {error.name}; install it") from error
        raise UserError(f"{kind} '{name}': no module named {module}; check the spelling or PYTHONPATH") from error
    except AttributeError as error:
        raise UserError(f"{kind} '{name}': {module} has no attribute '{attribute}'; check the spelling") from error


def _own(kind: str, name: str) -> str | None:
    """`name` itself where it has the form package.module:attr, else None."""
    module, colon, attribute = name.partition(":")
    dotted = all(part.isidentifier() for part in module.split("."))
    return name if colon and dotted and attribute.isidentifier() else None
