"""One file of named arrays and a JSON header: a zip whose bytes depend on its content only.

The zip itself compresses nothing. In files of version 2 the arrays are deflated before they are put in: their
checksums are of the bytes in the file, so that checking a file does not depend on the version of zlib.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.store.atomic import write_atomic
from bigmc.store.npy import read_npy
from bigmc.store.untrusted import parse_json

#: What the header must call itself.
FORMAT = "bigmc-model"
#: Versions of the file format this package reads and writes: as they are, and deflated.
FORMAT_VERSION, DEFLATED_VERSION = 1, 2

_HEADER = "model.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ZIP_MAGIC = b"PK\x03\x04"
#: What zipfile raises on a file it cannot make sense of, whichever byte is wrong.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    KeyError,
    OSError,
    EOFError,
    ValueError,
)
_RETRAIN = "copy it anew or train again"
#: Bytes of an array for each byte of its file, at most, and those that any file may have: a stranger's file
#: must not fill the memory.
_MOST_INFLATED, _ALWAYS_INFLATED = 256, 64 << 20


def write_archive(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], version: int = FORMAT_VERSION
) -> None:
    """Write header and arrays into one file, aside and renamed when complete.

    Equal content gives equal bytes (deflated: with the same zlib), and no time is recorded.

    Raises
    ------
    ModelError
        If an array holds Python objects or the file cannot be written.
    """
    members = {f"{name}.npy": _npy_bytes(name, array) for name, array in sorted(arrays.items())}
    if version == DEFLATED_VERSION:
        members = {name: zlib.compress(content) for name, content in members.items()}
    if not path.parent.is_dir():
        raise ModelError(f"{path}: the folder {path.parent} does not exist", "create it first")
    if path.is_dir():
        raise ModelError(f"{path} is a folder", "give the name of a file")
    write_atomic(path, _pack({**header, "version": version}, members))


def read_archive(path: Path) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file of `write_archive`; nothing in it is ever executed.

    Raises
    ------
    ModelError
        If the file is absent, no bigmc model, of another version or damaged (naming the member).
    """
    raw = _read(path)
    header, members = _unpack(path, raw)
    most = _MOST_INFLATED * len(raw) + _ALWAYS_INFLATED
    arrays = {}
    for name, content in members.items():
        try:
            if header["version"] == DEFLATED_VERSION:
                content = _inflated(content, most)
            arrays[name.removesuffix(".npy")] = read_npy(content)
        except (ValueError, EOFError, zlib.error) as error:
            raise ModelError(f"{path}: {name} is no plain array ({error})", _RETRAIN) from error
    return {name: value for name, value in header.items() if name != "version"}, arrays


def _inflated(content: bytes, most: int) -> bytes:
    """Return what was deflated, at most so many bytes."""
    stream = zlib.decompressobj()
    found = stream.decompress(content, most)
    if not stream.eof or stream.unused_data:
        raise ValueError(f"it is cut short, goes on after its end, or is of more than {most} bytes")
    return found


def check_archive(path: Path) -> list[str]:
    """Return what is wrong with the file, one line each; a single wrong byte anywhere is found."""
    try:
        raw = _read(path)
        header, members = _unpack(path, raw)
        read_archive(path)
    except ModelError as error:
        return [error.message]
    if _pack(header, members) != raw:
        return [f"{path}: bytes outside the members were changed"]
    return []


def _npy_bytes(name: str, array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    try:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    except ValueError as error:
        raise ModelError(f"{name} of type {array.dtype} cannot be saved ({error})") from error
    return stream.getvalue()


def _pack(header: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    whole = {
        **header,
        "format": FORMAT,
        "members": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=True)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in [(_HEADER, text.encode()), *sorted(members.items())]:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return stream.getvalue()


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist", "check the path or train a model first") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder, not a model", "give the file written by train") from None
    if not raw:
        raise ModelError(f"{path} is empty", _RETRAIN)
    return raw


def _unpack(path: Path, raw: bytes) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """Return the header with its version, but without its own other fields, and the members as checked."""
    if _HEADER.encode() not in raw[:128]:  # the header is the first member
        damaged = raw.startswith(_ZIP_MAGIC[: len(raw)]) and len(raw) < 128
        what = "is cut short" if damaged else "is not a bigmc model"
        raise ModelError(f"{path} {what}", _RETRAIN if damaged else "give the file written by train")
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
        names = archive.namelist()
    except _ZIP_ERRORS as error:
        raise ModelError(f"{path} is damaged or cut short ({error})", _RETRAIN) from error
    header = _header(path, _member(path, archive, _HEADER))
    hashes = header["members"]
    strangers = sorted(set(names) ^ {_HEADER, *hashes})
    if strangers or len(names) != len(set(names)):
        raise ModelError(f"{path}: {', '.join(strangers) or 'a member'} is missing or too many", _RETRAIN)
    members = {}
    for name, expected in sorted(hashes.items()):
        members[name] = _member(path, archive, name)
        if hashlib.sha256(members[name]).hexdigest() != expected:
            raise ModelError(f"{path}: {name} is damaged (its sha256 is not the recorded one)", _RETRAIN)
    own = {name: value for name, value in header.items() if name not in ("format", "members")}
    return own, members


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        entry = archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            raise zipfile.BadZipFile("it is compressed, models are not")
        return archive.read(entry)
    except _ZIP_ERRORS as error:
        raise ModelError(f"{path}: {name} is damaged ({error})", _RETRAIN) from error


def _header(path: Path, text: bytes) -> Mapping[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise ModelError(f"{path}: {_HEADER} is no JSON ({error})", _RETRAIN) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{path} is not a bigmc model", "give the file written by train")
    version = header.get("version")
    if version not in (FORMAT_VERSION, DEFLATED_VERSION):
        raise ModelError(
            f"{path} has model format version {version!r}, this bigmc reads versions {FORMAT_VERSION} and "
            f"{DEFLATED_VERSION}",
            "install the bigmc that wrote it or train again",
        )
    if not isinstance(header.get("members"), dict):
        raise ModelError(f"{path}: {_HEADER} lists no members", _RETRAIN)
    if not all(isinstance(digest, str) for digest in header["members"].values()):
        raise ModelError(f"{path}: {_HEADER} lists members without their sha256", _RETRAIN)
    return header
