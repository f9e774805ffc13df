"""A pass over the sources that finds what categories and missing numbers of a table become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from bigmc.ingestion.features import FeatureSpec, Numbers
from bigmc.ingestion.source import Source
from bigmc.ingestion.sources import ReadHints, ReadRequest, read, scan
from bigmc.ingestion.table_columns import LevelCount, MeanOfColumns


def with_table_columns(features: FeatureSpec, sources: Sequence[Source], hints: ReadHints) -> FeatureSpec:
    """Return the features with the values of their categories, and what fills missing numbers.

    Nothing is read where nothing is to be found. Rows that cannot be used count as others do: labels are not
    looked at.
    """
    if not features.one_hot and (features.filling is None or not features.dense):
        return features
    counts = [LevelCount(levels.column) for levels in features.one_hot]
    means = MeanOfColumns(len(features.dense))
    filled = () if features.filling is None else features.dense
    columns = tuple(dict.fromkeys((*filled, *(levels.column for levels in features.one_hot))))
    for table in _batches(sources, columns, hints):
        for count, levels in zip(counts, features.one_hot, strict=True):
            count.add(table.column(levels.column))
        numbers = Numbers(table)
        for place, name in enumerate(filled):
            means.add(place, numbers[name].values[~numbers[name].unreadable])
    return replace(
        features,
        one_hot=tuple(count.levels() for count in counts),
        filling=None if features.filling is None else means.filling(features.filling),
    )


def _batches(
    sources: Sequence[Source], columns: tuple[str, ...], hints: ReadHints
) -> Iterator[pa.RecordBatch]:
    request = ReadRequest(columns, on_bad_row="quarantine")
    parts = scan(sources, hints=replace(hints, columns=columns))
    batches = (batch.table for part in parts for batch in read(part, request, sources=sources))
    return (table for table in batches if table is not None and table.num_rows)
