"""Samples that do not fit into memory: chunk after chunk, with passes over all of them between."""
