"""Whether a file is the one that was ingested, by its contents where its time of change differs.

Copies, checkouts and downloads give a file a new time. A file at an address has a version instead, such as an
ETag, which tells of its contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigmc.errors import DataError
from bigmc.ingestion.sources.source import status_of
from bigmc.store.files.layout import sha256

#: Bytes of files read once more for their digests, at most: they take some seconds, where a source of 50 GB
#: would take minutes. Other files are known by their time.
_MOST_BYTES = 1 << 32

Identity = Mapping[str, Any]
"""Of a source: see :meth:`bigmc.ingestion.sources.source.Source.identity`."""


def content_digests(sources: Iterable[Identity]) -> Mapping[str, str]:
    """Return the SHA-256 of local files by path.

    Without those that are gone or no longer as their identity says, and those of too many bytes together.
    `DataError` if one cannot be read: without its digest the dataset would have other bytes.
    """
    digests, left = {}, _MOST_BYTES
    for source in sources:
        if _is_local_file(source) and source["bytes"] <= left:
            left -= source["bytes"]
            try:
                digest, status = _digest(source["path"]), status_of(source["path"])
            except FileNotFoundError:
                continue
            if (status.n_bytes, status.changed) == (source["bytes"], source["changed"]):
                digests[source["path"]] = digest
    return digests


def is_same(asked: Identity, stored: Identity, digests: Mapping[str, str]) -> bool:
    """Return whether a source is a stored one; a file is read if only its time of change differs.

    `digests` are those of the stored files, by path. `DataError` if a file cannot be read; one that is gone
    is not the same.
    """
    if asked == stored:
        return True
    if {**asked, "changed": 0} != {**stored, "changed": 0} or not _is_local_file(asked):
        return False
    try:
        return _digest(asked["path"]) == digests.get(asked["path"])
    except FileNotFoundError:
        return False


def as_stored(
    asked: Sequence[Identity], stored: Sequence[Identity], digests: Mapping[str, str]
) -> tuple[Identity, ...]:
    """Return identities with those of stored sources in the place of equal ones."""
    if len(asked) != len(stored):
        return tuple(asked)
    pairs = zip(asked, stored, strict=True)
    return tuple(theirs if is_same(mine, theirs, digests) else mine for mine, theirs in pairs)


def _digest(path: str) -> str:
    """Return the SHA-256 of a file; `DataError` if it is there and cannot be read."""
    try:
        return sha256(Path(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = f"the file could not be read once more for its digest ({error.strerror})"
        raise DataError(f"{path}: {reason}", "repeat the command: it resumes") from error


def _is_local_file(source: Identity) -> bool:
    return isinstance(source.get("changed"), int)
