"""Feature matrices in memory or behind dask: NumPy, SciPy sparse, dask arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, batch_of_rows, number
from bigmc.ingestion.readers.tables import even_stops, row_ranges, source_in_memory
from bigmc.ingestion.sources.source import Source
from bigmc.kernels.records import first_not_finite
from bigmc.options.ingest import Missing
from bigmc.store.shards.csr import Rows

_STORED = (np.int8, np.int16, np.int32, np.float32, np.float64)


def stored_dtype(values: NDArray[Any], path: str) -> NDArray[Any]:
    """Return values in one of the dtypes of the store: int8, int16, int32, float32 or float64.

    The conversion is exact; other values raise an error.
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype in _STORED:
        return values
    if values.dtype == np.bool_:
        return values.view(np.int8)
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if values.dtype.kind not in "iu":
        raise DataError(
            f"{path}: values of type {values.dtype} are not supported",
            "pass integers, booleans or floats up to 64 bits",
        )
    lo, hi = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for kind in (np.int16, np.int32):
        if np.iinfo(kind).min <= lo and hi <= np.iinfo(kind).max:
            return values.astype(kind)
    if max(-lo, hi) > 1 << 53:
        raise DataError(f"{path}: integers above 2**53 are not exact as float64", "scale the values down")
    return values.astype(np.float64)


def bad_entries(matrix: Rows | NDArray[Any], n_rows: int, missing: Missing) -> dict[int, tuple[int, float]]:
    """Return, by row position, the first feature that is infinite, or NaN unless these are allowed."""
    if isinstance(matrix, Rows):
        indptr, values = matrix.indptr, matrix.data
    else:
        width = matrix.shape[1]
        indptr, values = np.arange(n_rows + 1, dtype=np.int64) * width, matrix.reshape(-1)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return {}
    positions = np.empty(n_rows, dtype=np.int64)
    first_not_finite(indptr, np.ascontiguousarray(values), missing == "keep", positions)
    bad: dict[int, tuple[int, float]] = {}
    for i in np.flatnonzero(positions >= 0):
        at = int(positions[i])
        feature = int(matrix.indices[at]) if isinstance(matrix, Rows) else at - int(indptr[i])
        bad[int(i)] = feature, float(values[at])
    return bad


def _rows(matrix: Any, path: str) -> Rows | NDArray[Any]:
    """Return a slice as `Rows`, or as a dense array."""
    if not scipy.sparse.issparse(matrix):
        return stored_dtype(np.ascontiguousarray(matrix), path)
    rows = Rows.of_matrix(matrix)
    return rows._replace(data=stored_dtype(rows.data, path))


class MatrixFormat:
    """Arrays, read by row ranges; rows with infinite values are bad, and rows with NaN unless it is kept."""

    def schema(self, source: Source, hints: ReadHints) -> Any:
        """Return no columns, since a matrix only has features."""
        return pa.schema([])

    def split(self, sources: Sequence[Source], part_bytes: int, hints: ReadHints) -> list[Part]:
        """Split the rows of each array; a dask array at its own chunks."""
        parts: list[Part] = []
        width = sources[0].data.shape[1]
        for i, source in enumerate(sources):
            array = source.data
            n_rows = int(array.shape[0])
            if array.shape[1] != width:
                raise DataError(
                    f"{source.path} has {array.shape[1]} features, {sources[0].path} has {width}",
                    "give arrays with the same features",
                )
            if scipy.sparse.issparse(array):
                n_bytes = array.data.nbytes + array.indices.nbytes
            else:
                n_bytes = n_rows * width * array.dtype.itemsize
            if source.format == "dask":
                stops = list(itertools.accumulate(array.chunks[0]))
            else:
                stops = even_stops(n_rows, n_bytes, part_bytes)
            parts += row_ranges(source, i, n_rows, n_bytes, stops)
        return number([replace(part, options={"missing": hints.missing}) for part in parts])

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Read the rows of a part; a chunk of a dask array is computed whole, in this thread."""
        known = source_in_memory(part, source)
        array, labels = known.data, known.labels
        offset = 0
        if part.format == "dask":
            array = array[part.start : part.stop].compute(scheduler="synchronous")
            offset = part.start
        step = max(1, part.n_rows * request.batch_bytes // max(1, part.n_bytes))
        for lo in range(part.start, part.stop, step):
            hi = min(lo + step, part.stop)
            own_labels: Any = labels[lo:hi] if labels is not None else None
            if hasattr(own_labels, "compute"):
                own_labels = pa.array(own_labels.compute(scheduler="synchronous"))
            matrix = _rows(array[lo - offset : hi - offset], part.path)
            bad = bad_entries(matrix, hi - lo, "keep" if part.options.get("missing") else "refuse")
            reasons = {i: f"feature {feature} is {value}" for i, (feature, value) in bad.items()}
            done = lo - part.start
            yield batch_of_rows(part, done, reasons, request.on_bad_row, matrix=matrix, labels=own_labels)
