"""Plug-ins: frozen encoders that turn images into patch tokens."""
