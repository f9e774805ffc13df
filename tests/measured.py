"""Programs in processes of their own, which say one number: what tests of the memory limit measure with."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import bigmc


def said_number(
    program: str, *words: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> int:
    """Return the number that a program prints when it is run in a folder with these words."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1]), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
