"""What happens in real life, as functions that let it happen and count what came of it; `python -m tests.faults`."""
