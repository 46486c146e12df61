"""The paper's numbers, the runs that its tables need, and what they cost."""
