"""Finished parts of a prediction, in order, in one file, so that a killed run resumes."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.inference.part_predictor import Predicted
from bigmc.store.files import disk
from bigmc.store.files.atomic import write_atomic
from bigmc.store.files.untrusted import check_types, parse_json

PARTS, POSITION = "parts.arrow", "done.json"

SECONDS_BETWEEN_COMMITS = 2.0
"""Maximum work repeated after a kill; committing more often would wait for the disk."""

_READ_BYTES = 1 << 20


class Journal:
    """Keeps the tables of finished parts in the existing folder of a run.

    The file of parts holds two Arrow streams per part. Another file has the committed numbers of parts and
    bytes, what they were made of, and the size of parts; it is replaced only after those bytes are on disk.
    Later bytes are truncated. `made` are the inputs of the result as JSON data; None, for inputs that are
    only in memory, is never resumed. `DataError` if there are parts made of something else.

    `n_parts` counts the finished parts; `part_bytes` is their size, None if there is no run to resume.
    """

    def __init__(self, folder: Path, made: Mapping[str, Any] | None) -> None:
        self._folder, self._parts, self._position = folder, folder / PARTS, folder / POSITION
        self._made = json.loads(json.dumps(made))
        self._hash, self._hashed = hashlib.sha256(), 0
        self.n_parts, self._bytes, self.part_bytes = self._committed()
        self._raw = disk.extend_file(self._parts, self._bytes)
        self._file = io.BufferedWriter(self._raw)
        self._last_commit = time.monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep_only(self, part_bytes: int) -> None:
        """Forget the parts unless they are of this size."""
        if part_bytes == self.part_bytes:
            return
        self.part_bytes = part_bytes
        disk.unlink(self._position)
        self._file.seek(0)
        self._file.truncate(0)
        self.n_parts = self._bytes = 0
        self._hash, self._hashed = hashlib.sha256(), 0

    def followed_by(self, missing: Iterable[Predicted], n_parts: int) -> Iterator[Predicted]:
        """Yield the tables of every finished part, then those of the missing ones of `n_parts`.

        All but the last are kept. From time to time they are committed, to survive a kill or a power cut.
        """
        with open(self._parts, "rb") as file:
            for _ in range(self.n_parts):
                yield _read_table(file), _read_table(file)
        for tables in missing:
            if self.n_parts + 1 < n_parts:
                self._append(tables)
            yield tables

    def _append(self, tables: Predicted) -> None:
        for table in tables:
            with pa.ipc.new_stream(self._file, table.schema) as stream:
                stream.write_table(table)
        self.n_parts += 1
        if time.monotonic() - self._last_commit >= SECONDS_BETWEEN_COMMITS:
            self._commit()

    def _commit(self) -> None:
        """Commit all parts so far."""
        self._file.flush()
        self._raw.sync()
        self._bytes = self._file.tell()
        self._hash_to(self._bytes)
        position = {
            "made": self._made,
            "part_bytes": self.part_bytes,
            "parts": self.n_parts,
            "bytes": self._bytes,
            "sha256": self._hash.hexdigest(),
        }
        write_atomic(self._position, json.dumps(position).encode())
        self._last_commit = time.monotonic()

    def _committed(self) -> tuple[int, int, int | None]:
        """Return the committed numbers of parts and bytes, and the size of parts.

        They are 0 and None if there are no parts to resume, or a file is damaged.
        """
        try:
            position = parse_json(self._position.read_bytes())
            check_types({"position": position}, {"position": dict})
            check_types(position, {"part_bytes": int, "parts": int, "bytes": int, "sha256": str})
            self._hash_to(position["bytes"])
        except (FileNotFoundError, ValueError):
            return 0, 0, None
        if self._hashed == position["bytes"] and self._hash.hexdigest() == position["sha256"]:
            made = position.get("made")
            if None not in (made, self._made):
                if made == self._made:
                    return position["parts"], position["bytes"], position["part_bytes"]
                raise DataError(
                    f"{self._folder} holds unfinished predictions of another model, data or options",
                    "delete it, or give another --to",
                )
        self._hash, self._hashed = hashlib.sha256(), 0
        return 0, 0, None

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
