"""Record the sums of the present code on this kind of processor, beside those of others."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from golden.courses import GROUPS, course_digests
from golden.products import digests, environment, make

SUMS = Path(__file__).with_name("sums")
"""Folder with one file for each kind of processor: compilers give each its own order of additions."""


def sums_file() -> Path:
    """Return the file of this processor's kind, whether or not there is one."""
    here = environment()
    return SUMS / f"{here['machine']}-{here['processor']}-{here['instructions']}.json"


def write(sums: str, file: Path) -> None:
    """Write the sums of a kind of processor; where they have changed, those of other kinds are removed.

    They are of older code then, or of older packages, and can be recorded on such processors only.
    """
    if file.exists() and file.read_text() != sums:
        for other in file.parent.glob("*.json"):
            other.unlink()
    file.write_text(sums)


def main() -> None:
    """Make everything in a folder of its own and write the sums."""
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        make(Path())
        found = {"environment": environment(), "files": digests(Path())}
        found["courses"] = {group: course_digests(group) for group in GROUPS}
    write(json.dumps(found, indent=1) + "\n", sums_file())
    print(f"{len(found['files'])} files")


if __name__ == "__main__":
    main()
