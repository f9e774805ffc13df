"""Using a model: predictions of raw files or datasets, and how good they are."""
