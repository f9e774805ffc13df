"""A ridge alone, in memory: dual coordinate descent over samples."""
