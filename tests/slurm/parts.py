"""The tiny data set and encoder, for commands in processes of their own: these draw no reports, which take longest."""

from soopf_jax.report import page
from tests.tiny_parts import open_encoder, open_layered, open_substrate

__all__ = ["open_encoder", "open_layered", "open_substrate"]
page.pages = lambda result, examples=None: {}
