"""One shard: written, read by ranges of columns, merged; its labels and its chunks."""
