"""Numba kernels: arrays in, arrays out; they know neither files nor objects.

Compiled kernels are kept on disk. Numba puts them beside the source or in the user's cache folder and
fails when neither can be written (a read-only install run by a service account), so a folder that can
is chosen before the first kernel is declared, with links to the files of a ``NUMBA_CACHE_DIR`` that cannot.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path


def _choose_cache() -> None:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is not None:
        if os.access(_nearest(Path(given)), os.W_OK):
            return
    else:
        home_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if os.access(Path(__file__).parent, os.W_OK) or os.access(_nearest(home_cache), os.W_OK):
            return
    fallback = Path(tempfile.gettempdir()) / f"bigmc-kernels-{os.getuid()}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return
    # Compiled code is executed: only a folder that is this user's own may hold it.
    if fallback.stat().st_uid != os.getuid() or fallback.is_symlink():
        return
    if given is not None:
        _link_files(Path(given).resolve(), fallback)
    os.environ["NUMBA_CACHE_DIR"] = str(fallback)  # read when numba is imported, also by child processes
    if "numba.core.config" in sys.modules:  # imported before this package
        sys.modules["numba.core.config"].CACHE_DIR = str(fallback)  # type: ignore[attr-defined]


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists, as far as this user may look."""
    whole = folder.absolute()
    return next(place for place in (whole, *whole.parents) if os.path.exists(place))


def _link_files(cache: Path, own: Path) -> None:
    """Link the files of a cache that may only be read, such as an image's, into one that may be written.

    Numba uses no folder that it cannot write, even if the kernels are in it. It replaces files, so links too.
    """
    for folder, _, names in os.walk(cache):
        place = own / Path(folder).relative_to(cache)
        place.mkdir(mode=0o700, exist_ok=True)
        for name in names:
            with suppress(FileExistsError):
                (place / name).symlink_to(Path(folder, name))


_choose_cache()
