"""The platform of the devices for which a program is being traced: `cpu` or `gpu`.

A program can be compiled for devices that this process does not have. Code whose best form depends on the device asks
`platform()`. It must not ask for JAX's default backend, which need not be where the program will run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

CPU = "cpu"
_traced_for: ContextVar[str | None] = ContextVar("platform", default=None)


def platform() -> str:
    """The platform of the program that is being traced; outside of any program, that of JAX's default devices."""
    return _traced_for.get() or jax.default_backend()


@contextmanager
def tracing_for(devices: jax.sharding.Mesh) -> Iterator[None]:
    """What is traced within this context will run on these devices."""
    token = _traced_for.set(platform_of(devices))
    try:
        yield
    finally:
        _traced_for.reset(token)


def platform_of(devices: jax.sharding.Mesh) -> str:
    """The platform of the devices of a mesh, which is the same for all of them."""
    return str(devices.devices.flat[0].platform)
