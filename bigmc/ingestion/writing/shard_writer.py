"""Collects the samples of one part, split by split, and writes them as shards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.features import Samples
from bigmc.ingestion.writing.pipeline import ALONE, Crew
from bigmc.store.files.dtypes import smallest_exact_dtype
from bigmc.store.files.layout import ShardEntry
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.memory_shard import MAX_ROWS
from bigmc.store.shards.write import Packing, write_shard


@dataclass
class _Buffer:
    """Samples of one split that wait for their shard."""

    samples: list[Samples] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    n_rows: int = 0
    n_bytes: int = 0


class ShardWriter:
    """Write the samples of a part as shards of at most 65,536 rows, each of one split.

    They are named ``000``, ``001``, … in the order written. `buffer_bytes` of samples are collected over all
    splits before the fullest one is written. The crew compresses several chunks at once.
    """

    def __init__(self, folder: Path, splits: Iterable[str], buffer_bytes: int, crew: Crew = ALONE) -> None:
        self._folder, self._crew = folder, crew
        self._buffers = {name: _Buffer() for name in splits}
        self._buffer_bytes = buffer_bytes
        self._entries: list[ShardEntry] = []

    def add(self, split: str, samples: Samples, table: pa.Table) -> bool:
        """Append samples of one split; return whether a shard was written.

        Their table has ``label``, ``row_id`` and the kept columns.
        """
        before = len(self._entries)
        start, n_rows = 0, table.num_rows
        while start < n_rows:
            buffer = self._buffers[split]
            stop = min(n_rows, start + MAX_ROWS - buffer.n_rows)
            piece = _slice(samples, start, stop)
            buffer.samples.append(piece)
            buffer.tables.append(table.slice(start, stop - start))
            buffer.n_rows += stop - start
            buffer.n_bytes += _bytes(piece)
            start = stop
            if buffer.n_rows == MAX_ROWS:
                self._flush(split)
        if sum(b.n_bytes for b in self._buffers.values()) > self._buffer_bytes:
            self._flush(max(self._buffers, key=lambda name: self._buffers[name].n_bytes))
        return len(self._entries) > before

    def close(self) -> list[ShardEntry]:
        """Write what is left and return the entries of all shards, in the order written."""
        for split in self._buffers:
            self._flush(split)
        return self._entries

    def _flush(self, split: str) -> None:
        buffer = self._buffers[split]
        if not buffer.n_rows:
            return
        self._buffers[split] = _Buffer()
        table = pa.concat_tables(buffer.tables, promote_options="permissive")
        folder = self._folder / f"{len(self._entries):03d}"
        samples, packing = _together(buffer.samples), Packing.QUICK  # labels get their final codes later
        entry = write_shard(folder, samples, table, split=split, pool=self._crew.helpers, packing=packing)
        self._entries.append(entry)


def _slice(samples: Samples, start: int, stop: int) -> Samples:
    """Return some samples in as few bytes as hold them exactly, since many wait in memory."""
    if not isinstance(samples, Rows):
        return samples[start:stop]
    piece = samples.between(start, stop)
    return piece._replace(data=piece.data.astype(smallest_exact_dtype(piece.data), copy=False))


def _bytes(samples: Samples) -> int:
    arrays = samples[:3] if isinstance(samples, Rows) else (samples,)
    return sum(array.nbytes for array in arrays)


def _together(pieces: list[Samples]) -> list[Rows] | NDArray[Any]:
    """Return sparse pieces as they are, and dense ones as one array."""
    sparse = [piece for piece in pieces if isinstance(piece, Rows)]
    return sparse or np.concatenate([np.asarray(piece) for piece in pieces])
