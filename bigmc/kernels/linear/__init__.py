"""Kernels of the sparse linear learner: losses and penalties by columns and by samples, and scores."""
