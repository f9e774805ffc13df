"""The dataset on disk, format version 2: names of files, and the manifest that lists and checks them all.

::

    reviews.bigmc/
      zarr.json           zarr v3 group; attributes under the one key "bigmc"
      manifest.json       written last, atomically: its presence means the dataset is complete
      classes.parquet     class code -> original label
      shards/000000/
        rows.parquet      label (a list of them where labels are sets), row_id, norm, entries, passthrough
                          columns
        x/                sparse: group in anndata's csc_matrix encoding; dense: array chunked by columns
      statistics/SPLIT/   zarr group: nnz, sum, sum_squares, class_sum, class_sum_squares; if small
      appends/000001/     an ingest appended later, laid out like this, with a manifest of its own; the
                          manifest above names those that belong to the dataset
      wip/                unfinished parts and locks; ignored by readers
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from bigmc.errors import StoreError
from bigmc.store.files import untrusted
from bigmc.store.files.dtypes import VALUE_DTYPES
from bigmc.store.files.untrusted import parse_json

FORMAT_VERSION = 2
"""Version of the datasets written; it differs from version 1 in how chunks are compressed."""

READ_VERSIONS = (1, FORMAT_VERSION)

_TYPES: dict[str, type | tuple[type, ...]] = {
    "splits": dict,
    "features": dict,
    "weighting": dict,
    "provenance": dict,
    "signature": str,
    "rows_in": int,
    "rows_quarantined": int,
    "label_sets": bool,
    "classes_type": str,
}

MANIFEST = "manifest.json"
CLASSES = "classes.parquet"
GROUP = "zarr.json"
SHARDS = "shards"
STATISTICS = "statistics"
WIP = "wip"
APPENDS = "appends"
ROWS_TABLE = "rows.parquet"
MATRIX = "x"
SAMPLE_WEIGHT = "sample_weight"
"""Column of ``rows.parquet`` with the weight of each sample, if the ingest had weights."""
GROUP_HASH = "group_hash"
"""Column of ``rows.parquet`` with a hash of the group of each sample, if the ingest had groups."""

ROW_COLUMNS = frozenset({"label", "row_id", "norm", "entries", SAMPLE_WEIGHT, GROUP_HASH})
"""Columns of ``rows.parquet`` created by ingest."""

_NOT_LISTED = {SHARDS, WIP, APPENDS, MANIFEST}

#: Type of the original labels; names the Arrow type of classes.parquet.
ClassesType = Literal["int64", "string", "bool", "float"]


def shard_folder(path: Path, name: str) -> Path:
    """Return the folder of the shard called `name`, such as ``"000000"``."""
    return path / SHARDS / name


def append_name(number: int) -> str:
    """Return the folder of the ingest appended as number ``number``, from 1, relative to the dataset."""
    return f"{APPENDS}/{number:06d}"


def damaged(path: Path | str, why: str) -> StoreError:
    """Return the error for a damaged file."""
    one_line = " ".join(why.split())  # Arrow's messages have several lines
    return StoreError(f"{path}: {one_line}", "run bigmc verify")


@dataclass(frozen=True)
class FileEntry:
    """A file as written: `path` relative to the shard or the dataset, size in bytes, SHA-256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardEntry:
    """A shard's entry in the manifest: its folder, and all files in it, with paths relative to it.

    A dense shard stores ``rows * n_features`` entries.
    """

    name: str
    split: str
    rows: int
    nnz: int
    dtype: str
    kind: Literal["sparse", "dense"]
    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.bytes for f in self.files)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the entry as a dict for JSON."""
        fields = {k: v for k, v in self.__dict__.items() if k != "files"}
        return {**fields, "files": [[f.path, f.bytes, f.sha256] for f in self.files]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ShardEntry:
        """Return the entry written by `to_dict`."""
        entry = cls(**{**fields, "files": tuple(FileEntry(*f) for f in fields["files"])})
        if entry.kind not in ("sparse", "dense") or np.dtype(entry.dtype) not in VALUE_DTYPES:
            raise ValueError(f"shard {entry.name} of kind {entry.kind} and dtype {entry.dtype}")
        return entry


@dataclass(frozen=True)
class Manifest:
    """The contents of manifest.json.

    `files` are those outside the shards, `appends` the manifests of the ingests appended since; their
    paths are relative to the dataset. `splits` counts rows, of which ``rows_in`` = stored + quarantined.
    `features` describes the features and is copied into every model; `provenance` has the sources,
    options and versions that made the dataset, and `signature` their digest, by which a rerun recognises
    the finished ingest. `label_sets` is written only if labels are sets.
    """

    n_features: int
    classes_type: ClassesType
    splits: dict[str, int]
    shards: tuple[ShardEntry, ...]
    files: tuple[FileEntry, ...]
    features: Mapping[str, Any]
    weighting: dict[str, bool]
    provenance: Mapping[str, Any]
    rows_in: int
    rows_quarantined: int
    signature: str
    appends: tuple[FileEntry, ...] = ()
    label_sets: bool = False
    version: int = FORMAT_VERSION

    def to_json(self) -> bytes:
        """Return the text of manifest.json, with a digest of itself."""
        fields = {**self.__dict__, "shards": [s.to_dict() for s in self.shards]}
        for name in ("files", "appends"):
            fields[name] = [asdict(f) for f in getattr(self, name)]
        if not self.label_sets:
            del fields["label_sets"]
        fields["checksum"] = _digest(fields)
        return json.dumps(fields, indent=1, sort_keys=True).encode()

    def all_files(self) -> list[FileEntry]:
        """Return all files of this ingest but the manifest, their paths relative to the manifest's folder."""
        of_shards = [
            replace(file, path=f"{SHARDS}/{shard.name}/{file.path}")
            for shard in self.shards
            for file in shard.files
        ]
        return [*self.files, *of_shards]


