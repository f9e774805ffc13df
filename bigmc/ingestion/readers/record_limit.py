"""The maximum length of records within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from bigmc.budget import MemoryLimitError, format_bytes

SHORT_RECORD = 1 << 16
"""Records up to this length are included in the cost of a batch."""

RECORD_COST = 9
"""Bytes in memory per byte of the longest record: raw and parsed text, positions of words, their hashes.
Measured 7 to 7.5 with 60 MB of words, and 8.2 with 182 MB, since buffers grow by doubling."""

UNTOLD_BYTES = 1 << 20
"""Bytes of an open Parquet file below which messages do not mention them."""

MAX_RECORD_BYTES = 256 << 20
"""Maximum length of a text record, for any memory limit."""


def bytes_of_record(longest: int) -> int:
    """Return the bytes needed for the longest record, beyond those of the batch that it is in."""
    return RECORD_COST * max(0, longest - SHORT_RECORD)


class LongRecords(Enum):
    """How to handle records longer than the limit."""

    REFUSE = "refuse"
    SKIP = "skip"


class LongRecordError(MemoryLimitError):
    """A record is longer than the memory limit allows; the longest of all sources has `n_bytes`."""

    def __init__(self, message: str, cure: str, n_bytes: int) -> None:
        super().__init__(message, cure)
        self.n_bytes = n_bytes

    def __reduce__(self) -> Any:
        """Pickle message, cure and length, for errors from worker processes."""
        return type(self), (self.message, self.cure, self.n_bytes)


@dataclass(frozen=True)
class RecordLimit:
    """Maximum length of text records and Parquet footers within a memory limit.

    `base` bytes are needed independent of the records; `beyond` says how to handle longer records of a text
    file.
    """

    memory: int
    base: int
    beyond: LongRecords = LongRecords.REFUSE

    @property
    def n_bytes(self) -> int:
        """Longest record allowed, in bytes."""
        return min(MAX_RECORD_BYTES, SHORT_RECORD + max(0, self.memory - self.base) // RECORD_COST)

    def refusal(self, path: str, line: int, n_bytes: int) -> LongRecordError:
        """Return the error for the longest record of the sources, which names the limit it needs."""
        needed = self.base + bytes_of_record(n_bytes)
        return LongRecordError(
            f"{path}:{line}: a record of {format_bytes(n_bytes)} cannot be read with a memory limit of "
            f"{format_bytes(self.memory)}",
            f"give --memory {-(-needed // 10**6)}MB or more, or split the record",
            n_bytes,
        )

    def check_held(self, path: str, n_bytes: int, footer_bytes: int) -> None:
        """Raise `MemoryLimitError`, naming the limit needed, if an open Parquet file takes too many bytes.

        `footer_bytes` of them are for its footer, the others for the pages of its columns.
        """
        if n_bytes <= UNTOLD_BYTES or self.base + n_bytes <= self.memory:
            return
        many = 2 * footer_bytes > n_bytes
        what = "its many columns and row groups" if many else "its large pages"
        raise MemoryLimitError(
            f"{path}: reading {what} takes {format_bytes(n_bytes)}, "
            f"too much for a memory limit of {format_bytes(self.memory)}",
            f"give --memory {-(-(self.base + n_bytes) // 10**6)}MB or more, "
            f"or write {'fewer' if many else 'smaller'} row groups",
        )
