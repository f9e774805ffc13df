"""Ingest into an object store: build on a local disk, upload, and commit with the manifest."""

from __future__ import annotations

from dataclasses import dataclass

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.ingestion.job import Job
from bigmc.progress import ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import MANIFEST
from bigmc.store.files.object_store import Address, publish


@dataclass(frozen=True)
class Upload:
    """An ingest whose dataset goes to an object store at `url`; the job makes it in a local folder."""

    job: Job
    url: str

    def run(self, engine: Engine, progress: ProgressCallback) -> Dataset:
        """Build the dataset, send it, and return it; whatever of this is done already is passed over.

        `DataError` if there is a dataset made with other parameters, or another process was first.
        """
        if not self._is_there():
            Address(self.url).sizes("")  # refuses a bucket that is not there before the work, not after
            self.job.run(engine, progress)
            if not publish(self.job.to, self.url, progress) and not self._is_there():
                raise DataError(f"the dataset at {self.url} has disappeared", "run the same command again")
        return Dataset.open(self.url)

    def run_part(self, number: int, count: int, engine: Engine, progress: ProgressCallback) -> dict[str, int]:
        """Write a part, as :meth:`bigmc.ingestion.job.Job.run_part`, of the dataset to be sent later."""
        if self._is_there():
            return {"n_pieces": 0, "n_samples": 0}
        return self.job.run_part(number, count, engine, progress)

    def _is_there(self) -> bool:
        """Return whether the dataset is there; one made with other parameters is refused."""
        if Address(self.url).read(MANIFEST) is None:
            return False
        self.job.recipe.refuse_other(self.url, Dataset.open(self.url).ingests[0].manifest)
        return True
