"""Plug-ins: where image pairs come from."""
