"""Detect the types of columns from a sample of rows: numbers, categories, dates or texts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.column_facts import ColumnFacts, Use
from bigmc.ingestion.columns.label_copies import Codes
from bigmc.ingestion.columns.odd_values import note_on_odd
from bigmc.ingestion.columns.patterns import expand_given
from bigmc.ingestion.columns.table_columns import MOST_LEVELS, category_texts
from bigmc.ingestion.columns.value_formats import MISSING_TEXTS, ValueFormat, ValueFormats
from bigmc.ingestion.columns.vector_columns import is_list_of_numbers
from bigmc.ingestion.parts.scan import Batch, Part, ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.parts.spool import read_once
from bigmc.ingestion.readers import FORMATS, MATRICES, TEXT_FORMATS
from bigmc.ingestion.sources.source import Source, no_rows
from bigmc.lazy import LazyModule
from bigmc.options.ingest import FEATURES, IngestKeywords, IngestOptions, columns_of, format_examples

pc = LazyModule("pyarrow.compute")

SAMPLE_ROWS = 20_000
"""Rows at the beginning of the source that are sampled."""
SAMPLE_VALUES = 1_000_000
"""Values of the sample, at most: different texts of a column are kept, with about 120 bytes each."""
MOST_INDICATORS = 2_000
"""Maximum number of values of all categories as features of their own; above it they are hashed."""


class ColumnKinds(NamedTuple):
    """Options for the columns of a table.

    `left_out` are columns of lists that are no vectors, objects, bytes, times of day, ids or row numbers, or
    without values, if no columns are named. `notes` are sentences on texts that count as missing, on columns
    whose values look like numbers or dates but are not read as such, on ids, and on columns that alone tell
    the class of every row.
    """

    options: IngestKeywords
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def with_column_kinds(source: Any, options: IngestKeywords) -> ColumnKinds:
    """Return the options of an ingest, completed with column types detected in a sample of the rows.

    Without any column of features all columns become some, but for label, group, weight and those to keep:
    numbers, categories of few or frequent values, and else texts. Patterns become the columns that they
    match. Categories of few values become indicators where no text is hashed beside them. Missing numbers and
    dates are filled with the mean; where there are any, or values of the sample are missing, missing texts
    and categories are empty ones. What was given stays. `DataError` if a named column is missing, no row can
    be read, or no column is usable.
    """
    if read_once(source):
        return ColumnKinds(options)  # do not consume sources that can be read only once
    options = expand_given(source, options)
    named = any(options.get(kind) for kind in FEATURES)
    texts: tuple[str, ...] = ()
    dense = _numbers(options)
    categories = columns_of(options.get("categorical"))
    hashes = any(options.get(kind) for kind in ("text", "numeric", "hash_bits"))
    asked = (*dense, *(() if hashes else categories))
    if named and not asked:
        return ColumnKinds(options)
    columns = _sampled(source, options, asked if named else None)
    if columns is None:
        return ColumnKinds(options)
    completed = options.copy()
    if not named:
        _leave_out_ids(columns)
        texts = _kinds(columns, completed)
        categories, hashes = columns_of(completed.get("categorical")), bool(texts)
        dense = _numbers(completed)
    known = {column.name: column for column in columns}
    counts = [len(known[name].levels.counts) for name in categories if name in known]
    few = max(counts, default=0) <= MOST_LEVELS and sum(counts) <= MOST_INDICATORS
    if categories and few and not hashes:
        completed["one_hot"] = (*columns_of(completed.get("one_hot")), *categories)
        del completed["categorical"]
    if dense and (hashes or completed.get("categorical")):
        completed.setdefault("standardize", True)
    hashed = () if named else (*texts, *columns_of(completed.get("categorical")))
    if dense:
        _enter_formats(columns, completed)
    if "missing" not in completed and (dense or any(known[name].n_missing for name in hashed)):
        completed["missing"] = "fill"
    left_out = () if named else tuple(column.name for column in columns if not column.is_useful)
    return ColumnKinds(completed, left_out, tuple(_notes(columns)))


def _numbers(options: IngestKeywords) -> tuple[str, ...]:
    """Return the columns that become numbers of their own."""
    return (
        *columns_of(options.get("dense")),
        *columns_of(options.get("date")),
        *columns_of(options.get("vector")),
    )


def _leave_out_ids(columns: Sequence[ColumnFacts]) -> None:
    """Mark indexes and ids as unfit, unless there are no other columns."""
    ids = {column.name for column in columns if column.is_id}
    if any(column.is_useful and column.name not in ids for column in columns):
        for column in columns:
            column.unfit |= column.name in ids


def _sampled(source: Any, options: IngestKeywords, wanted: Sequence[str] | None) -> list[ColumnFacts] | None:
    """Return facts about columns from a sample, by default all possible features; None for matrices."""
    sources = expand_sources(source, IngestOptions().but(options))
    if sources[0].format in MATRICES:
        return None
    others = {*columns_of(options.get("keep")), options.get("label"), options.get("group")}
    others.add(options.get("weight"))
    columns: dict[str, ColumnFacts] = {}
    categories = columns_of(options.get("categorical"))
    formats = _given_formats(options)
    missing = (*MISSING_TEXTS, *(text.strip().lower() for text in columns_of(options.get("missing_text"))))
    n_rows, rejects = 0, []
    if wanted is None:
        wanted = _enter_nested(sources[0], columns)
        columns = {name: column for name, column in columns.items() if name not in others}
    firsts: dict[int, int] = {}  # number of the first row of each source
    labels = Codes()
    for part, batch in _batches(sources, wanted):
        rejects += batch.rejects[:1]
        n_rows += batch.n_rows
        firsts[part.source] = min(firsts.get(part.source, part.first_row), part.first_row)
        classes = _classes(batch.table, options.get("label"), labels)
        for name in batch.table.column_names:
            if name in others:
                continue
            use = Use.CATEGORY if name in categories else Use.UNKNOWN
            new = ColumnFacts(name, format=formats.get(name), missing=missing, use=use)
            column = columns.setdefault(name, new)
            column.add(batch.table)
            if column.is_vector:
                continue
            column.row_numbers.add(batch.table.column(name), batch.row, firsts[part.source])
            if classes is not None and not column.unfit:
                column.label_copy.add(batch.table.column(name), classes)
    if not n_rows:
        raise rejects[0].error() if rejects else no_rows(sources[0])
    for column in columns.values():
        column.complete()
    _find_places(sources, [column for column in columns.values() if column.odd])
    return list(columns.values())


def _classes(table: pa.RecordBatch, label: Any, labels: Codes) -> NDArray[np.int64] | None:
    """Return the class of each row; None if the labels are not read with the features, or are lists."""
    if label not in table.column_names or pa.types.is_nested(table.schema.field(label).type):
        return None
    return labels.of(table.column(label))


def _enter_nested(source: Source, columns: dict[str, ColumnFacts]) -> list[str] | None:
    """Enter columns of objects and other lists than of numbers; return those to read, or None for all."""
    schema = FORMATS[source.format].schema(source, ReadHints(missing=True))
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_nested(kind) and not is_list_of_numbers(kind):
            columns[name] = ColumnFacts(name, unfit=True, is_object=pa.types.is_struct(kind))
    return [name for name in schema.names if name not in columns] or None if columns else None


def _batches(sources: Sequence[Source], wanted: Sequence[str] | None) -> Iterator[tuple[Part, Batch]]:
    """Yield the batches of the sample, each with its part."""
    hints = ReadHints(missing=True, columns=None if wanted is None else tuple(wanted))
    n_rows = 0
    for part in scan(sources, hints=hints):
        for batch in read(part, ReadRequest(wanted, on_bad_row="quarantine"), sources=sources):
            yield part, batch
            n_rows += batch.n_rows
            if n_rows >= SAMPLE_ROWS or n_rows * batch.table.num_columns >= SAMPLE_VALUES:
                return


def _find_places(sources: Sequence[Source], columns: Sequence[ColumnFacts]) -> None:
    """Find the first line or row of each odd value, by reading the sample once more."""
    for part, batch in _batches(sources, [column.name for column in columns]) if columns else ():
        unit = "line" if part.format in TEXT_FORMATS else "row"
        for column in columns:
            texts = pc.utf8_trim_whitespace(category_texts(batch.table.column(column.name)))
            for place in np.flatnonzero(pc.is_in(texts, pa.array(column.odd, pa.string()))):
                text = texts[int(place)].as_py()
                column.odd_places.setdefault(text, f"{unit} {batch.line[place]:,}")


def _given_formats(options: IngestKeywords) -> dict[str, ValueFormat]:
    """Return the formats of columns that have examples."""
    return dict(ValueFormats.like(format_examples(options.get("value_format"))).formats)


def _enter_formats(columns: Sequence[ColumnFacts], options: IngestKeywords) -> None:
    """Add the formats of numbers and dates, and the texts that stand for missing ones, to the options."""
    used = {*columns_of(options.get("dense")), *columns_of(options.get("date"))}
    formats = _given_formats(options)
    formats |= {column.name: column.format for column in columns if column.name in used and column.format}
    if formats:
        options["value_format"] = ValueFormats(tuple(formats.items())).examples
    options["missing_text"] = (*MISSING_TEXTS, *columns_of(options.get("missing_text")))
    odd = tuple(column.name for column in columns if column.name in used and column.odd)
    if odd:
        options["odd_as_missing"] = (*columns_of(options.get("odd_as_missing")), *odd)


def _notes(columns: Sequence[ColumnFacts]) -> Iterator[str]:
    """Yield remarks on how columns are read."""
    for text in dict.fromkeys(text for column in columns for text in column.spelled):
        names = ", ".join(column.name for column in columns if text in column.spelled)
        yield f"{text!r} counts as missing in {names}"
    for column in columns:
        if column.is_object:
            yield f"{column.name} is an object; name its fields to use them: --text {column.name}.FIELD"
        if column.odd:
            yield note_on_odd(column.name, column.odd, column.n_rows, column.odd_places)
        yield from _notes_on_ids(column)
        if column.is_useful and column.label_copy.found:
            yield (
                f"{column.name} alone tells the class of all {column.n_rows:,} rows looked at; if it was "
                "made from the label, or new rows lack it, leave it out by naming the other columns"
            )
        if column.inexact:
            use = "left out" if column.unfit else "categories"
            yield f"{column.name} has integers that are not exact as numbers, such as {column.inexact}: {use}"
        if column.doubt:
            yield f"{column.name} is not read as numbers or dates: {column.doubt}"


def _notes_on_ids(column: ColumnFacts) -> Iterator[str]:
    kind = "dense" if column.is_number else "text"
    option = f"--{kind} {shlex.quote(column.name)}"
    use = f"left out ({option}, beside other columns, uses it)" if column.unfit else "used"
    if column.is_random_id:
        yield f"{column.name} has another UUID or digest in every row, which tells nothing of new rows: {use}"
    elif column.row_numbers.found:
        yield f"{column.name} numbers the rows, which tells the class where they are sorted by it: {use}"
    elif column.is_index:
        yield f"{column.name} is named as an index or id is, and every row has another value: {use}"
    elif column.is_useful and column.is_shuffled_row_number:
        yield (
            f"{column.name} has every number up to {column.n_rows:,} once, as row numbers do, and is used; "
            "if they are row numbers, leave it out by naming the other columns"
        )


def _kinds(columns: Sequence[ColumnFacts], options: IngestKeywords) -> tuple[str, ...]:
    """Add each column to the options of its type; return the texts."""
    useful = [column for column in columns if column.is_useful]
    dates = tuple(column.name for column in useful if column.is_date)
    vectors = tuple(column.name for column in useful if column.is_vector)
    useful = [column for column in useful if not (column.is_date or column.is_vector)]
    dense = tuple(column.name for column in useful if column.is_number)
    categories = tuple(column.name for column in useful if not column.is_number and column.is_category)
    texts = tuple(column.name for column in useful if not (column.is_number or column.is_category))
    if not (useful or dates or vectors):
        objects = [column.name for column in columns if column.is_object]
        cure = "name some with --text, --categorical, --one-hot or --dense"
        if objects:
            cure = f"name fields of {objects[0]!r}: --text {objects[0]}.FIELD, or --dense, --categorical"
        raise DataError("the table has no usable feature columns", cure)
    if dense:
        options["dense"] = dense
    if dates:
        options["date"] = dates
    if vectors:
        options["vector"] = vectors
    if categories:
        options["categorical"] = categories
    if texts:
        options["text"] = texts
    return texts
