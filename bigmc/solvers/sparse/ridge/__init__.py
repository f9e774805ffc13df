"""A ridge alone: dual coordinates of samples, in memory or one block of samples after the other."""
