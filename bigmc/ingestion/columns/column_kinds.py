"""What the columns of a table are, where nobody has said: numbers, categories or texts, as a sample tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.date_columns import as_dates, is_date
from bigmc.ingestion.columns.number_columns import Numbers, is_number
from bigmc.ingestion.columns.table_columns import MOST_LEVELS, LevelCount
from bigmc.ingestion.hashing.categories import is_text, plain_text
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.parts.spool import is_pipe, is_stream
from bigmc.ingestion.readers import MATRICES
from bigmc.lazy import LazyModule
from bigmc.options.ingest import IngestKeywords, IngestOptions, columns_of

pc = LazyModule("pyarrow.compute")

SAMPLE_ROWS = 20_000
"""Rows at the beginning of the source that are looked at."""
MOST_INDICATORS = 2_000
"""Values of all categories together, up to which each has a feature; more are hashed."""
_DATE = r"^\d{4}-\d{2}-\d{2}([ T]|$)"
_FEATURES = ("text", "categorical", "one_hot", "numeric", "dense", "date")


@dataclass
class _Column:
    """What the sample says of a column.

    Attributes
    ----------
    n_rows, n_missing, n_unreadable : int
        Rows, those without a value, and those whose value is no number.
    unfit : bool
        Lists, bytes, times of day and what are no whole dates are left out, unless they are named.
    n_dated : int
        Rows of batches whose values all are dates.
    """

    name: str
    levels: LevelCount
    n_rows: int = 0
    n_missing: int = 0
    n_unreadable: int = 0
    unfit: bool = False
    n_dated: int = 0

    @classmethod
    def of(cls, name: str) -> _Column:
        return cls(name, LevelCount(name))

    def add(self, table: pa.RecordBatch) -> None:
        column = table.column(self.name)
        self.n_rows += len(column)
        kind = column.type
        types = pa.types
        dated = _holds_dates(column)
        dates = as_dates(column) if dated and is_date(kind) else None
        unfit = types.is_nested(kind) or types.is_binary(kind)
        unfit |= dated and (dates is None or bool(dates.unreadable.any()))
        self.unfit = self.unfit or bool(unfit)
        if self.unfit:
            return
        if dates is not None:
            self.n_missing += int(dates.absent.sum())
            self.n_dated += len(column)
            return
        if is_number(kind):
            numbers = Numbers(table)[self.name]
            self.n_missing += int(np.isnan(numbers.values[~numbers.unreadable]).sum())
            self.n_unreadable += int(numbers.unreadable.sum())
        else:
            self.n_missing += column.null_count
            self.n_unreadable += len(column)
        if self.levels.n_values <= MOST_LEVELS:  # with more it is no category: texts need not be kept
            self.levels.add(column)

    @property
    def is_empty(self) -> bool:
        return self.n_missing == self.n_rows

    @property
    def is_useful(self) -> bool:
        return not (self.unfit or self.is_empty)

    @property
    def is_date(self) -> bool:
        return self.n_dated > 0

    @property
    def is_number(self) -> bool:
        return self.n_unreadable == 0

    @property
    def is_category(self) -> bool:
        """Whether values come back: there are few, and half as many as rows at most."""
        return self.levels.n_values <= min(MOST_LEVELS, max(2, self.n_rows // 2))


class ColumnKinds(NamedTuple):
    """What an ingest is asked for of the columns of a table.

    Attributes
    ----------
    options : IngestKeywords
    left_out : tuple of str
        Columns of lists, bytes or times of day, or without a value, where none are named: no features.
    """

    options: IngestKeywords
    left_out: tuple[str, ...] = ()


def with_column_kinds(source: Any, options: IngestKeywords) -> ColumnKinds:
    """Return the options of an ingest completed with what a sample of the rows says about its columns.

    Without any column of features all columns become some, but for label, group, weight and those to keep:
    numbers, categories of few values, and else texts. Categories of few values become indicators where no
    text is hashed beside them. Where values of the sample are missing, missing numbers are filled with the
    mean, and missing texts and categories are empty ones. What was given stays.

    Raises
    ------
    DataError
        If a named column is missing, no row can be read, or no column can be learned from.
    """
    items = source if isinstance(source, list | tuple) else [source]
    if any(is_stream(item) or (isinstance(item, str) and is_pipe(item)) for item in items):
        return ColumnKinds(options)  # what can be read once is not read to look at it
    named = any(options.get(kind) for kind in _FEATURES)
    texts: tuple[str, ...] = ()
    dense, categories = columns_of(options.get("dense")), columns_of(options.get("categorical"))
    hashes = any(options.get(kind) for kind in ("text", "numeric", "hash_bits"))
    asked = (*dense, *(() if hashes else categories))
    if named and not asked:
        return ColumnKinds(options)
    columns = _sampled(source, options, asked if named else None)
    if columns is None:
        return ColumnKinds(options)
    completed = options.copy()
    if not named:
        texts = _kinds(columns, completed)
        categories, hashes = columns_of(completed.get("categorical")), bool(texts)
        dense = (*columns_of(completed.get("dense")), *columns_of(completed.get("date")))
    known = {column.name: column for column in columns}
    counts = [known[name].levels.n_values for name in categories if name in known]
    few = max(counts, default=0) <= MOST_LEVELS and sum(counts) <= MOST_INDICATORS
    if categories and few and not hashes:
        completed["one_hot"] = (*columns_of(completed.get("one_hot")), *categories)
        del completed["categorical"]
    if dense and (hashes or completed.get("categorical")):
        completed.setdefault("standardize", True)
    hashed = () if named else (*texts, *columns_of(completed.get("categorical")))
    if "missing" not in completed and any(known[name].n_missing for name in (*dense, *hashed)):
        completed["missing"] = "fill"
    left_out = () if named else tuple(column.name for column in columns if not column.is_useful)
    return ColumnKinds(completed, left_out)


def _sampled(source: Any, options: IngestKeywords, wanted: Sequence[str] | None) -> list[_Column] | None:
    """Return what a sample says of columns, by default of all that may be features; None of matrices."""
    sources = expand_sources(source, IngestOptions().but(options))
    if sources[0].format in MATRICES:
        return None
    others = {*columns_of(options.get("keep")), options.get("label"), options.get("group")}
    others.add(options.get("weight"))
    columns: dict[str, _Column] = {}
    n_rows, rejects = 0, []
    hints = ReadHints(missing=True, columns=None if wanted is None else tuple(wanted))
    for part in scan(sources, hints=hints):
        for batch in read(part, ReadRequest(wanted, on_bad_row="quarantine"), sources=sources):
            rejects += batch.rejects[:1]
            if batch.table is None:
                continue
            for name in batch.table.column_names:
                if name not in others:
                    columns.setdefault(name, _Column.of(name)).add(batch.table)
            n_rows += batch.table.num_rows
            if n_rows >= SAMPLE_ROWS:
                return list(columns.values())
    if not n_rows:
        raise rejects[0].error() if rejects else DataError("the source has no rows", "check the path")
    return list(columns.values())


def _holds_dates(column: pa.Array) -> bool:
    """Return whether values are dates or times, or texts that all begin with a date such as 2026-11-23."""
    if not is_text(column.type):
        return bool(pa.types.is_temporal(column.type))
    dated = pc.match_substring_regex(plain_text(column).drop_null(), _DATE)
    return bool(len(dated)) and bool(pc.all(dated).as_py())


def _kinds(columns: Sequence[_Column], options: IngestKeywords) -> tuple[str, ...]:
    """Enter each column under its kind; return the texts."""
    useful = [column for column in columns if column.is_useful]
    dates = tuple(column.name for column in useful if column.is_date)
    useful = [column for column in useful if not column.is_date]
    dense = tuple(column.name for column in useful if column.is_number)
    categories = tuple(column.name for column in useful if not column.is_number and column.is_category)
    texts = tuple(column.name for column in useful if not (column.is_number or column.is_category))
    if not (useful or dates):
        raise DataError(
            "no column is left to learn from", "name some with --text, --categorical, --one-hot or --dense"
        )
    if dense:
        options["dense"] = dense
    if dates:
        options["date"] = dates
    if categories:
        options["categorical"] = categories
    if texts:
        options["text"] = texts
    return texts
