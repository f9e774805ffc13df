"""From sources to a dataset: readers, feature hashing, the job that writes shards."""
