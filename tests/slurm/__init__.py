"""Tests that need a real Slurm, and tests of several processes: `make test-slurm`."""
