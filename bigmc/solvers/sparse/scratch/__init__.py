"""Columns of chosen features, compressed in memory or in a file, and chunks of samples read from them."""
