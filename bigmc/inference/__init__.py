"""Predict raw files or datasets, and evaluate predictions."""
