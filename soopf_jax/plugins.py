"""Finds plug-ins by name.

The tables map names to addresses `module:attr`, which are imported only when they are used. Users name their own
plug-ins by such an address, `package.module:attr`.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

from soopf_jax.errors import MissingPackage, UserError, unknown_name

ENCODERS: Mapping[str, str] = {
    "pixels": "soopf_jax.encoders.pixels:open_encoder",
    "random-vit": "soopf_jax.encoders.random_vit:open_encoder",
    "random-vit-s": "soopf_jax.encoders.random_vit:open_encoder",
    "random-dinov3-l": "soopf_jax.encoders.hf:open_encoder",
    "random-dinov3-s": "soopf_jax.encoders.hf:open_encoder",
    "dinov3": "soopf_jax.encoders.hf:open_encoder",
    "dinov3-b": "soopf_jax.encoders.hf:open_encoder",
    "dinov3-s": "soopf_jax.encoders.hf:open_encoder",
    "siglip2": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-l": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-b": "soopf_jax.encoders.hf:open_encoder",
    "dinov2-s": "soopf_jax.encoders.hf:open_encoder",
    "clip-l": "soopf_jax.encoders.hf:open_encoder",
    "mae-b": "soopf_jax.encoders.hf:open_encoder",
    "dinov3-timm": "soopf_jax.encoders.hf_timm:open_encoder",
    "dinov3-timm-b": "soopf_jax.encoders.hf_timm:open_encoder",
    "dinov3-timm-s": "soopf_jax.encoders.hf_timm:open_encoder",
    "timm:": "soopf_jax.encoders.hf_timm:open_encoder",
    "hf:": "soopf_jax.encoders.hf:open_encoder",
    "hf-random:": "soopf_jax.encoders.hf:open_encoder",
}
SUBSTRATES: Mapping[str, str] = {
    "shapes3d-lite": "soopf_jax.substrates.shapes3d_lite:open_substrate",
    "mujoco": "soopf_jax.substrates.mujoco:open_substrate",
    "shapes3d": "soopf_jax.substrates.shapes3d:open_substrate",
    "coco": "soopf_jax.substrates.coco:open_substrate",
    "coco:": "soopf_jax.substrates.coco:open_substrate",
    "folder:": "soopf_jax.substrates.folder:open_substrate",
}
ARGUMENTS: Mapping[str, str] = {
    "hf:": "ID_OR_FOLDER",
    "hf-random:": "ID_OR_FOLDER",
    "timm:": "NAME",
    "coco:": "SPLIT",
    "folder:": "PATH",
}
"""What the user writes after a name that ends with a colon."""
READOUTS: Mapping[str, str] = {
    "soopf": "soopf_jax.readouts.soopf:READOUT",
    "dense": "soopf_jax.readouts.dense:READOUT",
    "bilinear": "soopf_jax.readouts.bilinear:READOUT",
    "bilinear-positive": "soopf_jax.readouts.bilinear:POSITIVE",
    "mlp": "soopf_jax.readouts.mlp:READOUT",
    "attention": "soopf_jax.readouts.attention:READOUT",
    "oracle": "soopf_jax.readouts.oracle:READOUT",
    "mlp-scaled": "soopf_jax.readouts.mlp:SCALED",
    "attention-scaled": "soopf_jax.readouts.attention:SCALED",
    "oracle-scaled": "soopf_jax.readouts.oracle:SCALED",
}
ASSIGNMENTS: Mapping[str, str] = {
    "factorial": "soopf_jax.fitting.assignments:FACTORIAL",
    "learned": "soopf_jax.fitting.assignments:LEARNED",
    "learned-sinkhorn": "soopf_jax.fitting.assignments:SINKHORN",
    "matched": "soopf_jax.fitting.assignments:MATCHED",
    "searched": "soopf_jax.fitting.assignments:SEARCHED",
    "compressed": "soopf_jax.fitting.assignments:COMPRESSED",
    "native": "soopf_jax.fitting.assignments:NATIVE",
}
OBJECTIVES: Mapping[str, str] = {
    "core": "soopf_jax.fitting.objectives:CORE",
    "enhanced": "soopf_jax.fitting.objectives:ENHANCED",
    "native": "soopf_jax.fitting.objectives:NATIVE",
}
NO_LOGGER = "none"
LOGGERS: Mapping[str, str] = {NO_LOGGER: "", "trackio": "trackio", "wandb": "wandb"}
"""Experiment loggers: modules with the functions `init`, `log` and `finish`."""
EXTRAS: Mapping[str, str] = {
    "torch": "encoders",
    "transformers": "encoders",
    "safetensors": "encoders",
    "huggingface_hub": "encoders",
    "mujoco": "mujoco",
    "OpenGL": "mujoco",
    "pycocotools": "coco",
    "h5py": "shapes3d",
    "timm": "timm",
    "ipywidgets": "notebook",
    "pandas": "pandas",
    "s3fs": "s3",
    "gcsfs": "gcs",
    "aiohttp": "http",
    "trackio": "trackio",
    "wandb": "wandb",
    "submitit": "slurm",
}
"""The packages that the core does not need, by the name that is imported, and the extra that installs each."""


def offered(table: Mapping[str, str]) -> list[str]:
    """The names of a table as error messages show them. `hf:...` is a name with an argument."""
    return [name + "..." if name.endswith(":") else name for name in table]


def find(kind: str, table: Mapping[str, str], name: str) -> str:
    """The address `module:attr` of the plug-in called `name`. Nothing is imported.

    Args:
        kind: What the name stands for, such as `encoder`; it appears in error messages.
        table: The names of this kind that come with the package.
        name: A name in the table; for a key that ends with a colon (`hf:`), that key with an argument
            (`hf:../folder`); or the address of a user's own plug-in, `package.module:attr`.

    Raises:
        UserError: The name is none of these. The message offers the nearest valid name.
    """
    address = table.get(name) or table.get(name.partition(":")[0] + ":") or _own(name)
    if address is None:
        raise unknown_name(kind, name, offered(table), also=" or give your own as package.module:attr")
    return address


def resolve(kind: str, table: Mapping[str, str], name: str) -> Any:
    """The plug-in called `name`, imported. The arguments are those of `find`.

    Raises:
        UserError: The name is unknown, or its module or attribute does not exist.
        MissingPackage: The plug-in needs a package that is not installed.
    """
    address = find(kind, table, name)
    module, _, attribute = address.partition(":")
    try:
        return load(address)
    except ModuleNotFoundError as error:
        if error.name and not module.startswith(error.name):
            raise missing_package(f"{kind} '{name}'", error.name) from error
        raise UserError(f"{kind} '{name}': no module named {module}; check the spelling or PYTHONPATH") from error
    except AttributeError as error:
        raise UserError(f"{kind} '{name}': {module} has no attribute '{attribute}'; check the spelling") from error


def load(address: str) -> Any:
    """The value at `module:attr`."""
    module, _, attribute = address.partition(":")
    return getattr(importlib.import_module(module), attribute)


def require(what: str, *packages: str) -> None:
    """Raise MissingPackage unless the packages that `what` needs are installed. They are not imported."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing_package(what, package)


def missing_package(what: str, module: str) -> MissingPackage:
    """`encoder 'dinov3' needs torch, which the extra encoders brings; pip install 'soopf_jax[encoders]'`."""
    package = module.partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return MissingPackage(f"{what} needs the package {package}; install it")
    return MissingPackage(f"{what} needs {package}, which the extra {extra} brings; pip install 'soopf_jax[{extra}]'")


def _own(name: str) -> str | None:
    """`name` itself where it has the form package.module:attr, else None."""
    module, colon, attribute = name.partition(":")
    dotted = all(part.isidentifier() for part in module.split("."))
    return name if colon and dotted and attribute.isidentifier() else None


def listed(table: Mapping[str, str]) -> str:
    """The names of a table for a help text: `pixels, hf:ID_OR_FOLDER, or your own as package.module:attr`."""
    names = [name + ARGUMENTS.get(name, "") for name in table]
    return f"{', '.join(names)}, or your own as package.module:attr"
