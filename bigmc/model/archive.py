"""Named arrays and a JSON header in one zip file, whose bytes depend only on its content.

The zip itself is not compressed. In version 2 the arrays are deflated before they are stored, and checksums
are those of the deflated bytes, so checking a file does not depend on the version of zlib.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.store.files.atomic import replacing
from bigmc.store.files.npy import ArraySize, check_npy, npy_pieces, read_npy, read_size
from bigmc.store.files.untrusted import parse_json

#: Name of the format in the header.
FORMAT = "bigmc-model"
#: Versions of the file format this package reads and writes: as they are, and deflated.
FORMAT_VERSION, DEFLATED_VERSION = 1, 2
DEFLATION, QUICK_DEFLATION = 6, 1
"""Levels of zlib: for files that are kept, and for those that a run reads again and removes."""

_HEADER = "model.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ZIP_MAGIC = b"PK\x03\x04"
#: How a zip file without a comment ends (the record that ends its directory), and in how many bytes.
_ZIP_END, _ZIP_END_BYTES = b"PK\x05\x06", 22
#: Errors that zipfile raises on damaged files.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    KeyError,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
)
_RETRAIN = "copy it again or train again"
_GIVE_MODEL = "give a file that bigmc fit or bigmc train has written"
_FIRST_BYTES = 1 << 16
"""Bytes that are enough for the NumPy header of an array."""
_Pieces = Sequence[bytes | memoryview]
"""Contents of a member, one after the other."""
#: Maximum bytes of arrays per byte of the file, and bytes that any file may have: an untrusted file
#: must not fill the memory.
_MOST_INFLATED, _ALWAYS_INFLATED = 256, 64 << 20


def write_archive(
    path: Path,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    version: int = FORMAT_VERSION,
    deflation: int = DEFLATION,
) -> None:
    """Write header and arrays into one file, atomically.

    Equal content gives equal bytes (deflated: with the same zlib and level), and no time is recorded.
    `ModelError` if an array holds Python objects or the file cannot be written.
    """
    members = {f"{name}.npy": _npy_pieces(name, array) for name, array in sorted(arrays.items())}
    if version == DEFLATED_VERSION:
        members = {name: [zlib.compress(b"".join(pieces), deflation)] for name, pieces in members.items()}
    if not path.parent.is_dir():
        raise ModelError(f"{path}: the folder {path.parent} does not exist", "create it first")
    if path.is_dir():
        raise ModelError(f"{path} is a folder", "give the name of a file")
    with replacing(path) as file:
        _pack(file, {**header, "version": version}, members)


def read_archive(path: Path) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file of `write_archive`; nothing in it is ever executed.

    `ModelError` if the file is absent, no bigmc model, of another version or damaged (naming the member).
    """
    with _opened(path) as file:
        archive, header = _listed(path, file)
        most = _most_inflated(file)
        deflated = header["version"] == DEFLATED_VERSION
        arrays = {}
        for name, expected in sorted(header["members"].items()):
            _check_digest(path, archive, name, expected)
            try:
                if deflated:
                    array = read_npy(_inflated(_member(path, archive, name), most))
                else:
                    array = _array(archive, name)
            except (ValueError, EOFError, zlib.error) as error:
                raise ModelError(f"{path}: {name} is not a plain array ({error})", _RETRAIN) from error
            arrays[name.removesuffix(".npy")] = array
    return _own(header), arrays


def read_sizes(path: Path) -> tuple[Mapping[str, Any], dict[str, ArraySize]]:
    """Return the header of a file of `write_archive` and the sizes of its arrays, none of which is read.

    The checksums are compared when the arrays are read. `ModelError` if the file is absent, no bigmc
    model, of another version, or too short for an array.
    """
    with _opened(path) as file:
        archive, header = _listed(path, file)
        deflated = header["version"] == DEFLATED_VERSION
        most = _most_inflated(file)
        sizes = {}
        for name in sorted(header["members"]):
            with _reading(path, name):
                _refuse_compressed(archive, name)
                with archive.open(name) as stream:
                    n_bytes, file = archive.getinfo(name).file_size, cast(BinaryIO, stream)
                    size = _inflated_size(stream, most) if deflated else check_npy(file, n_bytes)
            sizes[name.removesuffix(".npy")] = size
    return _own(header), sizes


