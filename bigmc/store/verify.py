"""Compare every byte of a dataset with its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bigmc.errors import StoreError
from bigmc.store.files.layout import APPENDS, MANIFEST, WIP, FileEntry, Manifest, sha256
from bigmc.store.files.object_store import Origin
from bigmc.store.snapshot import Ingest, read_ingests


def verify(path: Path | str, n_workers: int = 2) -> list[str]:
    """Return the problems of the dataset at `path`, one line per file; empty if it is intact.

    Finds changed, exchanged, missing and additional files by size and SHA-256, an edited manifest, an
    unfinished dataset and an unknown format version. Ignores unfinished work: ``wip/``, and folders of
    ``appends/`` that the manifest does not name. `n_workers` threads read files.
    """
    try:
        ingests = read_ingests(path)
        return [problem for ingest in ingests for problem in _verify(ingest, n_workers)]
    except StoreError as error:
        return [str(error)]


def _verify(ingest: Ingest, n_workers: int) -> list[str]:
    """Return the problems of one ingest."""
    if ingest.origin is not None:
        return _verify_remote(ingest.origin, ingest.manifest, n_workers)
    root = ingest.path
    expected = {root / file.path: file for file in ingest.manifest.all_files()}
    with ThreadPoolExecutor(n_workers) as pool:
        problems = list(pool.map(_problem, expected, expected.values()))
    known = expected.keys() | _parents(root, expected)
    extra = [f"{path}: is not in the manifest" for path in _present(root) if path not in known]
    extra += [f"{path}: is a link" for path in known if path.is_symlink()]
    return [problem for problem in problems if problem] + sorted(extra)


def _verify_remote(origin: Origin, manifest: Manifest, n_workers: int) -> list[str]:
    """Return the problems of a dataset in an object store; reads the objects, not their copies."""
    address, url = origin.address, f"{origin.address.url}/{origin.data}"
    expected = {file.path: file for file in manifest.all_files()}
    there = address.sizes(origin.data)

    def problem(name: str) -> str | None:
        file = expected[name]
        if name not in there:
            return f"{url}/{name}: is missing"
        if there[name] != file.bytes:
            return f"{url}/{name}: has {there[name]} bytes instead of {file.bytes}"
        changed = address.digest(f"{origin.data}/{name}") != file.sha256
        return f"{url}/{name}: its contents have changed" if changed else None

    with ThreadPoolExecutor(n_workers) as pool:
        problems = list(pool.map(problem, expected))
    extra = [f"{url}/{name}: is not in the manifest" for name in there if name not in expected]
    return [one for one in problems if one] + sorted(extra)


def _present(root: Path) -> Iterator[Path]:
    """Yield every file under a dataset's folder, every link, and every folder without either."""
    for folder, folders, names in os.walk(root):
        directory = Path(folder)
        if directory == root:
            folders[:] = [name for name in folders if name not in (WIP, APPENDS)]
            names.remove(MANIFEST)
        elif not folders and not names:
            yield directory
        yield from (directory / name for name in names)
        yield from (directory / name for name in folders if (directory / name).is_symlink())


def _parents(root: Path, files: Iterable[Path]) -> set[Path]:
    """Return the folders between a dataset's folder and its files."""
    return {above for file in files for above in file.parents if root in above.parents}


def _problem(path: Path, expected: FileEntry) -> str | None:
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            return f"{path}: has {size} bytes instead of {expected.bytes}"
        if sha256(path) != expected.sha256:
            return f"{path}: its contents have changed"
    except FileNotFoundError:
        return f"{path}: is missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None
