"""What the rows say of columns before they are read for good: lengths of lists, categories, and means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.columns.table_columns import LevelCount, MeanOfColumns
from bigmc.ingestion.columns.vector_columns import MOST_PLACES, Vector, lists_of_numbers
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, read, scan, schema
from bigmc.ingestion.sources.source import Source


def with_widths(features: FeatureSpec, sources: Sequence[Source], stored: Sequence[Vector]) -> FeatureSpec:
    """Return the features with the number of places of each vector: as stored, or that of its first list."""
    widths = {vector.column: vector.width for vector in stored}
    columns = tuple(name for name in features.vector_columns if name not in widths)
    if columns:
        widths |= _first_lengths(replace(features, vectors=tuple(map(Vector, columns))), sources)
    return replace(features, vectors=tuple(Vector(name, widths[name]) for name in features.vector_columns))


def _first_lengths(features: FeatureSpec, sources: Sequence[Source]) -> dict[str, int]:
    """Return the length of the first list in each column of lists."""
    columns = features.vector_columns
    hints = ReadHints(types=features.json_types, known=columns, missing=True)
    features.check_types(schema(sources[:1], columns, hints))
    widths: dict[str, int] = {}
    for table in _table_batches(sources, columns, hints):
        for name in columns:
            lengths = lists_of_numbers(table.column(name)).lengths
            if name not in widths and lengths.max(initial=0) > 0:
                widths[name] = int(lengths[lengths > 0][0])
        if len(widths) == len(columns):
            break
    for name in columns:
        where = f"{sources[0].path}: the column {name!r}"
        if name not in widths:
            raise DataError(f"{where} has no list of numbers", "leave it out")
        if widths[name] > MOST_PLACES:
            cure = f"shorten them to {MOST_PLACES:,}, or give a matrix without names"
            raise DataError(f"{where} has lists of {widths[name]:,} numbers", cure)
    return widths


def with_table_columns(features: FeatureSpec, sources: Sequence[Source], hints: ReadHints) -> FeatureSpec:
    """Return the features with the values of categories and the replacements of missing numbers.

    The sources are read only if needed. Rows with invalid labels count too.
    """
    if not features.one_hot and (features.filling is None or not features.numbers):
        return features
    counts = [LevelCount() for _ in features.one_hot]
    means = MeanOfColumns(len(features.numbers))
    fills = features.filling is not None
    filled = (*features.dense, *features.dates, *features.vector_columns) if fills else ()
    columns = tuple(dict.fromkeys((*filled, *(levels.column for levels in features.one_hot))))
    for table in _table_batches(sources, columns, hints):
        for count, levels in zip(counts, features.one_hot, strict=True):
            count.add(table.column(levels.column))
        numbers = features.read_numbers(table)
        of_dense = (numbers[name] for name in features.dense)
        read = chain(of_dense, features.read_several(table)) if fills else ()
        rows = (values for one in read for values in np.atleast_2d(one.values[~one.unreadable].T))
        for place, values in enumerate(rows):
            means.add(place, values)
    return replace(
        features,
        one_hot=tuple(
            count.levels(levels.column) for count, levels in zip(counts, features.one_hot, strict=True)
        ),
        filling=None
        if features.filling is None
        else means.filling(features.filling, _inner_places(features)),
    )


def _inner_places(features: FeatureSpec) -> list[int]:
    """Return the places of all numbers of lists but the first, which stands for its list."""
    first = len(features.numbers) - sum(vector.width for vector in features.vectors)
    inner: list[int] = []
    for vector in features.vectors:
        inner += range(first + 1, first + vector.width)
        first += vector.width
    return inner


def _table_batches(
    sources: Sequence[Source], columns: tuple[str, ...], hints: ReadHints
) -> Iterator[pa.RecordBatch]:
    request = ReadRequest(columns, on_bad_row="quarantine")
    parts = scan(sources, hints=replace(hints, columns=columns))
    batches = (batch.table for part in parts for batch in read(part, request, sources=sources))
    return (table for table in batches if table.num_rows)
