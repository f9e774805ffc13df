"""The contents of a finished part of an ingest, in a file next to its shards, which publishing reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bigmc.store.files.layout import FileEntry, ShardEntry
from bigmc.store.files.work_file import read_work_file, read_work_table, write_work_file

_RECEIPT = "receipt.json"

NAMES, REJECTS = "names.parquet", "rejects.parquet"
"""Tables of a part, and of the dataset: names of hashed features, and rows set aside."""


def part_folder(parts: Path, number: int) -> Path:
    """Return the folder of a finished part, given that of all parts."""
    return parts / f"{number:06d}"


@dataclass(frozen=True)
class PartReceipt:
    """The contents of a finished part, as plain data stored next to it.

    Of the rows read, `rows_quarantined` were set aside. `labels` are by their code within the part; `sets`
    says whether they are sets, None without rows. Shards are in the order written. `tables` are names and
    rejects, where there are any.
    """

    part: int
    rows_in: int
    rows_quarantined: int
    labels: list[object] = field(default_factory=list)
    shards: tuple[ShardEntry, ...] = ()
    sets: bool | None = None
    tables: tuple[FileEntry, ...] = ()

    def write(self, folder: Path) -> None:
        """Put the receipt into the part's folder."""
        listed = {
            "shards": [entry.to_dict() for entry in self.shards],
            "tables": [vars(file) for file in self.tables],
        }
        write_work_file(folder / _RECEIPT, vars(self) | listed)

    @classmethod
    def read(cls, folder: Path) -> PartReceipt:
        """Return the receipt of the part in ``folder``."""
        data = read_work_file(folder / _RECEIPT)
        listed = {
            "shards": tuple(ShardEntry.from_dict(entry) for entry in data["shards"]),
            "tables": tuple(FileEntry(**file) for file in data["tables"]),
        }
        return cls(**data | listed)

    def read_tables(self, parts: Path, name: str) -> Iterator[pa.Table]:
        """Yield the part's table of this name, if it has one, given the folder of all parts."""
        for file in self.tables:
            if file.path == name:
                yield read_work_table(part_folder(parts, self.part) / name, file)
