"""Faults of real machines, as functions that cause a fault and count its effects. Run with `python -m tests.faults`."""