def canonical_json(value: Any) -> bytes:
    """Return `value` as canonical JSON, the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json({k: v for k, v in fields.items() if k != "checksum"})).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the dataset at `path`.

    `StoreError` if the dataset is missing, unfinished or from another version, or the manifest is
    damaged.
    """
    return _read_manifest(path)[0]


def read_manifests(
    path: Path, n_appends: int | None = None, copies: Sequence[Path] | None = None
) -> list[tuple[Path, Manifest]]:
    """Read the manifests of the dataset at `path` and of all, or so many, ingests appended to it.

    `copies` are the local copies of appended ingests in an object store, all of which count; on disk those
    count that the manifest of the dataset names. Returns each folder and its manifest. `StoreError` as for
    `read_manifest`, also if an appended manifest has changed or does not fit the first.
    """
    first = read_manifest(path)
    if copies is None:
        appended = [((path / file.path).parent, file.sha256) for file in first.appends[:n_appends]]
    else:
        appended = [(folder, "") for folder in copies]
    return [(path, first), *((folder, _read_appended(folder, first, digest)) for folder, digest in appended)]


def _read_appended(path: Path, first: Manifest, expected: str) -> Manifest:
    """Read the manifest of an appended ingest, with the digest that is expected, if any."""
    appended, digest = _read_manifest(path)
    if expected not in ("", digest):
        raise damaged(path / MANIFEST, "is not the manifest that was appended")
    for name in ("n_features", "weighting", "label_sets"):
        if getattr(appended, name) != getattr(first, name):
            raise damaged(path / MANIFEST, f"its {name} is not that of the dataset")
    if appended.appends:
        raise damaged(path / MANIFEST, "something is appended to it, not to the dataset")
    return appended


def _read_manifest(path: Path) -> tuple[Manifest, str]:
    """Return a manifest and the SHA-256 of its file."""
    file = path / MANIFEST
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise _absent(path) from None
    except NotADirectoryError:
        raise StoreError(
            f"{path} is a file, not a bigmc dataset", "give a folder made by bigmc ingest"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{file} cannot be read: {error.strerror}", "check the file and its permissions"
        ) from None
    try:
        fields = parse_json(text)
        version = fields["version"]
    except (ValueError, KeyError, TypeError):
        raise damaged(file, "not the manifest of a bigmc dataset") from None
    if version not in READ_VERSIONS:
        raise StoreError(
            f"{path} was made by format version {version}; "
            f"this bigmc reads {READ_VERSIONS[0]} to {FORMAT_VERSION}",
            "install the version of bigmc that made it, or ingest again",
        )
    if fields.pop("checksum", None) != _digest(fields):
        raise damaged(file, "edited or damaged: its checksum does not match")
    try:
        fields["shards"] = tuple(ShardEntry.from_dict(s) for s in fields["shards"])
        for name in ("files", "appends"):
            fields[name] = tuple(FileEntry(**f) for f in fields.get(name, ()))
        manifest = Manifest(**fields)
        _check(manifest)
        return manifest, hashlib.sha256(text).hexdigest()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(file, f"not a manifest of version {version} ({error})") from None


