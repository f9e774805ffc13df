"""From sources to a dataset: readers, feature hashing, the job that writes shards."""

from bigmc.ingestion.append import Append
from bigmc.ingestion.prepare import make_job
from bigmc.ingestion.upload import Upload
from bigmc.ingestion.workers import prepare_process

__all__ = ["Append", "Upload", "make_job", "prepare_process"]
