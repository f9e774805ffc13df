"""Convert samples in memory (texts, dicts, tables) and files to the features of a model."""

from __future__ import annotations

import difflib
import os
import reprlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec, Samples
from bigmc.ingestion.parts.scan import Batch, Part, ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.readers.nested import only, select, with_fields
from bigmc.ingestion.readers.plain_types import plain_array, plain_columns
from bigmc.ingestion.readers.rejects import Reject
from bigmc.ingestion.sources.in_memory import COLLECT, is_lazy_frame
from bigmc.ingestion.sources.mixed_values import as_texts, loses_times, only_unicode
from bigmc.ingestion.writing.bad_rows import set_aside
from bigmc.model import Model, ModelOutline
from bigmc.model.linear_scoring import check_width
from bigmc.options.raw import OnBadRow
from bigmc.printable import listed
from bigmc.store.feature_map import FeatureMap
from bigmc.store.files.object_store import is_remote
from bigmc.store.shards.csr import Rows

MOST_ROWS = 4096
"""Rows hashed and scored together: enough that the costs of a call do not count."""

SCORE_BYTES = 32 << 20
"""Bytes of the scores of such rows, at most."""


@dataclass(frozen=True)
class SampleReader:
    """Turns samples in memory, or in files, into the rows that a model scores, by batches."""

    spec: FeatureSpec
    n_features: int
    batch_rows: int = MOST_ROWS

    @classmethod
    def of(cls, model: Model) -> SampleReader:
        """Return the reader of a model; its batches have scores of `SCORE_BYTES` at most."""
        rows = max(1, min(MOST_ROWS, SCORE_BYTES // (8 * model.n_classes)))
        return cls(feature_spec_of(model), model.n_features, rows)

    def takes(self, data: Any) -> bool:
        """Return whether data has columns or texts, which the model was trained on, rather than features."""
        if not self.spec.columns or scipy.sparse.issparse(data) or hasattr(data, "__dask_graph__"):
            return False
        if isinstance(data, np.ndarray):
            return data.ndim == 1
        if isinstance(data, str | os.PathLike) or _is_frame(data) or _is_column(data) or _is_no_list(data):
            return True
        if hasattr(data, "__array__") or not hasattr(data, "__getitem__"):
            return False
        return len(data) == 0 or isinstance(data[0], str | bytes | os.PathLike | Mapping | type(None))

    def batches(self, data: Any) -> Iterator[Rows]:
        """Yield the rows of samples, in their order.

        The data are texts, if the model was trained on one text column and no others; else the
        columns of the model by name, in dicts, a data frame or an Arrow table, other columns being
        ignored; or files that `bigmc.ingest` reads: a path, pattern or address, or a list of
        `pathlib.Path`. `DataError`, naming the row, if a column is missing, or a value cannot be used.
        """
        for table in self.tables(data):
            yield rows_of(self.spec.transform(table), self.n_features)

    def tables(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield the columns of samples, checked, `batch_rows` rows at a time; as `batches` otherwise."""
        if isinstance(data, str | os.PathLike) or (
            isinstance(data, list | tuple) and data and isinstance(data[0], os.PathLike)
        ):
            yield from self._file_tables(data)
            return
        if _is_no_list(data):
            kinds = "give a list of dicts or texts, a data frame or an Arrow table"
            raise DataError(
                f"a {type(data).__name__} is no list of samples", COLLECT if is_lazy_frame(data) else kinds
            )
        if isinstance(data, pa.ChunkedArray):
            data = data.combine_chunks()
        for table in self._tables(data):
            self.spec.check_types(table.schema)
            bad = self.spec.find_bad(table)
            if bad:
                position = min(bad)
                raise DataError(
                    f"sample {position}: {bad[position]}", "remove the sample, or give it a value"
                )
            n_odd = self.spec.count_odd(table)
            if n_odd:
                warnings.warn(f"{n_odd:,} values are no numbers or dates and count as missing", stacklevel=2)
            yield table

    def _tables(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the model, `batch_rows` rows at a time."""
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if _is_frame(data):
            table = self._own_columns(data)
            for start in range(0, table.num_rows, self.batch_rows):
                part = table.slice(start, self.batch_rows).combine_chunks()
                yield select(plain_columns(part.to_batches()[0]), self.spec.columns)
            return
        if not isinstance(data, list | tuple | pa.Array):
            as_list = getattr(data, "to_list", None) or getattr(data, "tolist", None)
            data = list(data) if as_list is None else as_list()
        dicts = isinstance(data, list | tuple) and len(data) > 0 and isinstance(data[0], Mapping)
        for start in range(0, len(data), self.batch_rows):
            part = data[start : start + self.batch_rows]
            with only_unicode("the samples"):
                table = self._of_dicts(part, start) if dicts else self._of_texts(part)
            yield table

    def _of_texts(self, texts: Any) -> pa.RecordBatch:
        if len(self.spec.columns) > 1 or not self.spec.text:
            columns = listed(self.spec.columns)
            raise DataError(
                f"a text is not a sample: the model needs the columns {columns}",
                "give a list of dicts, a data frame or an Arrow table",
            )
        try:
            column = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"the samples are not all texts ({error})", "give a list of str") from None
        return pa.record_batch([column], [self.spec.text[0]])

    def _of_dicts(self, dicts: Sequence[Any], first: int) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        for row, sample in enumerate(dicts, first):
            if not isinstance(sample, Mapping):
                shown = reprlib.repr(sample)
                raise DataError(f"sample {row} is {shown}, others are dicts", "give dicts of all columns")
        samples = [by_name(row, self.spec.columns) for row in dicts]
        for name in self.spec.columns:
            try:
                column_of = _text_column if name in self.spec.text else _column
                columns[name] = column_of([sample[name] for sample in samples])
            except KeyError:
                row = next(i for i, sample in enumerate(samples) if name not in sample)
                strange = [key for key in map(str, dicts[row]) if key not in self.spec.columns]
                near = difflib.get_close_matches(name, strange, n=1)
                hint = f" but {near[0]!r}" if near else ""
                raise DataError(
                    f"sample {first + row} has no {name!r}{hint}",
                    f"give the columns {listed(self.spec.columns)}",
                ) from None
            except TypeError as error:
                said = f"column {name!r} has values of several types ({error})"
                raise DataError(said, "give values of one type") from None
        return pa.record_batch(columns)

    def _own_columns(self, frame: Any) -> pa.Table:
        """Return the columns of the model of a data frame; others may have values of any types."""
        pandas, columns = sys.modules.get("pandas"), list(self.spec.columns)
        if pandas is not None and isinstance(frame, pandas.DataFrame):
            holds = [any(f"{name}.".startswith(f"{own}.") for name in columns) for own in frame.columns]
            frame = frame.loc[:, holds]
        table = frame if isinstance(frame, pa.Table) else expand_sources(frame)[0].data
        names = with_fields(table.schema).names
        missing = [name for name in columns if name not in names]
        if missing:
            raise DataError(
                f"the samples have no column {missing[0]!r}", f"the model needs {listed(columns)}"
            )
        return table.select(only(table.schema, columns).names)

    def _file_tables(self, paths: Any) -> Iterator[pa.RecordBatch]:
        try:
            sources = expand_sources(paths)
        except DataError:
            if not isinstance(paths, str) or is_remote(paths) or os.path.exists(paths):
                raise
            raise DataError(f"there is no file {paths[:60]!r}", "give texts as a list: [text]") from None
        hints = ReadHints(
            types=self.spec.json_types,
            numbers=self.spec.number_columns,
            known=self.spec.columns,
            missing=self.spec.takes_missing,
        )
        for part in scan(sources, hints=hints):
            for batch in read(part, ReadRequest(self.spec.columns), sources=sources):
                good, _ = set_aside(batch, self.spec.find_bad(batch.table), part, "fail")
                for start in range(0, good.n_rows, self.batch_rows):
                    yield good.table.slice(start, self.batch_rows)


def feature_spec_of(model: Model | ModelOutline) -> FeatureSpec:
    """Return how raw columns, or the columns of a matrix, become the features of a model."""
    if "hasher" in model.feature_spec:
        return FeatureSpec.from_dict(model.feature_spec)
    if "map" in model.feature_spec:  # trained on arrays in memory, like the following
        map = FeatureMap.from_dict(model.feature_spec["map"])
        return FeatureSpec(n_own=len(map.mean), map=map)
    return FeatureSpec(n_own=model.n_features, missing=model.takes_missing)


def usable_rows(
    batch: Batch, part: Part, spec: FeatureSpec, n_features: int, on_bad_row: OnBadRow
) -> tuple[Batch, list[Reject], Rows]:
    """Return a batch without its bad rows, these, and the good ones in the features of a model.

    `DataError` at the first bad row, if it shall stop the run.
    """
    bad = {} if batch.table is None else spec.find_bad(batch.table)
    good, rejects = set_aside(batch, bad, part, on_bad_row)
    samples = spec.transform(good.table) if good.matrix is None else spec.mapped(good.matrix)
    return good, rejects, rows_of(samples, n_features)


def rows_of(samples: Samples, n_features: int) -> Rows:
    """Return samples as rows of a model's width; `DataError` if they are wider, or dense and narrower."""
    if isinstance(samples, Rows):
        if samples.n_features > n_features:
            check_width(samples.n_features, n_features)
        return samples._replace(n_features=n_features)
    check_width(samples.shape[1], n_features)
    return Rows.of_dense(samples)


def _column(values: list[Any]) -> pa.Array:
    """Return values as a column: texts, if they have several types; `TypeError` if some have no text."""
    try:
        column = plain_array(pa.array(values))
    except (pa.ArrowException, OverflowError):
        return as_texts(values)
    return as_texts(values) if loses_times(column.type, values) else column


def _text_column(values: list[Any]) -> pa.Array:
    """Return values as a column, numbers and booleans as texts; `TypeError` if some have no text."""
    column, types = _column(values), pa.types
    scalars = (types.is_integer, types.is_floating, types.is_boolean)
    return as_texts(values) if any(is_scalar(column.type) for is_scalar in scalars) else column


def by_name(row: Mapping[Any, Any], columns: Sequence[str]) -> dict[str, object]:
    """Return the values of a sample by column; columns may be fields of objects, such as ``doc.text``.

    Data frames may number their columns.
    """
    if not all(isinstance(name, str) for name in row):
        row = {str(name): value for name, value in row.items()}
    found = ((name, _value(row, name)) for name in columns)
    return {name: value for name, value in found if value is not _ABSENT}


_ABSENT = object()


def _value(row: Mapping[str, Any], name: str) -> Any:
    """Return a value or, of an object in it, the field with a dotted name; fields of nothing are missing."""
    if name in row or "." not in name:
        return row.get(name, _ABSENT)
    for key, inner in row.items():
        if name.startswith(f"{key}."):
            return _value(inner, name[len(key) + 1 :]) if isinstance(inner, Mapping) else None
    return _ABSENT


def _is_frame(data: Any) -> bool:
    """Return whether data is a table of named columns: of Arrow, pandas, polars or the like."""
    streams = isinstance(data, pa.Table) or hasattr(data, "__arrow_c_stream__")
    return streams and (hasattr(data, "columns") or hasattr(data, "column_names"))


def _is_no_list(data: Any) -> bool:
    """Return whether data is one dict, or has no length, as generators and lazy frames."""
    return isinstance(data, Mapping) or not (hasattr(data, "__len__") or _is_frame(data))


def _is_column(data: Any) -> bool:
    """Return whether data is one column: a Series, or an Arrow array."""
    return isinstance(data, pa.Array | pa.ChunkedArray) or (
        hasattr(data, "dtype") and getattr(data, "ndim", 1) == 1 and hasattr(data, "__len__")
    )
