"""Place the shards of all parts in the dataset: number them, merge small ones, recode labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.writing.pipeline import Crew, in_order
from bigmc.lazy import LazyModule
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.files import disk
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.layout import ROWS_TABLE, SHARDS, ShardEntry, file_entry, shard_folder
from bigmc.store.files.work_file import damaged_work, made_once, read_work_table
from bigmc.store.shards.disk_shard import SparseShard
from bigmc.store.shards.label_sets import is_sets, pairs_of, set_column
from bigmc.store.shards.merge import common_schema, merge_shards, plan_merges
from bigmc.store.shards.write import replace_rows_table
from bigmc.store.shards.zarr_chunks import ByteCounter

pq = LazyModule("pyarrow.parquet")

FINAL = {b"bigmc": b"final label codes"}
"""Mark of a table whose labels are codes of the dataset and no longer of its part."""


@dataclass(frozen=True)
class PartShard:
    """A shard as its part wrote it, and the dataset's code of each label code of the part."""

    folder: Path
    entry: ShardEntry
    codes: NDArray[np.int32]


@dataclass(frozen=True)
class Placing:
    """Puts the shards of finished parts in their final places; killed, it is done again.

    `work` is the folder of the finished parts; receipts of what was decided and done are kept there. Each of
    `n_threads` has `memory` bytes for merging shards into one.
    """

    to: Path
    work: Path
    n_features: int
    memory: int
    n_threads: int = 1

    def place(self, shards: Sequence[PartShard], progress: ProgressCallback) -> list[ShardEntry]:
        """Return the entries of the shards in their places; earlier attempts may have done some."""
        disk.make_folder(self.to / SHARDS)
        disk.sync(self.to)  # before parts are removed whose rows are in this folder then
        groups = self._plan_merges(shards)
        total = sum(shards[i].entry.rows for group in groups for i in group if len(group) > 1)
        if total:
            progress(Progress("merge", 0, total, "rows"))
        done = 0
        entries: list[ShardEntry] = []
        with Crew(self.n_threads) as crew:
            wanted = enumerate([shards[i] for i in group] for group in groups)
            for entry in in_order(self._place_group, wanted, crew):
                if len(groups[len(entries)]) > 1:
                    done += entry.rows
                    progress(Progress("merge", done, total, "rows"))
                entries.append(entry)
        disk.sync(self.to / SHARDS)
        return entries

    def _place_group(self, numbered: tuple[int, Sequence[PartShard]]) -> ShardEntry:
        """Put shards that become one in the place of this number."""
        number, group = numbered
        target = shard_folder(self.to, f"{number:06d}")
        return self._merge(group, target) if len(group) > 1 else _move(group[0], target)

    def _plan_merges(self, shards: Sequence[PartShard]) -> list[list[int]]:
        """Return the groups of shards that become one: decided once, before the first shard is moved."""

        def planned() -> list[list[int]]:
            groups: list[list[int]] = []
            for group in plan_merges([shard.entry for shard in shards]):
                schemas = [_schema(shards[i].folder / ROWS_TABLE) for i in group]
                groups += [group] if common_schema(schemas) is not None else [[i] for i in group]
            return sorted(groups)

        stored: list[list[int]] = made_once(self.work / "merges.json", planned)
        return stored

    def _merge(self, shards: Sequence[PartShard], target: Path) -> ShardEntry:
        """Merge shards of parts, which are deleted once the merged one and its receipt are on disk."""

        def merged() -> Mapping[str, Any]:
            counter = ByteCounter()
            sources = [_Relabelled(shard, self.n_features, counter) for shard in shards]
            return merge_shards(target, sources, memory=self.memory).to_dict()

        entry = made_once(self.work / f"merged-{target.name}.json", merged)
        for shard in shards:
            disk.try_clear(shard.folder)
        return ShardEntry.from_dict(entry)


def _move(shard: PartShard, target: Path) -> ShardEntry:
    """Move a shard to its final place, unless it is there."""
    if not target.exists():
        if not _is_final(shard.folder / ROWS_TABLE):
            replace_rows_table(shard.folder, _final_table(shard))
        disk.rename(shard.folder, target)
    return replace(_with_table(replace(shard, folder=target)), name=target.name)


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(arrow_file(path))
    except (pa.ArrowException, OSError):
        raise damaged_work(path) from None


def _is_final(path: Path) -> bool:
    """Return whether the labels of a table are those of the dataset already."""
    return FINAL.items() <= (_schema(path).metadata or {}).items()


def _with_table(shard: PartShard) -> ShardEntry:
    """Return the shard's entry with the table as it is now."""
    files = (f for f in shard.entry.files if f.path != ROWS_TABLE)
    table = file_entry(shard.folder / ROWS_TABLE, shard.folder)
    return replace(shard.entry, files=(*files, table))


def _final_table(shard: PartShard) -> pa.Table:
    """Return a shard's table with the label codes of the dataset in the place of those of the part."""
    path = shard.folder / ROWS_TABLE
    if _is_final(path):
        return pq.ParquetFile(arrow_file(path)).read()
    written = next(file for file in shard.entry.files if file.path == ROWS_TABLE)
    table = read_work_table(path, written)
    column = table.column("label")
    if is_sets(column.type):
        rows, codes = pairs_of(column)
        labels = set_column(rows, shard.codes[codes], len(column))
    else:
        labels = pa.array(shard.codes[column.to_numpy()])
    table = table.set_column(table.schema.get_field_index("label"), "label", labels)
    return table.replace_schema_metadata(_final_metadata(table.schema))


def _final_metadata(schema: pa.Schema) -> dict[bytes, bytes]:
    return {**(schema.metadata or {}), **FINAL}


class _Relabelled(SparseShard):
    """A shard of a part, to be merged, whose table has the label codes of the dataset."""

    def __init__(self, shard: PartShard, n_features: int, counter: ByteCounter) -> None:
        super().__init__(shard.folder, _with_table(shard), n_features, counter)
        self._shard = shard

    def schema(self) -> pa.Schema:
        """Return the columns of `table`."""
        schema = _schema(self.folder / ROWS_TABLE)
        return schema.with_metadata(_final_metadata(schema))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows.parquet with its labels as codes of the dataset, or the named columns of it."""
        table = _final_table(self._shard)
        return table if columns is None else table.select(list(columns))
