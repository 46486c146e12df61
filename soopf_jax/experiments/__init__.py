"""The two experiments, held-out cells and two edits at once, and their results on disk."""
