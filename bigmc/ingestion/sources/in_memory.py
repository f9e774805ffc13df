"""Arrays and tables in memory as sources: checked once, with the labels passed separately."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bigmc.errors import DataError
from bigmc.ingestion.sources.mixed_values import as_texts, loses_times, only_unicode
from bigmc.ingestion.sources.source import Source
from bigmc.store.shards.label_sets import column_of_indicator
from bigmc.store.shards.memory_shard import refuse_unsound

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of Arrow for columns of pandas that it cannot convert."""

COLLECT = "call its method collect() first"
"""What to do with a lazy frame where rows cannot be read as they are computed."""


def in_memory(item: Any, name: str, labels: Any) -> Source:
    """Return an array or table as a source.

    `DataError` if it is neither, or its shape, values or labels cannot be used.
    """
    if isinstance(item, pa.RecordBatchReader):
        raise DataError(f"{name}: can be read only once", "call read_all(), or write it to Parquet first")
    if is_lazy_frame(item):
        raise DataError(f"{name}: a lazy frame, whose rows are not computed yet", COLLECT)
    pandas = sys.modules.get("pandas")
    if isinstance(item, pa.RecordBatch):
        item = pa.Table.from_batches([item])
    elif pandas is not None and isinstance(item, pandas.DataFrame):
        with only_unicode(name):
            item = _table_of_pandas(item, name)
    elif not isinstance(item, pa.Table) and hasattr(item, "__arrow_c_stream__"):
        item = table_of_frame(item, name)
    if isinstance(item, pa.Table):
        if labels is not None:
            raise DataError(f"{name}: a table cannot have separate labels", "name its label column")
        return Source(name, "table", item)
    refuse_unsound(item, name)
    if scipy.sparse.issparse(item):
        # Rows of the other sparse layouts cannot be sliced; a CSR matrix is not copied.
        item, kind = scipy.sparse.csr_array(item), "sparse"
    elif isinstance(item, np.ndarray):
        item, kind = np.asarray(item), "array"
    elif hasattr(item, "dask") and hasattr(item, "chunks") and hasattr(item, "blocks"):
        kind = "dask"
    elif isinstance(item, Mapping):
        raise DataError(
            f"{name}: one row, not a source of rows",
            "pass a data frame of the rows, or to bigmc.ingest an iterator of them: iter(rows)",
        )
    else:
        raise DataError(
            f"{name}: not a source of samples",
            "pass a path, a NumPy, SciPy sparse or dask array, or an Arrow table or data frame",
        )
    return Source(name, kind, item, _checked(item, name, labels))


def is_lazy_frame(item: Any) -> bool:
    """Return whether this is a query of polars that is not computed yet."""
    return hasattr(item, "collect") and hasattr(item, "collect_schema") and hasattr(item, "lazy")


def table_of_frame(frame: Any, name: str) -> pa.Table:
    """Return a data frame of polars or the like as a table; `DataError` names a column of an unknown type."""
    try:
        return pa.table(frame)
    except pa.ArrowException as error:
        for column in getattr(frame, "columns", ()):
            try:
                pa.chunked_array(frame[column])
            except pa.ArrowException:
                raise DataError(
                    f"{name}: the column {column!r} has the type {frame[column].dtype}, which Arrow lacks",
                    f"give it another, as pl.col({column!r}).cast(pl.Int64) does, or drop it",
                ) from None
        raise DataError(
            f"{name}: no Arrow table can be made of it ({error})", "drop other columns"
        ) from error


def _table_of_pandas(frame: Any, name: str) -> pa.Table:
    """Return a pandas frame as a table.

    Columns of several types, such as dates and times, and intervals and periods become texts.
    """
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        for place, field in enumerate(table.schema):
            if _is_of_pandas(field.type) or loses_times(field.type, frame.iloc[:, place]):
                table = table.set_column(place, field.name, as_texts(frame.iloc[:, place]))
        return table
    except _REFUSED:
        repeated = frame.columns[frame.columns.duplicated()]
        if len(repeated):
            raise DataError(
                f"{name}: several columns have the name {repeated[0]!r}", "give every column its own name"
            ) from None
        return pa.table({str(column): _column_of_pandas(frame[column], name) for column in frame.columns})


def _is_of_pandas(kind: pa.DataType) -> bool:
    """Return whether values, or those of a dictionary, are intervals or periods."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(getattr(values, "extension_name", "").startswith("pandas."))


def _column_of_pandas(column: Any, name: str) -> Any:
    try:
        array = pa.Array.from_pandas(column)
        return as_texts(column) if _is_of_pandas(array.type) else array
    except _REFUSED as error:
        try:
            return as_texts(column)
        except TypeError:
            kinds = ", ".join(sorted({type(value).__name__ for value in column}))
            raise DataError(
                f"{name}: the column {column.name!r} has values of the types {kinds} ({error})",
                "give a column values of one type",
            ) from error


def _checked(array: Any, name: str, labels: Any) -> Any:
    """Return the labels, once the array and they are known to fit."""
    if array.ndim != 2:
        named = array.dtype.names and "; pandas.DataFrame(rows) makes a table of an array of named columns"
        raise DataError(
            f"{name}: {array.ndim} dimensions", f"pass samples as rows and features as columns{named or ''}"
        )
    if np.isnan(array.shape[0]):
        raise DataError(f"{name}: the chunk sizes are unknown", "call compute_chunk_sizes() first")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(f"{name}: values of type {array.dtype}", "pass numbers of up to 64 bits")
    if labels is None:
        return None
    sets = _label_sets(labels)
    if sets is not None:
        if len(sets) != array.shape[0]:
            raise DataError(
                f"{name}: {array.shape[0]} rows but {len(sets)} sets of labels", "pass one per row"
            )
        return sets
    column = labels if hasattr(labels, "compute") else np.asarray(labels)
    if column.ndim != 1 or column.shape[0] != array.shape[0]:
        raise DataError(
            f"{name}: {array.shape[0]} rows but labels of shape {column.shape}", "pass one label per row"
        )
    if column is labels and not isinstance(labels, np.ndarray):
        return labels  # a dask array
    try:
        with only_unicode(name):
            return pa.array(column)
    except pa.ArrowException as error:
        raise DataError(f"{name}: labels of several types ({error})", "pass labels of one type") from error


def _label_sets(labels: Any) -> Any:
    """Return labels that are sets as lists: from an indicator array or matrix, or a list of Python sets."""
    if scipy.sparse.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        return column_of_indicator(labels)
    if isinstance(labels, list | tuple) and labels and all(isinstance(s, set | frozenset) for s in labels):
        try:
            return pa.array([sorted(s) for s in labels])
        except (TypeError, pa.ArrowException) as error:
            raise DataError(f"labels of several types ({error})", "pass labels of one type") from error
    return None
