"""The maximum length of records within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from bigmc.budget import MemoryLimitError, format_bytes

SHORT_RECORD = 1 << 16
"""Records up to this length are part of what a batch costs."""

UNTOLD_BYTES = 1 << 20
"""Bytes of an open file of Parquet up to which no message speaks of them."""

MAX_RECORD_BYTES = 256 << 20
"""Longest record of a text file, whatever memory there is."""


class LongRecords(Enum):
    """What becomes of records that are longer than a limit."""

    REFUSE = "refuse"
    SKIP = "skip"


class LongRecordError(MemoryLimitError):
    """A record is longer than the memory limit allows.

    Parameters
    ----------
    message, cure : str
        As of `MemoryLimitError`.
    n_bytes : int
        Length of the longest record of all sources.
    """

    def __init__(self, message: str, cure: str, n_bytes: int) -> None:
        super().__init__(message, cure)
        self.n_bytes = n_bytes

    def __reduce__(self) -> Any:
        """Send message, cure and length, as from a worker's process."""
        return type(self), (self.message, self.cure, self.n_bytes)


@dataclass(frozen=True)
class RecordLimit:
    """How long a record of a text file, or the footer of a Parquet file, may be within a memory limit.

    Attributes
    ----------
    memory : int
        Memory limit in bytes.
    base : int
        Bytes needed whatever the records are like.
    cost : int
        Bytes needed for each byte of the longest record beyond `SHORT_RECORD`.
    beyond : LongRecords
        What becomes of longer records of a text file.
    """

    memory: int
    base: int
    cost: int
    beyond: LongRecords = LongRecords.REFUSE

    @property
    def n_bytes(self) -> int:
        """Longest record allowed, in bytes."""
        return min(MAX_RECORD_BYTES, SHORT_RECORD + max(0, self.memory - self.base) // self.cost)

    def refusal(self, path: str, line: int, n_bytes: int) -> LongRecordError:
        """Return the error for the longest record of the sources, naming the limit that it needs."""
        needed = self.base + self.cost * (n_bytes - SHORT_RECORD)
        return LongRecordError(
            f"{path}:{line}: a record of {format_bytes(n_bytes)} cannot be read with a memory limit of "
            f"{format_bytes(self.memory)}",
            f"give --memory {-(-needed // 10**6)}MB or more, or split the record",
            n_bytes,
        )

    def check_held(self, path: str, n_bytes: int) -> None:
        """Refuse a Parquet file that takes too many bytes while it is open: its footer, its largest columns.

        Raises
        ------
        MemoryLimitError
            With the limit that it needs.
        """
        if n_bytes > UNTOLD_BYTES and self.base + n_bytes > self.memory:
            raise MemoryLimitError(
                f"{path}: reading its many columns and row groups takes {format_bytes(n_bytes)}, "
                f"too much for a memory limit of {format_bytes(self.memory)}",
                f"give --memory {-(-(self.base + n_bytes) // 10**6)}MB or more, or write fewer row groups",
            )
