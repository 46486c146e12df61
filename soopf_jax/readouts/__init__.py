"""Plug-ins: small trained readouts of the innovation field."""
