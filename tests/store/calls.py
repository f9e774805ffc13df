"""What operations of the store ask shards for, and which calls they make that change a disk, one by one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import scipy.sparse
from faults.recorder import Recorder

from bigmc.engine import ThreadEngine
from bigmc.store import block, chosen_columns, row_norms, sample
from bigmc.store.centred import centred
from bigmc.store.dataset import Dataset
from bigmc.store.deviations import inverse_deviations
from bigmc.store.files import disk
from bigmc.store.files.atomic import remove_tree, write_atomic
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.files.layout import GROUP_HASH
from bigmc.store.files.outputs import Output
from bigmc.store.files.receipt import Receipt
from bigmc.store.files.work_folder import WorkFolder
from bigmc.store.shards import zarr_chunks
from bigmc.store.shards.memory_shard import MemoryShard
from bigmc.store.shards.merge import merge_shards
from bigmc.store.weighting import Weighting

from .conftest import store_dataset

RECORDED = Path(__file__).with_name("calls.json")
"""The calls of every operation."""

ENGINE = ThreadEngine(1)


class WatchedShard(MemoryShard):
    """A shard in memory that notes what it is asked for."""

    log: list[str]

    @classmethod
    def of(cls, shard: MemoryShard, log: list[str]) -> WatchedShard:
        own = cls(shard._indptr, shard._indices, shard._data, shard._table, shard.split)
        own.log = log
        return own

    def indptr(self, lo: int, hi: int) -> Any:
        self.log.append(f"offsets {lo}:{hi}")
        return super().indptr(lo, hi)

    def read(self, start: int, stop: int, indices_out: Any, data_out: Any) -> None:
        sizes = ["-" if out is None else f"{len(out)} of {out.dtype}" for out in (indices_out, data_out)]
        self.log.append(f"entries {start}:{stop} into {', '.join(sizes)}")
        super().read(start, stop, indices_out, data_out)

    def table(self, columns: Any = None) -> pa.Table:
        self.log.append(f"table {columns}")
        return super().table(columns)


def watched(log: list[str], weighting: Weighting | None = None, groups: bool = False) -> Dataset:
    """Return four shards, the third without entries, of counts of 23 words in three classes."""
    draw = np.random.default_rng(0)
    X = scipy.sparse.random_array((100, 23), density=0.3, rng=draw, format="lil")
    X[50:75] = 0
    X = X.tocsr()
    X.data = draw.integers(1, 4, X.nnz).astype(np.int8)
    made = Dataset.from_arrays(X, np.arange(100) % 3, shard_rows=25, weighting=weighting or Weighting())
    shards = []
    for shard in made.shards:
        table = shard.table()
        if groups:
            table = table.append_column(GROUP_HASH, pa.array(table["row_id"].to_numpy() // 4))
        whole = MemoryShard(shard._indptr, shard._indices, shard._data, table)
        shards.append(WatchedShard.of(whole, log))
    return Dataset(shards, made.class_labels, made.n_features, made.weighting, {})


def _blocks(data: Any, n_bytes: int) -> None:
    for _ in block.stream_blocks(data, data.plan(n_bytes)):
        pass


def _chosen(data: Dataset) -> None:
    some = chosen_columns.ChosenColumns(data, np.array([0, 1, 2, 5, 6, 11, 20, 22]))
    _blocks(some, 400)
    block.read_block(some, 1, 7)
    chosen_columns.frequent_columns(data, 0.3).column_nnz()


#: Name and what is done with a dataset of watched shards.
READ: dict[str, Callable[[Dataset], Any]] = {
    "blocks": lambda data: _blocks(data, 700),
    "one block": lambda data: _blocks(data, 1 << 20),
    "spans": lambda data: [_blocks(data.part([s]), n) for s, n in enumerate((260, 300, 400, 500))],
    "chosen columns": _chosen,
    "digests of rows": row_norms.row_digests,
    "row scales": lambda data: data.row_scale(np.ones(data.n_features, np.float32)),
    "own row scales": lambda data: data.row_scale(None),
    "drawn rows": lambda data: sample.draw_rows(data, 0.4, 1, ENGINE),
    "drawn groups": lambda data: sample.draw_groups(data, 0.4, 1, ENGINE),
    "some rows": lambda data: sample.take_rows(data, np.arange(0, 100, 3), ENGINE),
    "labels": lambda data: [data.labels(), data.class_counts(), data.most_labels(), data.label_sets()],
    "groups of labels": lambda data: [list(data.group_codes(n)) for n in (99, 100, None)],
    "statistics": lambda data: [data.class_statistics(0, 23), data.class_statistics(4, 6)],
    "columns": lambda data: [data.column_nnz(), data.column_scale(), data.column_nnz(np.array([3]))],
    "deviations": lambda data: inverse_deviations(100, [data.class_statistics(0, 9)]),
    "ids": lambda data: [data.row_ids(), sample.holdout_keys(data)],
    "centred": centred,
}

WEIGHTINGS = {
    "": Weighting(),
    " of words": Weighting(l2=True, idf=True),
    " of marks": Weighting(binary=True, l2=True),
    " scaled": Weighting(scaled=True),
}


def reads() -> dict[str, list[str]]:
    """Return what every operation reads, in whole and in small pieces."""
    found = {}
    for name, operation in READ.items():
        for kind, weighting in WEIGHTINGS.items():
            for pieces in (None, (40, 9)):
                log: list[str] = []
                entries, features = pieces or (row_norms.PIECE_ENTRIES, row_norms.PIECE_FEATURES)
                with (
                    patch.object(row_norms, "PIECE_ENTRIES", entries),
                    patch.object(sample, "PIECE_ENTRIES", entries),
                    patch.object(row_norms, "PIECE_FEATURES", features),
                    patch.object(chosen_columns, "_OFFSETS", features),
                ):
                    operation(watched(log, weighting, groups=name == "drawn groups"))
                found[f"{name}{kind}{' in pieces' if pieces else ''}"] = log
    return found


def _stored(folder: Path, **options: Any) -> Dataset:
    draw = np.random.default_rng(3)
    X = scipy.sparse.csr_array(draw.poisson(0.5, (60, 16)).astype(float))
    parts = [("train", X[:20]), ("train", X[20:45]), ("test", X[45:]), ("test", draw.normal(size=(9, 16)))]
    return store_dataset(folder / "d.bigmc", parts, np.arange(69) % 3, ["a", "b", "c"], **options)


def _merged(folder: Path) -> None:
    shards = _stored(folder).shards[:2]
    for memory in (2000, 1 << 20):
        merge_shards(folder / f"merged {memory}", shards, memory=memory)


def _checkpoints(folder: Path) -> None:
    kept = FileCheckpoint(folder / "state")
    for number in (1, 2):
        kept.save({"number": number}, {"a": np.arange(number), "b": np.zeros((0, 2)), "c": np.ones(2, bool)})
    kept.load()


def _delivered(folder: Path) -> None:
    output = Output.at(folder / "result.csv")
    for rejects in (folder / "rejects", None):
        (folder / "work").write_bytes(b"1")
        (folder / "rejects").write_bytes(b"2")
        found = None if rejects is None else hashlib.sha256(b"2").hexdigest()
        output.deliver(folder / "work", Receipt({"command": "a"}, output.digest() or "", {}, found), rejects)


def _worked(folder: Path) -> None:
    work = WorkFolder.of(folder / "result.csv", ["part-*"])
    with work.locked() as path:
        (path / "part-1").write_bytes(b"1")
        (path / "part-2.partial").write_bytes(b"1")
    with work.locked():
        work.forget()
    work.clear()


def _removed(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").write_bytes(b"1")
    (folder / "a" / "link").symlink_to(folder)
    remove_tree(folder / "a")
    remove_tree(folder / "a")
    with disk.extend_file(folder / "d", 3) as file:
        file.write(b"4")
    disk.save_array(folder / "e.npy", np.arange(3))
    for content in (b"1", b"2"):
        write_atomic(folder / "f", content)


#: Name and what is done in a folder.
WRITTEN: dict[str, Callable[[Path], Any]] = {
    "a dataset": _stored,
    "merged shards": _merged,
    "checkpoints": _checkpoints,
    "a result": _delivered,
    "unfinished work": _worked,
    "files removed and replaced": _removed,
}


def writes(folder: Path) -> dict[str, list[str]]:
    """Return the calls of every operation that change a disk; names drawn at random are left out."""
    found = {}
    for name, operation in WRITTEN.items():
        own, recorder = folder / name, Recorder()
        own.mkdir()
        with patch.object(disk, "calls", recorder), patch.object(zarr_chunks, "CHUNK", 64):
            operation(own)
        calls = [f"{call.name} {call.path} {call.other}".replace(str(own), "") for call in recorder.log]
        found[name] = [re.sub(r"\.[0-9a-f]{12}\.", ".*.", call).strip() for call in calls]
    return found


def record_calls(folder: Path) -> None:
    """Write the calls of every operation, one a line; those that are the same are written once."""
    first: dict[tuple[str, ...], str] = {}
    found = {
        name: calls if first.setdefault(tuple(calls), name) == name else f"as {first[tuple(calls)]}"
        for name, calls in {**reads(), **writes(folder)}.items()
    }
    RECORDED.write_text(json.dumps(found, indent=0) + "\n")
