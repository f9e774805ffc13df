"""Scores of samples.

`model_scores` has those of a model for stored shards and for rows, `hashed_scoring` those of texts straight
from their hashes, `score_matrix` the matrix that training keeps, and `ranking` the ranks of labels.
"""
