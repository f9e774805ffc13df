"""All samples in memory: passes that find what violates, and rounds over a working set of features."""
