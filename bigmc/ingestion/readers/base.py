"""Common types of all readers: sources, parts, and batches."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.record_limit import RecordLimit
from bigmc.ingestion.readers.rejects import Reject, settle
from bigmc.ingestion.sources.dialect import USUAL, Dialect
from bigmc.ingestion.sources.source import CHANGED_CURE, Source
from bigmc.options.raw import OnBadRow
from bigmc.printable import listed
from bigmc.store.shards.csr import Rows

BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Part:
    """A range of records of one source, or several small files, read by one worker; JSON-serialisable.

    `source` is the number of the source, needed to find an array again. `start` and `stop` are bytes of the
    (decompressed) file for text formats, row groups for Parquet, rows for arrays. `first_line` is the line of
    the first record, from 1; for formats without lines its row number in the file, from 0. `n_rows` counts
    bad records too, and `n_bytes` are to be read, for progress. `index` is the number of the part over all
    sources, and `first_row` the id of its first record among all rows; both are set by `number`.

    To notice a changed file, `file_bytes` is its size when it was scanned, 0 for arrays, and `version` its
    `bigmc.ingestion.sources.source.FileStatus.version`, empty if it has none. `options` are findings of the
    reader for all parts, such as ``n_features``; `longest` has the bytes of the longest record of a text
    file, or of the largest pages of all Parquet columns; `footer_bytes` are those of a Parquet file's footer
    in memory while the file is open. A part of some rows of its row groups has the number of rows `skipped`
    before it, others None.
    With several small `files`, counts are totals, and other fields those of the first.
    """

    path: str
    format: str
    source: int
    start: int
    stop: int
    first_line: int
    n_rows: int
    n_bytes: int
    index: int = 0
    first_row: int = 0
    file_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    longest: int = 0
    dialect: Dialect = USUAL
    version: str = ""
    footer_bytes: int = 0
    skipped: int | None = None
    files: tuple[Part, ...] = ()

    def bytes_between(self, start: int, stop: int) -> int:
        """Return the share of its bytes for the rows ``start:stop``, so that those of all rows add up."""
        return self.n_bytes * stop // self.n_rows - self.n_bytes * start // self.n_rows

    def to_dict(self) -> Mapping[str, Any]:
        """Return the part as a dictionary of plain values."""
        plain = vars(self) | {"dialect": self.dialect.to_dict(), "options": dict(self.options)}
        return plain | {"files": [part.to_dict() for part in self.files]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Part:
        """Return the part that `to_dict` described."""
        files = tuple(cls.from_dict(part) for part in values.get("files", ()))
        return cls(**{**values, "dialect": Dialect.from_dict(values.get("dialect", {})), "files": files})


@dataclass
class Batch:
    """Consecutive good records of a part.

    `table` has the requested columns, in their order; svmlight and arrays have a `matrix` of finite values
    and `labels` instead. `row` are the row ids, increasing, and `line` where each record begins, from 1; for
    formats without lines the row number in the source, from 0. `rejects` are the bad rows, in row order.
    `n_bytes` of the part were consumed by this batch, for progress. `pieces` are row ids at which pieces of
    the batch begin, as large as other batches; none for a usual batch.
    """

    table: Any
    matrix: Rows | NDArray[Any] | None
    labels: Any
    row: NDArray[np.int64]
    line: NDArray[np.int64]
    path: str
    n_bytes: int
    rejects: list[Reject]
    pieces: tuple[int, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of good rows."""
        return len(self.row)

    def where(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the batch with the marked rows only."""
        if keep.all():
            return self
        mask = pa.array(keep)
        return replace(
            self,
            table=None if self.table is None else self.table.filter(mask),
            matrix=None if self.matrix is None else keep_matrix(self.matrix, keep),
            labels=None if self.labels is None else self.labels.filter(mask),
            row=self.row[keep],
            line=self.line[keep],
        )


@dataclass(frozen=True)
class ReadHints:
    """Facts about the sources from the user.

    `types` are those of JSON columns; others get the type at the beginning of the first file. Columns of
    `numbers` are used as numbers only: each file may have another type of integers or floats, and whole
    numbers at the beginning of JSON lines are floats. The integers in columns of `any_width` may have more
    bits in some files than in others. Columns that are `known`, which a model or a dataset has, are missing
    where JSON lines lack them. Only `columns` will be read; None for all.

    For svmlight, `zero_based` says whether indices count from 0, None if the index 0 occurs anywhere;
    `n_features` is None if the largest index tells. `missing` says whether NaN in a matrix is a missing
    value; otherwise its row is bad. With `most_rows`, Parquet parts have less than twice as many, though row
    groups have more, and text files that cannot be entered in the middle are cut, too. Without a
    `record_limit`, a text record may have `MAX_RECORD_BYTES`, and a footer any size.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    numbers: Sequence[str] = ()
    any_width: Sequence[str] = ()
    known: Sequence[str] = ()
    zero_based: bool | None = None
    n_features: int | None = None
    missing: bool = False
    columns: Sequence[str] | None = None
    most_rows: int | None = None
    record_limit: RecordLimit | None = None


@dataclass(frozen=True)
class ReadRequest:
    """What to read from a part.

    `columns` are in the requested order, None for all; svmlight and arrays ignore them. Those of `encoded`
    may be returned as dictionaries of texts, if the source has them. A batch has about `batch_bytes` of the
    source, at least one record, and `most_pieces` as large as that where a format can read several at once.
    Besides the batch, decoding Parquet may take `reader_bytes`. Without a `record_limit`, texts may have any
    length. `scratch` is the folder for data that does not fit into memory; None for the system's temporary
    folder.
    """

    columns: Sequence[str] | None = None
    batch_bytes: int = BATCH_BYTES
    on_bad_row: OnBadRow = "fail"
    reader_bytes: int = 64 << 20
    record_limit: RecordLimit | None = None
    scratch: str | None = None
    encoded: Sequence[str] = ()
    most_pieces: int = 1


class Format(Protocol):
    """Reads one format."""

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns; none for a matrix."""
        ...

    def split(self, sources: Sequence[Source], part_bytes: int, hints: ReadHints) -> list[Part]:
        """Split the sources into parts of about ``part_bytes``, numbered from 0."""
        ...

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Read a part batch by batch."""
        ...


def number(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with their numbers and row ids, in the given order."""
    numbered = []
    row = 0
    for index, part in enumerate(parts):
        numbered.append(replace(part, index=index, first_row=row))
        row += part.n_rows
    return numbered


def check_count(part: Part, n_rows: int) -> None:
    """Raise an error if a part does not have as many records as counted by the scan."""
    if n_rows != part.n_rows:
        raise DataError(
            f"{part.path}: part {part.index} has {n_rows} records, the scan counted {part.n_rows}",
            f"the file has changed meanwhile; {CHANGED_CURE}",
        )


_NO_NAME = re.compile(r"\s*(-?\d+([.,]\d+)*)?\s*|.{40,}", re.DOTALL)
"""What hardly names a column: nothing, a number, or a long text, as in a file without a header line."""
_OTHER_DELIMITER = re.compile(r"[\t;|]")


def check_columns(path: str, columns: Sequence[str], available: Sequence[str]) -> None:
    """Raise an error for columns that a source lacks or has twice."""
    counts = Counter(available)
    for name in columns:
        times = counts[name]
        if times == 1:
            continue
        if times > 1:
            raise DataError(
                f"{path}: {times} columns have the name {name!r}", "give every column its own name"
            )
        near = difflib.get_close_matches(name, available, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        other = other_delimiter(available)
        if other is not None:
            hint = f"say what is between the fields: --delimiter {other}; "
        elif not near and any(_NO_NAME.fullmatch(column) for column in available):
            hint = "if there is no header line, name all columns with --columns; "
        raise DataError(f"{path}: no column {name!r}", f"{hint}the columns are: {listed(available)}")


def other_delimiter(columns: Sequence[str]) -> str | None:
    """Return what seems to separate the names in a header that was read as one name, as an option's value."""
    found = _OTHER_DELIMITER.search(columns[0]) if len(columns) == 1 else None
    if found is None:
        return None
    return "tab" if found.group() == "\t" else f"'{found.group()}'"


def batch_of_rows(
    part: Part,
    done: int,
    reasons: Mapping[int, str],
    on_bad_row: OnBadRow,
    *,
    table: Any = None,
    matrix: Rows | NDArray[Any] | None = None,
    labels: pa.Array | None = None,
) -> Batch:
    """Return the good ones among the rows of a part without lines from row ``done`` on.

    `reasons` tells by position why the others are bad; `DataError` at the first one if it stops the run.
    """
    rows = np.arange(matrix.n_rows if isinstance(matrix, Rows) else len(table if matrix is None else matrix))
    row, line = part.first_row + done + rows, part.first_line + done + rows
    rejects = [
        Reject(part.path, int(line[i]), int(row[i]), reason, None, "row") for i, reason in reasons.items()
    ]
    n_bytes = part.bytes_between(done, done + len(rows))
    whole = Batch(table, matrix, labels, row, line, part.path, n_bytes, settle(rejects, on_bad_row))
    return whole.where(all_but(len(rows), reasons))


def all_but(n: int, positions: Collection[int]) -> NDArray[np.bool_]:
    """Return ``n`` marks, all set but those at some positions."""
    marks = np.ones(n, dtype=np.bool_)
    marks[np.fromiter(positions, np.intp, len(positions))] = False
    return marks


def keep_matrix(matrix: Rows | NDArray[Any], keep: NDArray[np.bool_]) -> Rows | NDArray[Any]:
    """Return the marked rows."""
    if keep.all():
        return matrix
    return matrix.where(keep) if isinstance(matrix, Rows) else matrix[keep]


def broken(parse: Callable[[int, int], Exception | None], n: int) -> list[tuple[int, Exception]]:
    """Return the records, among ``n``, that a parser rejects, found by bisection.

    ``parse(lo, hi)`` returns the error of records ``lo:hi``, or None.
    """
    refused: list[tuple[int, Exception]] = []
    open_ranges = [(0, n)] if n else []
    while open_ranges:
        lo, hi = open_ranges.pop()
        error = parse(lo, hi)
        if error is None:
            continue
        if hi - lo == 1:
            refused.append((lo, error))
        else:
            middle = (lo + hi) // 2
            open_ranges += [(middle, hi), (lo, middle)]
    return refused
