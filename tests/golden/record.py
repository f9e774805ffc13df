"""Record the sums of the present code on this kind of processor, beside those of others."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from golden.products import digests, environment, make

SUMS = Path(__file__).with_name("sums")
"""Folder with one file for each kind of processor: compilers give each its own order of additions."""


def sums_file() -> Path:
    """Return the file of this processor's kind, whether or not there is one."""
    here = environment()
    return SUMS / f"{here['machine']}-{here['processor']}-{here['instructions']}.json"


def recorded_here() -> Any:
    """Return the sums recorded on this kind of processor with these packages; else the test is skipped."""
    here, file = environment(), sums_file()
    if not file.exists():
        pytest.skip(f"no sums were recorded on a {file.stem}: python -m golden.record")
    sums = json.loads(file.read_text())
    others = {key: here[key] for key, value in sums["environment"].items() if here[key] != value}
    if others:
        pytest.skip(f"the sums were recorded with another {', '.join(others)}: python -m golden.record")
    return sums


def write(sums: str, file: Path) -> None:
    """Write the sums of a kind of processor; where they have changed, those of other kinds are removed.

    They are of older code then, or of older packages, and can be recorded on such processors only.
    """
    if file.exists() and file.read_text() != sums:
        for other in file.parent.glob("*.json"):
            other.unlink()
    file.write_text(sums)


def main() -> None:
    """Make everything in a folder of its own; write the sums, the solvers' steps, and the store's calls."""
    sys.path.append(str(Path(__file__).parents[1] / "solvers"))
    from courses import GROUPS, course_digests, record_courses
    from store.calls import record_calls

    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        make(Path())
        found = {"environment": environment(), "files": digests(Path())}
        record_courses()
        (Path(name) / "calls").mkdir()
        record_calls(Path(name) / "calls")
        found["courses"] = {group: course_digests(group) for group in GROUPS}
    write(json.dumps(found, indent=1) + "\n", sums_file())
    print(f"{len(found['files'])} files")


if __name__ == "__main__":
    main()
