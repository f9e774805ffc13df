"""One part of an ingest: read, set bad rows aside, hash, split, write; then appear by a rename."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.engine.processes import trim_if_full
from bigmc.ingestion.columns.features import FeatureSpec, Samples
from bigmc.ingestion.columns.labels import (
    MISSING,
    MISSING_IN_SET,
    NUL_AT_END,
    LabelCoder,
    find_missing,
    find_nul_at_end,
    split_labels,
)
from bigmc.ingestion.columns.number_columns import Numbers
from bigmc.ingestion.columns.sample_weights import bad_weights, weights_of
from bigmc.ingestion.hashing.categories import Categories
from bigmc.ingestion.hashing.feature_names import LEAST_CAPACITY, NameCounter
from bigmc.ingestion.memory import PIECES_OF_CATEGORIES, Shares
from bigmc.ingestion.parts.scan import Batch, Part, ReadRequest, read
from bigmc.ingestion.readers.base import keep_matrix
from bigmc.ingestion.readers.rejects import Reject, rejects_table
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source
from bigmc.ingestion.writing.bad_rows import set_aside
from bigmc.ingestion.writing.part_receipt import NAMES, REJECTS, PartReceipt
from bigmc.ingestion.writing.pipeline import ALONE, Crew, in_order
from bigmc.ingestion.writing.shard_writer import ShardWriter
from bigmc.ingestion.writing.splits import assign_splits, group_hashes, row_fractions
from bigmc.lazy import LazyModule
from bigmc.store.feature_map import Moments
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, replacing
from bigmc.store.files.layout import GROUP_HASH, SAMPLE_WEIGHT, file_entry
from bigmc.store.row_hash import unit_interval
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.label_sets import is_sets

pq = LazyModule("pyarrow.parquet")


class _Ready(NamedTuple):
    """What became of a batch: its good rows, the bad ones, features and categorical columns of the good."""

    batch: Batch
    rejects: list[Reject]
    samples: Samples
    categories: list[Categories]


class PartWriter:
    """Turn one part of the sources into shards.

    Nothing is visible in `folder` before all of the part is there. Of two that write the same part, as when a
    worker was given up that is still alive, the first one is kept. Relative paths of sources start from
    `base`.
    """

    def __init__(
        self,
        part: Part,
        sources: Sequence[Source],
        recipe: Recipe,
        shares: Shares,
        folder: Path,
        base: str,
    ) -> None:
        self._part, self._sources, self._recipe, self._shares = part, sources, recipe, shares
        self._folder, self._base = folder, base
        self._aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}{PARTIAL}")
        self._labels = LabelCoder(shares.label_bytes)
        self._rejects: list[Reject] = []
        self._categories: list[Categories] = []  # of the batch read last, whose values may come again
        self._names = _name_counters(recipe.features, shares.name_capacity)

    def moments(self) -> Moments:
        """Return the moments of the dense features of the first split, writing nothing."""
        total = Moments(0, np.zeros(1), np.zeros(1))
        for batch in self._batches():
            ready = self._transformed(batch)
            first = self._assigned(ready.batch)[0] == 0
            samples = keep_matrix(ready.samples, first)
            if first.any() and not isinstance(samples, Rows):
                total = total + Moments.of(samples)
        return total

    def labels(self) -> Iterator[pa.Array]:
        """Yield the labels batch by batch, those of sets one after another, writing nothing."""
        for batch in self._batches(() if self._recipe.label is None else (self._recipe.label,)):
            labels = self._label_column(batch)
            labels = labels.filter(pa.array(~find_missing(labels)))
            yield labels.flatten() if is_sets(labels.type) else labels

    def _batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        request = ReadRequest(
            columns=(self._recipe.columns if columns is None else columns) or None,
            batch_bytes=self._shares.batch_bytes,
            most_pieces=PIECES_OF_CATEGORIES if self._recipe.only_categories else 1,
            on_bad_row=self._recipe.on_bad_row,
            reader_bytes=self._shares.reader_bytes,
            record_limit=self._shares.record_limit,
            scratch=str(self._folder.parent),
            encoded=self._recipe.category_only_columns,
        )
        return read(self._part, request, sources=self._sources, base=self._base)

    def run(self, crew: Crew = ALONE) -> Iterator[tuple[int, int]]:
        """Write the part with the help of a crew, yielding rows and source bytes done after each batch."""
        disk.make_folder(self._aside)
        writer = ShardWriter(self._aside, self._recipe.splits, self._shares.buffer_bytes, crew)
        rows_in = 0
        names: Future[None] | None = None  # counted in the order of the batches, one after another
        for ready in in_order(self._transformed, self._batches(), crew):
            batch = ready.batch
            n_rows = batch.n_rows + len(ready.rejects)
            rows_in += n_rows
            self._rejects += ready.rejects
            if names is not None:
                names.result()
            helpers = crew.helpers
            if helpers is None:
                self._count_names(ready)
            elif self._names:
                names = helpers.submit(self._count_names, ready)
            for split, some, table in self._pieces(batch, ready.samples):
                if writer.add(split, some, table):
                    trim_if_full()
            yield n_rows, batch.n_bytes
        if names is not None:
            names.result()
        self._commit(
            PartReceipt(
                self._part.index,
                rows_in,
                len(self._rejects),
                self._labels.values,
                tuple(writer.close()),
                self._labels.sets,
            )
        )

    def _transformed(self, batch: Batch) -> _Ready:
        """Return the rows of a batch that can be used, with their features, and the other ones."""
        features = self._recipe.features
        numbers = features.read_numbers(batch.table)
        good, rejects = self._set_bad_aside(batch, numbers)
        if good.table is None:
            assert good.matrix is not None
            return _Ready(good, [*batch.rejects, *rejects], features.mapped(good.matrix), [])
        self._categories = categories = features.categories(good.table, self._categories)
        numbers = numbers if good.table is batch.table else features.read_numbers(good.table)
        samples = features.transform(good.table, categories, numbers)
        return _Ready(good, [*batch.rejects, *rejects], samples, categories)

    def _count_names(self, ready: _Ready) -> None:
        """Count the names of hashed features."""
        if not self._names:
            return
        for column, texts in self._recipe.features.texts(ready.batch.table).items():
            self._names[column].update(texts)
        for start, stop in _ranges(ready.batch, ready.batch.row):
            for column, categories in zip(self._recipe.features.categorical, ready.categories, strict=True):
                few = categories._replace(codes=categories.codes[start:stop])
                self._names[column].update_categories(few)

    def _set_bad_aside(self, batch: Batch, numbers: Numbers) -> tuple[Batch, list[Reject]]:
        """Return the batch without rows whose label or features cannot be used, and these rows."""
        bad = {} if batch.table is None else self._recipe.features.find_bad(batch.table, numbers)
        if self._recipe.group is not None:
            missing = find_missing(batch.table.column(self._recipe.group))
            reason = f"the group {self._recipe.group!r} is missing"
            bad |= dict.fromkeys(np.flatnonzero(missing).tolist(), reason)
        if self._recipe.weight is not None:
            bad |= bad_weights(batch.table, self._recipe.weight)
        labels = self._label_column(batch)
        reason = MISSING_IN_SET if is_sets(labels.type) else MISSING
        bad |= dict.fromkeys(np.flatnonzero(find_missing(labels)).tolist(), reason)
        bad |= dict.fromkeys(np.flatnonzero(find_nul_at_end(labels)).tolist(), NUL_AT_END)
        return set_aside(batch, bad, self._part, self._recipe.on_bad_row)

    def _label_column(self, batch: Batch) -> pa.Array:
        if self._recipe.label is None:
            return batch.labels
        labels = batch.table.column(self._recipe.label)
        separator = self._recipe.label_separator
        return labels if separator is None else split_labels(labels, separator)

    def _pieces(self, batch: Batch, samples: Samples) -> Iterator[tuple[str, Samples, pa.Table]]:
        """Yield the samples of each split with their table, piece by piece as if each were a batch."""
        by_split = list(self._by_split(batch, samples))
        ranges = [_ranges(batch, table["row_id"].to_numpy()) for _, _, table in by_split]
        for places in zip(*ranges, strict=True):
            for (split, some, table), (start, stop) in zip(by_split, places, strict=True):
                if start < stop:
                    piece = some.between(start, stop) if isinstance(some, Rows) else some[start:stop]
                    yield split, piece, table.slice(start, stop - start)

    def _by_split(self, batch: Batch, samples: Samples) -> Iterator[tuple[str, Samples, pa.Table]]:
        """Yield the samples of each split with their table."""
        recipe = self._recipe
        codes = self._labels.encode(self._label_column(batch))
        ids = batch.row + recipe.first_row
        assigned, hashes = self._assigned(batch)
        for number, split in enumerate(recipe.splits):
            chosen = assigned == number
            if not chosen.any():
                continue
            mask = pa.array(chosen)
            columns = {"label": codes.filter(mask), "row_id": ids[chosen]}
            if recipe.weight is not None:
                columns[SAMPLE_WEIGHT] = weights_of(batch.table.column(recipe.weight))[chosen]
            if hashes is not None:
                columns[GROUP_HASH] = hashes[chosen].view(np.int64)
            columns |= {name: batch.table.column(name).filter(mask) for name in recipe.keep}
            yield split, keep_matrix(samples, chosen), pa.table(columns)

    def _assigned(self, batch: Batch) -> tuple[NDArray[np.intp], NDArray[np.uint64] | None]:
        """Return the number of each row's split, and the hash of its group if there are groups."""
        recipe = self._recipe
        if recipe.group is None:
            return assign_splits(
                row_fractions(batch.row + recipe.first_row, recipe.seed), recipe.splits
            ), None
        hashes = group_hashes(batch.table.column(recipe.group), recipe.seed)
        return assign_splits(unit_interval(hashes), recipe.splits), hashes

    def _commit(self, receipt: PartReceipt) -> None:
        if self._names:
            counters = dict.fromkeys(self._names.values())
            with replacing(self._aside / NAMES) as file:  # read once and deleted: packed quickly
                table = pa.concat_tables([counter.unsorted_table() for counter in counters])
                pq.write_table(table, file, compression="lz4", use_dictionary=False)
        if self._rejects:
            names = {source.path: source.name for source in self._sources}
            rejects = [replace(reject, path=names[reject.path]) for reject in self._rejects]
            with replacing(self._aside / REJECTS) as file:
                pq.write_table(rejects_table(rejects), file, compression="zstd")
        tables = (self._aside / name for name in (NAMES, REJECTS))
        written = tuple(file_entry(path, self._aside) for path in tables if path.exists())
        replace(receipt, tables=written).write(self._aside)
        try:
            disk.rename(self._aside, self._folder)  # its files have been synced by their writers
        except OSError:
            if not self._folder.exists():
                raise
            disk.clear(self._aside)  # another one has written the same
        disk.sync(self._folder.parent)


def _name_counters(features: FeatureSpec, capacity: int) -> dict[str, NameCounter]:
    """Return what counts the names of each column, in all at most `capacity`; nothing if none are counted."""
    hasher, columns = features.hasher, (*features.text, *features.categorical)
    if hasher is None or not columns or not capacity:
        return {}
    if not hasher.by_column:
        return dict.fromkeys(columns, NameCounter(hasher, capacity))
    n_counters = len(features.text) + bool(features.categorical)
    share = max(LEAST_CAPACITY, 1 << (capacity // n_counters).bit_length() - 1)
    counters = {column: NameCounter(hasher, share, column) for column in features.text}
    if features.categorical:
        plain = replace(hasher, by_column=False)
        counters |= dict.fromkeys(features.categorical, NameCounter(plain, share))
    return counters


def _ranges(batch: Batch, row: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the ranges of increasing row ids that are in each piece of a batch."""
    bounds = [0, *np.searchsorted(row, batch.pieces[1:]).tolist(), len(row)]
    return list(itertools.pairwise(bounds))
