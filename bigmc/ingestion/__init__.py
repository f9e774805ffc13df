"""From sources to a dataset: readers, feature hashing, the job that writes shards."""

from bigmc.ingestion.append import Append
from bigmc.ingestion.options import Options
from bigmc.ingestion.prepare import make_job

__all__ = ["Append", "Options", "make_job"]
