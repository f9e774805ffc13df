"""Record the sums of the present code."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from golden.courses import GROUPS, course_digests
from golden.products import digests, environment, make

SUMS = Path(__file__).with_name("sums.json")


def main() -> None:
    """Make everything in a folder of its own and write the sums."""
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        make(Path())
        found = {"environment": environment(), "files": digests(Path())}
        found["courses"] = {group: course_digests(group) for group in GROUPS}
    SUMS.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found['files'])} files")


if __name__ == "__main__":
    main()
