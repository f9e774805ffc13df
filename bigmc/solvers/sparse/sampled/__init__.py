"""Samples that do not fit into memory: a random sample, corrected by passes over all of them."""