def _own(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a header that belong to the model, not to the file."""
    return {name: value for name, value in header.items() if name not in ("format", "members", "version")}


def _most_inflated(file: BinaryIO) -> int:
    """Return the bytes that a deflated array of a file may have."""
    return _MOST_INFLATED * os.fstat(file.fileno()).st_size + _ALWAYS_INFLATED


def _inflated_size(stream: IO[bytes], most: int) -> ArraySize:
    """Return the size of a deflated array by its first bytes."""
    first = zlib.decompressobj().decompress(stream.read(_FIRST_BYTES), _FIRST_BYTES)
    size = read_size(io.BytesIO(first))
    if size.nbytes > most:
        raise ValueError(f"an array of {size.nbytes} bytes cannot be in it")
    return size


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return the array of a member without a second copy of its bytes."""
    with archive.open(name) as stream:
        check_npy(cast(BinaryIO, stream), archive.getinfo(name).file_size)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _inflated(content: bytes, most: int) -> bytes:
    """Return deflated content, inflated to at most `most` bytes."""
    stream = zlib.decompressobj()
    inflated = stream.decompress(content, most)
    if not stream.eof or stream.unused_data:
        raise ValueError(f"it is truncated, has bytes after its end, or has more than {most} bytes")
    return inflated


def check_archive(path: Path) -> list[str]:
    """Return the problems of the file, one line each; a single wrong byte anywhere is detected."""
    try:
        read_archive(path)
        with _opened(path) as file:
            archive, header = _listed(path, file)
            members = {name: _member(path, archive, name) for name in sorted(header["members"])}
    except ModelError as error:
        return [error.message]
    own = {name: value for name, value in header.items() if name not in ("format", "members")}
    written = io.BytesIO()
    _pack(written, own, {name: [content] for name, content in members.items()})
    if written.getvalue() != path.read_bytes():
        return [f"{path}: bytes outside the members were changed"]
    return []


def _npy_pieces(name: str, array: NDArray[Any]) -> _Pieces:
    try:
        return npy_pieces(array)
    except ValueError as error:
        raise ModelError(f"{name} of type {array.dtype} cannot be saved ({error})") from error


def _pack(file: IO[bytes], header: Mapping[str, Any], members: Mapping[str, _Pieces]) -> None:
    """Write header and members as a zip into a file that can seek."""
    digests = {}
    for name, pieces in members.items():
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        digests[name] = digest.hexdigest()
    whole = {**header, "format": FORMAT, "members": digests}
    text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, pieces in [(_HEADER, [text.encode()]), *sorted(members.items())]:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            entry.file_size = sum(len(piece) for piece in pieces)  # decides whether the entry is of Zip64
            with archive.open(entry, "w") as member:
                for piece in pieces:
                    member.write(piece)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file of a model."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist", "check the path or train a model first") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder, not a model", _GIVE_MODEL) from None
    with file:
        yield file


def _listed(path: Path, file: BinaryIO) -> tuple[zipfile.ZipFile, Mapping[str, Any]]:
    """Return the archive in a file and its whole header; it has the members that the header lists."""
    raw = file.read(128)
    if not raw:
        raise ModelError(f"{path} is empty", _RETRAIN)
    if _HEADER.encode() not in raw:  # the header is the first member
        damaged = raw.startswith(_ZIP_MAGIC[: len(raw)]) and len(raw) < 128
        what = "is truncated" if damaged else "is not a bigmc model"
        raise ModelError(f"{path} {what}", _RETRAIN if damaged else _GIVE_MODEL)
    file.seek(-min(_ZIP_END_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
    if not file.read().startswith(_ZIP_END):  # zipfile would find the directory before other bytes
        raise ModelError(f"{path} is truncated, or has bytes after its end", _RETRAIN)
    try:
        archive = zipfile.ZipFile(file)
        names = archive.namelist()
    except _ZIP_ERRORS as error:
        raise ModelError(f"{path} is damaged or truncated ({error})", _RETRAIN) from error
    header = _header(path, _member(path, archive, _HEADER))
    hashes = header["members"]
    strangers = sorted(set(names) ^ {_HEADER, *hashes})
    if strangers or len(names) != len(set(names)):
        raise ModelError(f"{path}: {', '.join(strangers) or 'a member'} is missing or unexpected", _RETRAIN)
    return archive, header


def _check_digest(path: Path, archive: zipfile.ZipFile, name: str, expected: str) -> None:
    """Compare a member with the SHA-256 that the header has of it."""
    with _reading(path, name):
        _refuse_compressed(archive, name)
        with archive.open(name) as stream:
            digest = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
    if digest != expected:
        raise ModelError(f"{path}: {name} is damaged (its SHA-256 differs)", _RETRAIN)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    with _reading(path, name):
        _refuse_compressed(archive, name)
        return archive.read(name)


def _refuse_compressed(archive: zipfile.ZipFile, name: str) -> None:
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile("it is compressed, models are not")


@contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Name the member that zipfile cannot read."""
    try:
        yield
    except _ZIP_ERRORS as error:
        raise ModelError(f"{path}: {name} is damaged ({error})", _RETRAIN) from error


def _header(path: Path, text: bytes) -> Mapping[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise ModelError(f"{path}: {_HEADER} is not JSON ({error})", _RETRAIN) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{path} is not a bigmc model", _GIVE_MODEL)
    version = header.get("version")
    if version not in (FORMAT_VERSION, DEFLATED_VERSION):
        raise ModelError(
            f"{path} has model format version {version!r}, this bigmc reads versions {FORMAT_VERSION} and "
            f"{DEFLATED_VERSION}",
            "install the version of bigmc that wrote it, or train again",
        )
    if not isinstance(header.get("members"), dict):
        raise ModelError(f"{path}: {_HEADER} lists no members", _RETRAIN)
    if not all(isinstance(digest, str) for digest in header["members"].values()):
        raise ModelError(f"{path}: {_HEADER} lists members without their sha256", _RETRAIN)
    return header
