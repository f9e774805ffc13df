"""Zarr v3 groups: folders with attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bigmc.store.files import disk
from bigmc.store.files.atomic import write_atomic
from bigmc.store.files.layout import GROUP, FileEntry, file_entry


def write_group(
    folder: Path,
    root: Path,
    attributes: Mapping[str, Any],
    write: Callable[[Path, bytes], None] = write_atomic,
) -> FileEntry:
    """Make `folder` a zarr group and return its file, named relative to `root`.

    `write` writes the file; `bigmc.store.files.disk.write_file` is enough in a folder without readers.
    """
    disk.make_folder(folder)
    fields = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    path = folder / GROUP
    write(path, json.dumps(fields, indent=1, sort_keys=True).encode())
    return file_entry(path, root)
