"""Files on disk that Arrow reads, whatever the bytes of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigmc.lazy import LazyModule

pa = LazyModule("pyarrow")


def arrow_file(path: Path | str) -> Any:
    """Open a file for Arrow, which takes a text as a name only if it is Unicode."""
    return pa.OSFile(os.fsencode(path))
