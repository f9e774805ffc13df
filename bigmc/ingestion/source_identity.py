"""What tells a source from another one, so that a rerun knows whether it continues the same work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bigmc.ingestion.files import is_address, status_of
from bigmc.ingestion.readers.base import Source
from bigmc.store.atomic import sha256


def identify(source: Source) -> Mapping[str, Any]:
    """Return what tells a source from another one: path, size and time of change, or a digest."""
    data = source.data
    if source.stream is not None:
        file = Path(source.path)
        identity = {"path": source.stream, "format": source.format, "bytes": file.stat().st_size}
        return identity | {"sha256": sha256(file)} | source.dialect.to_dict()
    if data is None:
        status = status_of(source.path)
        path = source.path if is_address(source.path) else str(Path(source.path).resolve())
        identity = {"path": path, "format": source.format, "bytes": status.n_bytes, "changed": status.changed}
        return identity | source.dialect.to_dict()
    digest = hashlib.sha256()
    if source.format == "dask":
        digest.update(str(data.name).encode())  # dask names an array by a token of how it is made
    elif source.format == "table":
        for batch in data.to_batches():
            digest.update(batch.serialize())
    else:
        arrays = (data.indptr, data.indices, data.data) if scipy.sparse.issparse(data) else (data,)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    if source.labels is not None:
        sets = isinstance(source.labels, pa.ListArray)
        labels = source.labels.to_pylist() if sets else np.asarray(source.labels).tolist()
        digest.update(repr(labels).encode())
    shape = [int(n) for n in data.shape]
    return {"path": source.path, "format": source.format, "shape": shape, "sha256": digest.hexdigest()}
