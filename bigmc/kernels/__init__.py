"""Numba kernels: arrays in, arrays out; they know neither files nor objects."""
