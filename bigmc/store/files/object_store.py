"""Datasets and models in an object store, at addresses such as ``s3://bucket/reviews.bigmc``.

A dataset is stored as ``manifest.json`` and a folder ``data-ID`` with all other files, in the same layout as
on disk. ID comes from the manifest's digest, so two writers never write different contents to one name. It is
built on a local disk and uploaded. The manifest comes last, only if there is none: this is the commit. The
remains of an interrupted upload are invisible, and the next upload resumes from them.

A reader keeps local copies of the shards it reads, each downloaded at its first use
(`bigmc.store.files.cache`). Reads then give the same bits as from a local dataset; only the first pass uses
the network. The SHA-256 of downloaded files is checked against the manifest.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigmc.errors import BigmcError, DataError, StoreError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, remove_tree, write_atomic
from bigmc.store.files.cache import Copy, cache_folder, open_copy
from bigmc.store.files.layout import MANIFEST, FileEntry, append_name, read_manifest, sha256

BATCH = 32
"""Files uploaded or downloaded at the same time."""

_DIGITS = 16


def is_remote(path: str | Path) -> bool:
    """Return whether a path is an address in an object store."""
    return isinstance(path, str) and "://" in path


@dataclass(frozen=True)
class Address:
    """A place in an object store, such as ``s3://bucket/name``."""

    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def key(self) -> str:
        """Name for local folders that belong to this address."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:_DIGITS]

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def building(self) -> Path:
        """Local folder where what belongs at this address is built."""
        return cache_folder() / "building" / self.key

    def read(self, name: str = "") -> bytes | None:
        """Return the contents of an object, or None if there is none."""
        with self.file_system() as (fs, path):
            try:
                content: bytes = fs.cat_file(_join(path, name))
            except FileNotFoundError:
                return None
        return content

    def exists(self) -> bool:
        """Return whether there is an object at the address itself."""
        with self.file_system() as (fs, path):
            fs.invalidate_cache()
            return bool(fs.isfile(path))

    def write(self, content: bytes, name: str = "") -> None:
        """Write an object atomically, replacing an existing one."""
        with self.file_system() as (fs, path):
            fs.pipe_file(_join(path, name), content)

    def create(self, content: bytes, name: str = "") -> bool:
        """Create an object and return True, or False if it exists; concurrent calls cannot both create it."""
        with self.file_system() as (fs, path):
            try:
                fs.pipe_file(_join(path, name), content, mode="create")
            except FileExistsError:
                return False
        return True

    def sizes(self, name: str) -> dict[str, int]:
        """Return the objects under a folder: names relative to it, and bytes."""
        with self.file_system() as (fs, path):
            folder = _join(path, name)
            fs.invalidate_cache()
            listed = fs.find(folder, detail=True)
        return {there[len(folder) + 1 :]: int(info["size"]) for there, info in listed.items()}

    def put(self, file: Path) -> None:
        """Upload a local file, replacing an existing object."""
        with self.file_system() as (fs, path):
            fs.put_file(str(file), path)

    def send(self, folder: Path, name: str, files: Sequence[str]) -> None:
        """Upload local files; paths are relative to the folders."""
        with self.file_system() as (fs, path):
            there = [_join(path, name, file) for file in files]
            fs.put([str(folder / file) for file in files], there, batch_size=BATCH)

    def bring(self, name: str, folder: Path, files: Sequence[FileEntry]) -> None:
        """Download files, each atomically and checked against its digest.

        `StoreError` if an object is missing or has other contents.
        """
        for lo in range(0, len(files), BATCH):
            self._bring_some(name, folder, files[lo : lo + BATCH])

    def _bring_some(self, name: str, folder: Path, files: Sequence[FileEntry]) -> None:
        for file in files:
            disk.make_folder((folder / file.path).parent)
        with tempfile.TemporaryDirectory(prefix=".coming-", suffix=PARTIAL, dir=folder) as aside:
            copies = [os.path.join(aside, str(i)) for i in range(len(files))]
            with self.file_system() as (fs, path):
                fs.get([_join(path, name, file.path) for file in files], copies, batch_size=BATCH)
            for file, copy in zip(files, copies, strict=True):
                if sha256(Path(copy)) != file.sha256:
                    raise StoreError(
                        f"{self.url}/{name}/{file.path} does not match the manifest", "run bigmc verify"
                    )
                disk.rename(copy, folder / file.path)

    def digest(self, name: str) -> str:
        """Return the SHA-256 of an object, read piece by piece."""
        with self.file_system() as (fs, path), fs.open(_join(path, name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def remove(self, name: str) -> None:
        """Remove all objects under a folder."""
        with self.file_system() as (fs, path):
            fs.invalidate_cache()
            fs.rm(_join(path, name), recursive=True)

    @contextmanager
    def file_system(self) -> Iterator[tuple[Any, str]]:
        """Yield file system and path; errors name the address."""
        from fsspec.core import url_to_fs

        try:
            yield url_to_fs(self.url)
        except BigmcError:
            raise
        except ImportError as error:
            raise DataError(f"{self.url}: {error}", "pip install 'bigmc[s3]'") from None
        except Exception as error:
            raise StoreError(
                f"{self.url}: {type(error).__name__}: {error}",
                "check the address, the network and the credentials",
            ) from error


@dataclass(frozen=True)
class Origin:
    """A dataset in an object store, the folder of its data there, and its possibly partial local copy."""

    address: Address
    data: str
    copy: Copy

    @property
    def folder(self) -> Path:
        """Folder of the local copy."""
        return self.copy.folder

    def bring(self, files: Sequence[FileEntry], below: str = "") -> None:
        """Download files that have no local copy yet; paths are relative to ``below``."""
        missing = [file for file in files if not _is_there(self.folder / below / file.path, file)]
        self.copy.make_room(sum(file.bytes for file in missing))
        self.address.bring(_join(self.data, below), self.folder / below, missing)


def find(url: str, n_appends: int | None = None) -> list[Origin]:
    """Return the dataset at an address and all, or so many, ingests appended to it.

    These are the ones under consecutive numbers. Every manifest is in its local copy. `StoreError` if there
    is no dataset, or it cannot be reached.
    """
    origin = _find_one(url)
    if origin is None:
        raise StoreError(f"there is no dataset at {url}", "check the address, or make it with bigmc ingest")
    found = [origin]
    while n_appends is None or len(found) <= n_appends:
        appended = _find_one(f"{url.rstrip('/')}/{append_name(len(found))}")
        if appended is None:
            break
        found.append(appended)
    return found


def _find_one(url: str) -> Origin | None:
    """Return the ingest at an address, or None if there is none."""
    address = Address(url)
    content = address.read(MANIFEST)
    if content is None:
        return None
    copy = open_copy(_copy_name(address, content))
    if not (copy.folder / MANIFEST).exists():
        write_atomic(copy.folder / MANIFEST, content)
    return Origin(address, _data_name(content), copy)


def publish(folder: Path, url: str, progress: ProgressCallback = silent) -> bool:
    """Upload a finished dataset and commit it; return False, and leave nothing of it, if there is another.

    After the upload the folder becomes the local copy of the address.
    """
    address, files = Address(url), read_manifest(folder).all_files()
    content = (folder / MANIFEST).read_bytes()
    name = _data_name(content)
    there = address.sizes(name)
    missing = [file for file in files if there.get(file.path) != file.bytes]
    total, done = sum(file.bytes for file in files), sum(file.bytes for file in files if file not in missing)
    for lo in range(0, len(missing), BATCH):
        some = missing[lo : lo + BATCH]
        address.send(folder, name, [file.path for file in some])
        done += sum(file.bytes for file in some)
        progress(Progress("upload", done, total, "bytes"))
    if not address.create(content, MANIFEST) and address.read(MANIFEST) != content:
        address.remove(name)
        remove_tree(folder)
        return False
    with suppress(OSError):  # another process has already downloaded some of it
        disk.rename(folder, open_copy(_copy_name(address, content)).folder)
    remove_tree(folder)
    return True


def read_file(path: str | Path) -> bytes | None:
    """Return the contents of a file or an object, or None if there is none."""
    if is_remote(path):
        return Address(str(path)).read()
    return Path(path).read_bytes() if Path(path).is_file() else None


@contextmanager
def local_file(path: str | Path) -> Iterator[Path]:
    """Yield the path of a file, or of a temporary local copy of an object; `StoreError` if there is none."""
    if not is_remote(path):
        yield Path(path)
        return
    address = Address(str(path))
    content = address.read()
    if content is None:
        raise StoreError(f"there is nothing at {path}", "check the address")
    with tempfile.TemporaryDirectory(prefix="bigmc-") as folder:
        copy = Path(folder) / address.name
        disk.write_file(copy, content)
        yield copy


@contextmanager
def built(path: str | Path) -> Iterator[Path]:
    """Yield a path at which to build a file, if necessary over several runs; it is then uploaded.

    An existing object is there from the beginning. If the work stops, the unfinished file stays for the
    next run on this machine. `StoreError` if another process has created another file at the address.
    """
    if not is_remote(path):
        yield Path(path)
        return
    address = Address(str(path))
    made = address.building / address.name
    disk.make_folder(made.parent)
    before = address.read()
    if before is not None:
        write_atomic(made, before)
    yield made
    content = made.read_bytes()
    if before is not None:
        if content != before:  # the caller was allowed to replace it
            address.write(content)
    elif not address.create(content) and address.read() != content:
        disk.unlink(made)
        raise StoreError(f"another process has already written {path}", "give another --to")
    remove_tree(made.parent)


def _copy_name(address: Address, manifest: bytes) -> str:
    return f"{address.key}-{_data_name(manifest).removeprefix('data-')}"


def _data_name(manifest: bytes) -> str:
    return f"data-{hashlib.sha256(manifest).hexdigest()[:_DIGITS]}"


def _is_there(path: Path, file: FileEntry) -> bool:
    try:
        return path.stat().st_size == file.bytes
    except OSError:
        return False


def _join(*names: str) -> str:
    return "/".join(name for name in names if name)
