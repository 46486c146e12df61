"""A readout that cannot be trained."""

from soopf_jax.errors import UserError
from soopf_jax.readouts import soopf


def _init(key, dims):
    raise UserError("this readout is broken on purpose; use another one")


READOUT = soopf.READOUT._replace(init=_init)
