"""Numba kernels: arrays in, arrays out; they know neither files nor objects.

Compiled kernels are kept on disk. Numba puts them beside the source or in the user's cache folder and
fails when neither can be written (a read-only install run by a service account), so a folder that can
is chosen before the first kernel is declared. Numba compiles a kernel anew when the kernel's own file has
changed: whoever changes what other files call (`simd`, `losses`, `penalties`, `loss_columns`) touches those.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def _choose_cache() -> None:
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    home_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    nearest = next(folder for folder in (home_cache, *home_cache.parents) if folder.exists())
    if os.access(Path(__file__).parent, os.W_OK) or os.access(nearest, os.W_OK):
        return
    fallback = Path(tempfile.gettempdir()) / f"bigmc-kernels-{os.getuid()}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return
    # Compiled code is executed: only a folder that is this user's own may hold it.
    if fallback.stat().st_uid != os.getuid() or fallback.is_symlink():
        return
    os.environ["NUMBA_CACHE_DIR"] = str(fallback)  # read when numba is first imported, below this package


_choose_cache()
