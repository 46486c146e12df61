"""From the statistics of trained fits to scores: alignment, accuracies, tests."""
