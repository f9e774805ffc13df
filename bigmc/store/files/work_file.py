"""Files of unfinished work, for the run that resumes it: a SHA-256, then JSON on the next line."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.errors import StoreError
from bigmc.lazy import LazyModule
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.atomic import write_atomic
from bigmc.store.files.layout import FileEntry, sha256
from bigmc.store.files.untrusted import parse_json

pq = LazyModule("pyarrow.parquet")


def write_work_file(path: Path, value: Any) -> None:
    """Write JSON data atomically."""
    text = json.dumps(value).encode()
    write_atomic(path, _digest(path, text) + b"\n" + text)


def read_work_file(path: Path, folder: Path | None = None) -> Any:
    """Return the data of `write_work_file`.

    `StoreError` if the file is missing or damaged; then results based on it cannot be trusted either, and
    `folder`, by default that of the unfinished dataset, has to be deleted.
    """
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest in (_digest(path, text), _digest_of_text(text)):
            return parse_json(text)
    except (FileNotFoundError, IsADirectoryError):
        pass
    raise damaged_work(path, folder)


def made_once(path: Path, make: Callable[[], Any], folder: Path | None = None) -> Any:
    """Return the data of a work file, which is written first if it is missing; as `read_work_file`."""
    if not path.exists():
        write_work_file(path, make())
    return read_work_file(path, folder)


def read_work_table(path: Path, file: FileEntry) -> pa.Table:
    """Return a table, checked against its entry in a receipt; `StoreError` if it is missing or another."""
    if not path.is_file() or sha256(path) != file.sha256:
        raise damaged_work(path)
    return pq.ParquetFile(arrow_file(path)).read()


def damaged_work(path: Path, folder: Path | None = None) -> StoreError:
    """Return the error of unfinished work that cannot be resumed."""
    which = "that was to become the dataset" if folder is None else folder
    return StoreError(
        f"{path} is damaged, so the unfinished work in its folder cannot be resumed",
        f"delete the folder {which}, and run the command again",
    )


def _digest(path: Path, text: bytes) -> bytes:
    """Return the digest of the name and the text: with that of another file it is damaged."""
    return _digest_of_text(os.fsencode(path.name) + b"\n" + text)


def _digest_of_text(text: bytes) -> bytes:
    """Return the digest that earlier versions wrote."""
    return hashlib.sha256(text).hexdigest().encode()
