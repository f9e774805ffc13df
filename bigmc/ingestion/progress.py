"""Ingest progress: workers count, the calling process reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from bigmc.ingestion.parts.scan import Part
from bigmc.progress import Progress, ProgressCallback, silent


class Meter:
    """Adds up the work of the workers and reports it.

    Threads share it and count batches. A copy in another process reports nothing; the caller
    counts the finished parts of other processes.
    """

    def __init__(self, parts: Sequence[Part], progress: ProgressCallback) -> None:
        self._done: dict[int, tuple[int, int]] = {}
        self._total = sum(part.n_rows for part in parts)
        self._skipped = 0
        self._progress = progress
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """Pickle a copy that reports nothing."""
        return Meter, ((), silent)

    def skip(self, part: Part) -> None:
        """Count a part of an earlier run."""
        with self._lock:
            self._skipped += part.n_rows
            self._tell()

    def add(self, part: Part, n_rows: int, n_bytes: int) -> None:
        """Count a batch of a part."""
        with self._lock:
            rows, read = self._done.get(part.index, (0, 0))
            self._done[part.index] = rows + n_rows, read + n_bytes
            self._tell()

    def finish(self, part: Part, n_rows: int, n_bytes: int) -> None:
        """Count a whole part, whether or not its batches were counted."""
        with self._lock:
            if self._done.get(part.index, (-1, 0))[0] == n_rows:
                return
            self._done[part.index] = n_rows, n_bytes
            self._tell()

    def _tell(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rows, read = (sum(figures) for figures in zip((0, 0), *self._done.values(), strict=True))
        # A run that only repeats finished parts has no speed.
        facts = {"rows/s": rows / seconds, "MB/s": read / seconds / 1e6} if rows else {}
        self._progress(Progress("ingest", rows + self._skipped, self._total, "rows", facts))
