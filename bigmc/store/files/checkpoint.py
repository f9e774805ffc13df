"""A solver's state in one file: replaced whole, read without pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import StoreError
from bigmc.store.files import disk
from bigmc.store.files.atomic import replacing
from bigmc.store.files.npy import read_npy
from bigmc.store.files.untrusted import parse_json

_FILE = "checkpoint.npz"
_META = "meta"
_ARRAY = "array."
_VERSION = 1


class FileCheckpoint:
    """Keeps the last saved state in a folder; a kill while saving leaves the one before.

    Parameters
    ----------
    folder : Path or str
        Made when first saved to.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / _FILE

    def save(self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the state on disk.

        Parameters
        ----------
        meta : dict
            What JSON can hold; floats and integers of any size come back to the bit.
        arrays : dict of str to array
            Of numbers, booleans or fixed-width strings.
        """
        text = json.dumps({"version": _VERSION, "meta": dict(meta)}).encode()
        members = {_ARRAY + name: array for name, array in arrays.items()}
        if any(array.dtype.hasobject for array in members.values()):
            raise ValueError("a checkpoint holds numbers and text of a fixed width, not Python objects")
        disk.make_folder(self.path.parent)
        with replacing(self.path) as file:
            everything: dict[str, Any] = {_META: np.frombuffer(text, np.uint8), **members}
            np.savez(file, **everything)

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return ``(meta, arrays)`` as last saved, or None if nothing was.

        Raises
        ------
        StoreError
            If the file is damaged or of another version. Saving is atomic, so this is no trace of a
            kill, and starting over silently would hide it.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                content = parse_json(read_npy(archive.read(f"{_META}.npy")).tobytes())
                if content["version"] == _VERSION:
                    arrays = {
                        name.removeprefix(_ARRAY): read_npy(archive.read(f"{name}.npy"))
                        for name in names
                        if name != _META
                    }
                    return content["meta"], arrays
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
            pass
        raise StoreError(
            f"the checkpoint {self.path} is damaged or of another version", "delete it to start over"
        )

    def clear(self) -> None:
        """Remove the state, as after the run it belongs to has finished."""
        disk.unlink(self.path)
