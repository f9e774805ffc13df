"""One training run, resumable and saved once; and choosing one of several models."""
