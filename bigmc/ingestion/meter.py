"""How far an ingest is: the workers count, the caller is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from bigmc.ingestion.source import Part
from bigmc.progress import Progress, ProgressCallback


class Meter:
    """Adds up what the workers did and tells it."""

    def __init__(self, parts: Sequence[Part], progress: ProgressCallback) -> None:
        self._rows, self._bytes = 0, 0
        self._total = sum(part.n_rows for part in parts)
        self._skipped = 0
        self._progress = progress
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def skip(self, part: Part) -> None:
        """Count a part that an earlier run wrote."""
        with self._lock:
            self._skipped += part.n_rows
            self._tell()

    def add(self, n_rows: int, n_bytes: int) -> None:
        """Count a batch."""
        with self._lock:
            self._rows += n_rows
            self._bytes += n_bytes
            self._tell()

    def _tell(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        facts = {"rows/s": self._rows / seconds, "MB/s": self._bytes / seconds / 1e6}
        self._progress(Progress("ingest", self._rows + self._skipped, self._total, "rows", facts))
