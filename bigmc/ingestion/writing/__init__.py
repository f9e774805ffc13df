"""From batches to shards and a published dataset: one part, and the end of all."""
