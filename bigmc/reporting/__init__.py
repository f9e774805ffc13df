"""A page that tells a person what a model is and how good: one file, without scripts and network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigmc.errors import DataError
from bigmc.model import Model
from bigmc.reporting.page import page
from bigmc.store.atomic import write_atomic
from bigmc.store.object_store import is_remote, read_file

__all__ = ["check_target", "write_report"]

_BEGIN = b"<!DOCTYPE html>"


def check_target(to: str | Path) -> None:
    """Check that a page can be written to a path or address without destroying something else.

    Raises
    ------
    DataError
        If its folder does not exist, or there is something that is no HTML page.
    """
    if not is_remote(to):
        if Path(to).is_dir():
            raise DataError(f"{to} is a folder", "give the path of a file with --to")
        if not Path(to).parent.is_dir():
            raise DataError(f"there is no folder {Path(to).parent}", "make it, or give another --to")
    if not _is_free(to):
        raise DataError(f"{to} exists and is no HTML page", "delete it, or give another --to")


def write_report(
    model: Model,
    target: Path,
    strongest: Mapping[str, Any],
    evaluated: Mapping[str, Any] | None = None,
    file_bytes: int | None = None,
) -> int:
    """Write the page of a model and return its size; equal models give equal bytes.

    Parameters
    ----------
    model : Model
    target : Path
        File to make or, if it is a page, to replace.
    strongest, evaluated, file_bytes
        See :func:`bigmc.reporting.page.page`.

    Raises
    ------
    DataError
        As `check_target`.
    """
    check_target(target)
    content = page(model, strongest, evaluated, file_bytes).encode()
    write_atomic(target, content)
    return len(content)


def _is_free(to: str | Path) -> bool:
    """Return whether there is nothing, or a page."""
    if is_remote(to):
        content = read_file(to)
    elif Path(to).is_file():
        with open(to, "rb") as file:
            content = file.read(len(_BEGIN))
    else:
        return not Path(to).exists()
    return content is None or content.lower().startswith(_BEGIN.lower())
