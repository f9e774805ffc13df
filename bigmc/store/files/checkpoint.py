"""A solver's state in one file: replaced atomically, read without pickle."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import StoreError
from bigmc.store.files import disk
from bigmc.store.files.atomic import replacing
from bigmc.store.files.file_array import file_array, give_back_pages
from bigmc.store.files.npy import npy_pieces, read_npy, read_size
from bigmc.store.files.untrusted import parse_json

CHECKPOINT = "checkpoint.npz"
_META = "meta"
_ARRAY = "array."
_VERSION = 1
#: Arrays from this many bytes on are not read into memory. States larger than the limit consist mostly of
#: such arrays, for example the dual variables of all samples.
_LARGE = 32 << 20
#: Bytes copied at once.
_COPIED = 1 << 20
LITTLE_TIME = 0.02
"""Share of the time for states of short rounds: boosting on 1,250 rows spent a quarter on saving each."""


class FileCheckpoint:
    """Keeps the last saved state in a folder; a kill while saving leaves the previous state.

    States are skipped that follow so soon on the last saved one that saving would take more than
    `share_of_time`. A run that is killed repeats what it did since.
    """

    def __init__(self, folder: Path | str, *, share_of_time: float = 1.0) -> None:
        self.path = Path(folder) / CHECKPOINT
        self._share_of_time, self._not_before = share_of_time, 0.0

    def save(self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the state on disk; see `share_of_time`.

        `meta` is JSON data, whose floats and integers of any size are restored exactly; arrays are of
        numbers, booleans or fixed-width strings.
        """
        began = time.monotonic()
        if began < self._not_before:
            return
        text = json.dumps({"version": _VERSION, "meta": dict(meta)}).encode()
        members = {_ARRAY + name: _by_rows(array) for name, array in arrays.items()}
        if any(array.dtype.hasobject for array in members.values()):
            raise ValueError("a checkpoint holds numbers and text of a fixed width, not Python objects")
        disk.make_folder(self.path.parent)
        with replacing(self.path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in {_META: np.frombuffer(text, np.uint8), **members}.items():
                _write(archive, f"{name}.npy", array)
        ended = time.monotonic()
        self._not_before = ended + (ended - began) * (1.0 / self._share_of_time - 1.0)

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return ``(meta, arrays)`` as last saved, or None; large arrays are kept in files.

        `StoreError` if the file is damaged or from another version: saving is atomic, so a kill
        cannot cause this, and silently starting over would hide it.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                content = parse_json(read_npy(archive.read(f"{_META}.npy")).tobytes())
                if content["version"] == _VERSION:
                    arrays = {
                        name.removeprefix(_ARRAY): _read(archive, f"{name}.npy", self.path.parent)
                        for name in names
                        if name != _META
                    }
                    return content["meta"], arrays
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
            pass
        raise StoreError(
            f"the checkpoint {self.path} is damaged or from another version", "delete it to start over"
        )

    def clear(self) -> None:
        """Remove the state after the run has finished."""
        disk.unlink(self.path)


def _by_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a C-ordered copy, since `_read` does not support Fortran order."""
    return array if array.flags.c_contiguous or not array.flags.f_contiguous else np.ascontiguousarray(array)


def _write(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(name, "w", force_zip64=True) as member:
        for piece in npy_pieces(array):
            for lo in range(0, len(piece), _COPIED):
                member.write(piece[lo : lo + _COPIED])
                give_back_pages(np.frombuffer(piece, np.uint8)[lo : lo + _COPIED])


def _read(archive: zipfile.ZipFile, name: str, folder: Path) -> NDArray[Any]:
    """Return an array; large arrays as copies in a file of the folder, see `file_array`."""
    n_bytes = archive.getinfo(name).file_size
    if n_bytes < _LARGE:
        return read_npy(archive.read(name))
    with archive.open(name) as stream:
        size = read_size(cast(BinaryIO, stream))
        if size.nbytes != n_bytes - stream.tell():
            raise ValueError(f"{name} is no array of shape {size.shape}")
        array = file_array(size.shape, size.dtype, folder)
        content = array.reshape(-1).view(np.uint8)
        for lo in range(0, len(content), _COPIED):
            piece = stream.read(min(_COPIED, len(content) - lo))
            content[lo : lo + len(piece)] = np.frombuffer(piece, np.uint8)
            give_back_pages(content[lo : lo + len(piece)])
        if stream.read(1):  # reading to the end checks the checksum
            raise ValueError(f"{name} is longer than its header says")
    return array
