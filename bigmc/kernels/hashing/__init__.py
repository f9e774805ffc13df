"""Kernels from UTF-8 text to hashed counts: words, folding, n-grams, murmur hashes, rows."""
