"""Kernels of the boosted learner: binning, cuts, trees, dual weights and coordinate descent."""
