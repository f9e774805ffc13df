"""Write, read and merge shards; their labels and chunks."""
