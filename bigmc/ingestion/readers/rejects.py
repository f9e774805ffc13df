"""Invalid rows: their place, the reason, and how to handle them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.options.raw import OnBadRow

RAW_LIMIT = 1000

NOT_UTF8 = "is not valid UTF-8"
"""End of the reason if a text has another encoding."""

NOT_A_NUMBER = "is not a number:"
"""Part of the reason if a text in a column of numbers is none; the text follows."""

ABSENT = "is missing"
"""End of the reason if a column has no value."""

REJECT_SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("path", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
    ]
)


@dataclass(frozen=True)
class Reject:
    """An invalid row.

    `path` is the file, or the name of the array. `line` is where the record begins, from 1; for formats
    without lines (Parquet, arrays, tables) the number of the row in the file, from 0: `unit` says which.
    `row` is the number of the record over all sources, from 0. `raw` is the beginning of the record, at most
    1000 characters; None if there is no text.
    """

    path: str
    line: int
    row: int
    reason: str
    raw: str | None = None
    unit: Literal["line", "row"] = "line"

    def error(self) -> DataError:
        """Return the error that stops a run at this row."""
        place = f"{self.path}:{self.line}" if self.unit == "line" else f"{self.path}: row {self.line}"
        cure = "fix the row, or let ingest, fit or predict set bad rows aside: --on-bad-row quarantine"
        if self.reason.endswith(NOT_UTF8):
            cure = f"name the encoding of the file, such as --encoding latin-1, or {cure}"
        if NOT_A_NUMBER in self.reason:
            cure = (
                f"{cure}; bigmc ingest --value-format 'COLUMN=1.234,5' says how a column is written, "
                "and --odd-as-missing COLUMN --missing fill takes odd values as missing"
            )
        if self.reason.startswith("column ") and self.reason.endswith(ABSENT):
            cure = f"{cure}; bigmc ingest and fit fill missing values with --missing fill"
        return DataError(f"{place}: {self.reason}", cure)


def shown(raw: bytes) -> str:
    """Return the beginning of a record as text, replacing invalid UTF-8."""
    return raw[: 4 * RAW_LIMIT].decode("utf-8", errors="replace")[:RAW_LIMIT]


def settle(rejects: Iterable[Reject], on_bad_row: OnBadRow) -> list[Reject]:
    """Return the bad rows of a batch in row order; `DataError` at the first of them, if it stops the run."""
    in_order = sorted(rejects, key=lambda reject: reject.row)
    if in_order and on_bad_row == "fail":
        raise in_order[0].error()
    return in_order


def rejects_table(rejects: Sequence[Reject]) -> Any:
    """Return bad rows as an Arrow table with the columns row_id, path, line, reason, raw."""
    return pa.table(
        {
            "row_id": [reject.row for reject in rejects],
            "path": [reject.path for reject in rejects],
            "line": [reject.line for reject in rejects],
            "reason": [reject.reason for reject in rejects],
            "raw": [reject.raw for reject in rejects],
        },
        schema=REJECT_SCHEMA,
    )
