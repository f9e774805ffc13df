"""From sources to a dataset: readers, feature hashing, the job that writes shards."""

from bigmc.ingestion.prepare import make_job

__all__ = ["make_job"]
