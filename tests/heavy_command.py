"""A command that imports something heavy, for the test of the test of start-up."""

import scipy.optimize  # noqa: F401