def _check(manifest: Manifest) -> None:
    """Raise an error if a manifest names files elsewhere, or is inconsistent."""
    untrusted.check_types(manifest.__dict__, _TYPES)
    untrusted.check_whole(manifest.n_features, np.iinfo(np.int32).max, "n_features")
    if manifest.classes_type not in get_args(ClassesType):
        raise ValueError(f"labels of type {manifest.classes_type!r}")
    rows: dict[str, int] = {}
    for shard in manifest.shards:
        _check_shard(shard, manifest.n_features)
        rows[shard.split] = rows.get(shard.split, 0) + shard.rows
    if rows != manifest.splits:
        raise ValueError(f"the rows of the shards are {rows}, not {manifest.splits}")
    files = manifest.all_files()
    for file in [*manifest.files, *manifest.appends]:
        _check_entry(file)
    paths = {file.path for file in files}
    if len(paths) != len(files):
        raise ValueError("it lists a file twice")
    if any(file.path.split("/")[0] in _NOT_LISTED for file in manifest.files):
        raise ValueError("it lists files that are not its own")
    for number, file in enumerate(manifest.appends, 1):
        if file.path != f"{append_name(number)}/{MANIFEST}":
            raise ValueError(f"{file.path!r} is not the manifest appended as number {number}")


def _check_shard(shard: ShardEntry, n_features: int) -> None:
    untrusted.check_name(shard.name, "shard")
    untrusted.check_name(shard.split, "split")
    untrusted.check_whole(shard.rows, np.iinfo(np.uint16).max + 1, "the number of rows of a shard")
    most = shard.rows * n_features
    untrusted.check_whole(shard.nnz, most, "the number of entries of a shard")
    if shard.kind == "dense" and shard.nnz != most:
        raise ValueError(f"the dense shard {shard.name} has {shard.nnz} entries instead of {most}")
    for file in shard.files:
        _check_entry(file)
    if ROWS_TABLE not in (file.path for file in shard.files):
        raise ValueError(f"the shard {shard.name} has no {ROWS_TABLE}")


def _check_entry(file: FileEntry) -> None:
    untrusted.check_path(file.path)
    untrusted.check_whole(file.bytes, np.iinfo(np.int64).max, "the size of a file")
    untrusted.check_digest(file.sha256)


def _absent(path: Path) -> StoreError:
    if not path.exists():
        return StoreError(f"there is no dataset at {path}", "check the path, or make it with bigmc ingest")
    if (path / SHARDS).exists() or (path / WIP).exists():
        return StoreError(f"{path}: ingest not finished", "rerun the same bigmc ingest command")
    return StoreError(
        f"{path} is not a bigmc dataset: it has no {MANIFEST}", "give a folder made by bigmc ingest"
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits, without holding the file in memory."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_below(prefix: str, files: Iterable[FileEntry]) -> dict[str, str]:
    """Return the SHA-256 of the files with this prefix, by the rest of their paths."""
    return {file.path.removeprefix(prefix): file.sha256 for file in files if file.path.startswith(prefix)}


def file_entry(path: Path, relative_to: Path) -> FileEntry:
    """Return size and SHA-256 of a file."""
    return FileEntry(path.relative_to(relative_to).as_posix(), path.stat().st_size, sha256(path))


def check_files(folder: Path, files: Sequence[FileEntry]) -> None:
    """Compare sizes and contents of files in a dataset with its manifest; `StoreError` if they differ."""
    check_sizes(folder, files, folder)
    for file in files:
        check_contents(folder / file.path, file)


def check_sizes(folder: Path, files: Iterable[FileEntry], root: Path) -> None:
    """Compare the sizes of files, whose paths are relative to `folder`, all of it in the dataset at `root`.

    `StoreError` if one is missing, has another size, or is a link to a place outside.
    """
    seen: set[str] = set()
    for file in files:
        path = folder / file.path
        try:
            status = os.lstat(path)
            parent = os.path.dirname(path)
            if parent not in seen or stat.S_ISLNK(status.st_mode):
                seen.add(parent)
                _check_inside(path, root)
                status = os.stat(path)
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise damaged(path, str(error)) from None
        if not stat.S_ISREG(status.st_mode):
            raise damaged(path, "is not a file")
        if status.st_size != file.bytes:
            raise damaged(path, f"has {status.st_size} bytes instead of {file.bytes}")


def _check_inside(path: Path, root: Path) -> None:
    """Raise an error if a path leaves a folder through a link; the caller adds the path."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(os.path.realpath(root), "")):
        raise ValueError(f"is a link to {real}, outside of the folder")


def state_of(path: Path) -> tuple[int, int, int] | None:
    """Return number, bytes and time of change of a file, which tell it from others; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_contents(path: Path, entry: FileEntry) -> None:
    """Compare the contents of a file with its SHA-256; `StoreError` if they differ or cannot be read."""
    try:
        same = sha256(path) == entry.sha256
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from None
    if not same:
        raise damaged(path, "its contents have changed")
