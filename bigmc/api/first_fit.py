"""The program that compiles the kernels of a first fit in a second process, while the first one computes.

It does what a fit does, its last steps first (`bigmc.engine.ahead`), and ends when its input is closed, also
by the end of the process that started it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bigmc.api.data import ingest
from bigmc.api.fitting import fit
from bigmc.api.inference import predict
from bigmc.api.training import train
from bigmc.api.warm import write_rows, write_texts
from bigmc.store.files import disk

MEMORY = "200MB"
TRIES = 100
"""Most attempts to remove the folder."""


def compile_for(kinds: Sequence[str], folder: Path) -> None:
    """Do on a few artificial rows what a fit does: its last steps first, then all of it.

    Parameters
    ----------
    kinds : sequence of {"numbers", "texts"}
        Kinds of the fit's features.
    folder : Path
        An empty folder.
    """
    rows = write_rows(folder / "rows.csv")
    make = partial(ingest, rows, label="label", memory_limit=MEMORY)
    finish = partial(fit, label="label", memory_limit=MEMORY)
    if "numbers" in kinds:
        make(folder / "numbers", dense=["x", "y"])
        train("boost", folder / "numbers", folder / "boost.model", n_rounds=2, memory_limit=MEMORY)
        predict(folder / "boost.model", rows, folder / "boost.parquet", scores=True, memory_limit=MEMORY)
        finish(rows, folder / "numbers.model", dense=["x", "y"])
    if "texts" in kinds:
        make(folder / "texts", text="text", analyzer="char_wb", ngrams=(3, 5))
        finish(write_texts(folder / "texts.jsonl"), folder / "texts.model", text="text")


def _end_with_input(folder: str) -> None:
    """Wait for the end of the input, remove the folder and end, whatever the main thread does."""
    sys.stdin.buffer.read()
    for _ in range(TRIES):  # the main thread may write once more
        with suppress(OSError):
            disk.clear(Path(folder))
        if not os.path.exists(folder):
            break
    os._exit(0)


if __name__ == "__main__":
    # Without its folder the main thread fails: nobody waits for it then.
    with (
        suppress(Exception),
        TemporaryDirectory(prefix="bigmc-first-fit-", ignore_cleanup_errors=True) as name,
    ):
        threading.Thread(target=_end_with_input, args=(name,), daemon=True).start()
        compile_for(sys.argv[1:], Path(name))
