"""Finished parts of a prediction, in order, in one file, so that a killed run resumes."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bigmc.inference.part_predictor import Predicted
from bigmc.store.files import disk
from bigmc.store.files.atomic import write_atomic
from bigmc.store.files.untrusted import check_types, parse_json

PARTS, POSITION = "parts.arrow", "position.json"

SECONDS_BETWEEN_COMMITS = 2.0
"""Maximum work repeated after a kill; committing more often would wait for the disk."""

_READ_BYTES = 1 << 20


class Journal:
    """Keeps the tables of finished parts in the existing folder of a run.

    The file of parts holds two Arrow streams per part. Another file has the committed numbers of parts
    and bytes; it is replaced only after those bytes are on disk. Later bytes are truncated.
    """

    def __init__(self, folder: Path) -> None:
        self._parts, self._position = folder / PARTS, folder / POSITION
        self._hash, self._hashed = hashlib.sha256(), 0
        self.n_parts, self._bytes = self._committed()
        self._raw = disk.extend_file(self._parts, self._bytes)
        self._file = io.BufferedWriter(self._raw)
        self._last_commit = time.monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def clear(self) -> None:
        """Forget all parts."""
        disk.unlink(self._position)
        self._file.seek(0)
        self._file.truncate(0)
        self.n_parts = self._bytes = 0
        self._hash, self._hashed = hashlib.sha256(), 0

    def replay(self) -> Iterator[Predicted]:
        """Yield the tables of every part that was committed."""
        with open(self._parts, "rb") as file:
            for _ in range(self.n_parts):
                yield _read_table(file), _read_table(file)

    def append(self, tables: Predicted) -> None:
        """Add a part; from time to time, commit all parts to survive a kill or a power cut."""
        for table in tables:
            with pa.ipc.new_stream(self._file, table.schema) as stream:
                stream.write_table(table)
        self.n_parts += 1
        if time.monotonic() - self._last_commit >= SECONDS_BETWEEN_COMMITS:
            self.commit()

    def commit(self) -> None:
        """Commit all parts so far."""
        self._file.flush()
        self._raw.sync()
        self._bytes = self._file.tell()
        self._hash_to(self._bytes)
        position = {"parts": self.n_parts, "bytes": self._bytes, "sha256": self._hash.hexdigest()}
        write_atomic(self._position, json.dumps(position).encode())
        self._last_commit = time.monotonic()

    def _committed(self) -> tuple[int, int]:
        """Return the committed numbers of parts and bytes; zeros if either file is damaged."""
        try:
            position = parse_json(self._position.read_bytes())
            check_types({"position": position}, {"position": dict})
            check_types(position, {"parts": int, "bytes": int, "sha256": str})
            self._hash_to(position["bytes"])
        except (FileNotFoundError, ValueError):
            return 0, 0
        if self._hashed == position["bytes"] and self._hash.hexdigest() == position["sha256"]:
            return position["parts"], position["bytes"]
        self._hash, self._hashed = hashlib.sha256(), 0
        return 0, 0

    def _hash_to(self, n_bytes: int) -> None:
        """Add the bytes of the file of parts up to a position to the digest."""
        with open(self._parts, "rb") as file:
            file.seek(self._hashed)
            while piece := file.read(min(_READ_BYTES, n_bytes - self._hashed)):
                self._hash.update(piece)
                self._hashed += len(piece)


def _read_table(file: object) -> pa.Table:
    with pa.ipc.open_stream(file) as stream:
        return stream.read_all()
