"""The dataset on disk: layout, shards, blocks, commit."""
