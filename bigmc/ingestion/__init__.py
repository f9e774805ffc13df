"""Make datasets from sources: readers, feature hashing, and the job that writes shards."""
