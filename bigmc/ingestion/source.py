"""One source of samples: a file, an array or a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bigmc.ingestion.dialect import USUAL, Dialect
from bigmc.ingestion.files import is_address, status_of
from bigmc.store.atomic import sha256


@dataclass(frozen=True)
class Source:
    """One file, or one array or table in memory.

    Attributes
    ----------
    path : str
        Path or address of the file, or a name for the array.
    format : str
        Name of the format.
    data : object
        The array or table; None for a file.
    labels : array or None
        Labels of the rows of an array.
    stream : str or None
        What came as a stream and was written to the file; None for other files.
    dialect : Dialect
        How a text file is written.
    """

    path: str
    format: str
    data: Any = None
    labels: Any = None
    stream: str | None = None
    dialect: Dialect = USUAL

    @property
    def in_memory(self) -> bool:
        """Whether it is an array or a table of this process, which no other one sees."""
        return self.data is not None

    def identity(self) -> Mapping[str, Any]:
        """Return what tells the source from others, so that a rerun knows whether it continues the same work.

        That is path, size and time of change of a file, else a digest; as JSON data.
        """
        named = {"path": self.path, "format": self.format}
        if self.in_memory:
            return named | {"shape": [int(n) for n in self.data.shape], "sha256": self._digest()}
        if self.stream is not None:
            file = Path(self.path)
            content = {"path": self.stream, "bytes": file.stat().st_size, "sha256": sha256(file)}
        else:
            status = status_of(self.path)
            path = self.path if is_address(self.path) else str(Path(self.path).resolve())
            content = {"path": path, "bytes": status.n_bytes, "changed": status.changed}
        return named | content | self.dialect.to_dict()

    def _digest(self) -> str:
        """Return the digest of an array or table in memory and its labels."""
        digest, data = hashlib.sha256(), self.data
        if self.format == "dask":
            digest.update(str(data.name).encode())  # dask names an array by a token of how it is made
        elif self.format == "table":
            for batch in data.to_batches():
                digest.update(batch.serialize())
        else:
            arrays = (data.indptr, data.indices, data.data) if scipy.sparse.issparse(data) else (data,)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
        if self.labels is not None:
            sets = isinstance(self.labels, pa.ListArray)
            labels = self.labels.to_pylist() if sets else np.asarray(self.labels).tolist()
            digest.update(repr(labels).encode())
        return digest.hexdigest()
