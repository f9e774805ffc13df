"""Rows to try hashings of texts on, drawn in one pass over the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from bigmc.engine.processes import trim_if_full
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.columns.labels import split_labels
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, expand_sources, read, scan, schema
from bigmc.ingestion.readers.base import BATCH_BYTES
from bigmc.ingestion.sources.source import no_rows
from bigmc.ingestion.writing.splits import check_group_type, group_hashes, row_fractions
from bigmc.lazy import LazyModule
from bigmc.options.raw import FileOptions

pc = LazyModule("pyarrow.compute")

PILOT_ROWS, USEFUL_ROWS, FEWEST_ROWS = 32_000, 8_000, 50
"""Maximum rows to read; rows that are read even if they have more than `PILOT_BYTES`; rows without which
nothing can be compared."""
PILOT_BYTES = 64_000_000
TEXT_SHARE = 8
"""Part of the memory limit that the texts take, whatever their number: they are copied and hashed besides."""
SEED = 0x9170

Labels: TypeAlias = NDArray[Any] | scipy.sparse.csr_array


class PilotColumns(NamedTuple):
    """Columns that a pilot reads.

    Attributes
    ----------
    text : tuple of str
    group : str or None
        Column of groups, which a trial never splits.
    label_separator : str or None
        Separator between several labels of a row.
    words_by_column : bool or None
        Whether the words of several text columns are told apart; None: whatever is better.
    """

    text: tuple[str, ...]
    label: str
    group: str | None = None
    label_separator: str | None = None
    words_by_column: bool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, without duplicates."""
        return tuple(dict.fromkeys((*self.text, self.label, *([self.group] if self.group else []))))

    def groups(self, table: pa.Table) -> NDArray[np.int64] | None:
        """Return a hash of the group of every row, None without groups."""
        if self.group is None:
            return None
        return group_hashes(table.column(self.group).combine_chunks(), SEED).view(np.int64)


class PilotRows(NamedTuple):
    """Rows to try hashings on.

    Attributes
    ----------
    labels : array of shape (n_rows,), or of shape (n_rows, n_classes)
        A label for each row, or which labels it has.
    groups : int64 array of shape (n_rows,) or None
    words_by_column : bool or None
        As in `PilotColumns`.
    """

    texts: pa.Table
    labels: Labels
    groups: NDArray[np.int64] | None = None
    words_by_column: bool | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.labels.shape[1]) if self.labels.ndim == 2 else len(np.unique(self.labels))


def draw_pilot_rows(
    source: Any, columns: PilotColumns, files: FileOptions, memory: int
) -> tuple[PilotRows | None, int]:
    """Return some rows, None if there are few with texts and labels, and the number of all rows.

    They are drawn by a hash of their numbers. `DataError` if a column is missing.
    """
    sources = expand_sources(source, files)
    names, text = columns.names, columns.text
    hints = ReadHints(types={name: pa.string() for name in text}, any_width=names, columns=names)
    schema(sources, names, hints)  # refuses files that do not fit together, which only the ingest would say
    parts = scan(sources, hints=hints)
    n_rows, n_bytes = sum(part.n_rows for part in parts), max(sum(part.n_bytes for part in parts), 1)
    most_bytes = memory // TEXT_SHARE
    enough = max(PILOT_BYTES / n_bytes, USEFUL_ROWS / max(n_rows, 1))
    share = min(enough, PILOT_ROWS / max(n_rows, 1), most_bytes / n_bytes)
    request = ReadRequest(names, min(BATCH_BYTES, most_bytes // 8), "quarantine", reader_bytes=most_bytes)
    tables = []
    for part in parts:
        for batch in read(part, request, sources=sources):
            if batch.table is not None and batch.n_rows:
                chosen = pa.array(row_fractions(batch.row, SEED) < share)
                tables.append(pa.Table.from_batches([batch.table.filter(chosen)]))
                trim_if_full()  # these small tables lie between the batches in the heap, and keep them apart
    if not tables:
        raise no_rows(sources[0])
    table = _complete(pa.concat_tables(tables, promote_options="permissive"), text, columns.group)
    labels = _labels(table.column(columns.label).combine_chunks(), columns.label_separator)
    if labels is None or table.num_rows < FEWEST_ROWS:
        return None, n_rows
    texts = table.select(list(text))
    return PilotRows(texts, labels, columns.groups(table), columns.words_by_column), n_rows


def _complete(table: pa.Table, text: Sequence[str], group: str | None) -> pa.Table:
    """Return the rows with labels, with missing texts as empty ones; `DataError` if a type does not fit."""
    FeatureSpec(text=tuple(text)).check_types(table.schema)
    check_group_type(table.schema, group)
    for name in text:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.string()).fill_null(""))
    return table.drop_null().combine_chunks()


def _labels(column: pa.Array, separator: str | None) -> Labels | None:
    """Return the labels, or for label sets which of them each row has; None if they are neither."""
    lists = column if separator is None else split_labels(column, separator)
    if not pa.types.is_nested(lists.type):
        return np.asarray(lists.to_pylist(), object).astype(str)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        return None
    flat, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    known = flat.is_valid().to_numpy(zero_copy_only=False)
    classes, codes = np.unique(
        np.asarray(flat.drop_null().to_pylist(), object).astype(str), return_inverse=True
    )
    shape = len(lists), len(classes)
    indicator = scipy.sparse.coo_array((np.ones(len(codes), np.int8), (rows[known], codes)), shape).tocsr()
    indicator.data[:] = 1  # a label may come twice
    return indicator
