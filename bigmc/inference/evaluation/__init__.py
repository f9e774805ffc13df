"""Evaluate predictions on labelled data: single labels, label sets, probabilities."""
