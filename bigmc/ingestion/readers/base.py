"""What every reader shares: sources, the parts they are cut into, the batches read from a part."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.rejects import OnBadRow, Reject
from bigmc.store.csr import Rows
from bigmc.store.label_sets import is_sets

BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Source:
    """One file, or one array or table in memory.

    Attributes
    ----------
    path : str
        Path of the file, or a name for the array.
    format : str
        Name of the format.
    data : object
        The array or table; None for a file.
    labels : array or None
        Labels of the rows of an array.
    """

    path: str
    format: str
    data: Any = None
    labels: Any = None


@dataclass(frozen=True)
class Part:
    """A range of records of one source that a worker reads on its own; plain data, fit for JSON.

    Attributes
    ----------
    index : int
        Number of the part over all sources.
    path, format : str
        Of the source.
    source : int
        Number of the source, needed to find an array again.
    start, stop : int
        Bytes of the (decompressed) file for text formats, row groups for Parquet, rows for arrays.
    first_row : int
        Row id of the first record; row ids run over all sources in their order.
    first_line : int
        Line of the first record, from 1; for formats without lines its row number in the file, from 0.
    n_rows : int
        Number of records, bad ones included.
    n_bytes : int
        Bytes to be read, for progress.
    file_bytes : int
        Size of the file when it was scanned, to notice a changed file; 0 for arrays.
    options : mapping
        What the reader of this format found for all parts, such as ``n_features``.
    """

    index: int
    path: str
    format: str
    source: int
    start: int
    stop: int
    first_row: int
    first_line: int
    n_rows: int
    n_bytes: int
    file_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the part as a dictionary of plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Part:
        """Return the part that `to_dict` described."""
        return cls(**values)


@dataclass
class Batch:
    """Some consecutive records of a part, without the bad ones.

    Attributes
    ----------
    table : pyarrow.RecordBatch or None
        The columns asked for, in the order asked; None for svmlight and arrays.
    matrix : Rows, 2-D array or None
        Features of svmlight and arrays; values are finite.
    labels : pyarrow.Array or None
        Labels of svmlight and arrays.
    row : int64 array of shape (n,)
        Row ids, increasing.
    line : int64 array of shape (n,)
        Line where the record begins, from 1; row number in the source, from 0, for formats without lines.
    path : str
        File, or name of the array.
    n_bytes : int
        Bytes of the part that this batch used up, for progress.
    rejects : list of Reject
        Bad rows met on the way, in row order.
    """

    table: Any
    matrix: Rows | NDArray[Any] | None
    labels: Any
    row: NDArray[np.int64]
    line: NDArray[np.int64]
    path: str
    n_bytes: int
    rejects: list[Reject]

    @property
    def n_rows(self) -> int:
        """Number of good rows."""
        return len(self.row)


@dataclass(frozen=True)
class ScanOptions:
    """What the user knows about the sources.

    Attributes
    ----------
    types : mapping of str to pyarrow.DataType
        Types of JSON columns; the others get the type seen at the beginning of the first file.
    zero_based : bool or None
        Whether svmlight indices count from 0; None: they do when the index 0 occurs anywhere.
    n_features : int or None
        Number of features of svmlight files; None: the largest index says.
    missing : bool
        NaN in a matrix is a missing value, and not a reason to refuse the row.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    zero_based: bool | None = None
    n_features: int | None = None
    missing: bool = False


class Reader(Protocol):
    """Reads one format."""

    def schema(self, source: Source, options: ScanOptions) -> Any:
        """Return the pyarrow schema of the columns; of no columns for a matrix."""
        ...

    def scan(self, sources: Sequence[Source], part_bytes: int, options: ScanOptions) -> list[Part]:
        """Cut the sources into parts of about ``part_bytes``, numbered from 0."""
        ...

    def read(
        self,
        part: Part,
        source: Source | None,
        columns: Sequence[str] | None,
        batch_bytes: int,
        on_bad_row: OnBadRow,
    ) -> Iterator[Batch]:
        """Read a part in batches of about ``batch_bytes``."""
        ...


def number(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with their numbers and row ids, in the order given."""
    numbered = []
    row = 0
    for index, part in enumerate(parts):
        numbered.append(replace(part, index=index, first_row=row))
        row += part.n_rows
    return numbered


def check_count(part: Part, n_rows: int) -> None:
    """Refuse a part that did not give as many records as the scan counted."""
    if n_rows != part.n_rows:
        raise DataError(
            f"{part.path}: part {part.index} has {n_rows} records, the scan counted {part.n_rows}",
            "the file was changed meanwhile; start the ingest anew",
        )


def check_columns(path: str, columns: Sequence[str], available: Sequence[str]) -> None:
    """Refuse columns that a source has not, or has twice."""
    for name in columns:
        times = available.count(name)
        if times == 1:
            continue
        if times > 1:
            raise DataError(f"{path}: {times} columns are named {name!r}", "give every column its own name")
        listed = ", ".join(available[:30]) + (", …" if len(available) > 30 else "")
        near = difflib.get_close_matches(name, available, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(f"{path}: no column {name!r}", f"{hint}the columns are: {listed}")


def plain_type(kind: Any) -> Any:
    """Return the type that a column has once its dictionary is decoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_columns(batch: Any) -> Any:
    """Return a record batch with its dictionary columns decoded."""
    arrays = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _is_valid(array: Any) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def undecodable(array: Any) -> list[int]:
    """Return the positions of the values of a text column that are not UTF-8.

    Arrow's readers check this late or never; a column is checked whole, and halved where it fails.
    """
    kind = array.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return []
    found: list[int] = []
    open_ranges = [(0, len(array))]
    while open_ranges:
        lo, hi = open_ranges.pop()
        if _is_valid(array.slice(lo, hi - lo)):
            continue
        if hi - lo == 1:
            found.append(lo)
        else:
            middle = (lo + hi) // 2
            open_ranges += [(middle, hi), (lo, middle)]
    return sorted(found)


def undecodable_rows(batch: Any) -> dict[int, str]:
    """Return, by position, the rows of a record batch with text that is not UTF-8, and the reason.

    Only the columns asked for are looked at, in every format.
    """
    reasons: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        lists = is_sets(column.type)
        wrong = undecodable(column.flatten() if lists else column)
        for i in np.asarray(pc.list_parent_indices(column))[wrong].tolist() if lists and wrong else wrong:
            reasons.setdefault(i, f"column {name!r} is not valid UTF-8")
    return reasons


def keep_rows(batch: Any, keep: NDArray[np.bool_]) -> Any:
    """Return the rows of a record batch that are marked."""
    return batch if keep.all() else batch.filter(pa.array(keep))
