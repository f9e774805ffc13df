"""Write batches to shards, and publish the dataset."""
