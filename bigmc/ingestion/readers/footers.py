"""Footers of Parquet files, tried in a forked process: a damaged one may end the process that reads it."""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections.abc import Sequence

import pyarrow.parquet as pq

from bigmc.errors import DataError

_SECONDS = 60
"""After so long the trial is given up, and the files are taken as sound."""


def check_footers(paths: Sequence[str]) -> None:
    """Read every footer in a forked process, which tells the number of each file before it reads it.

    Raises
    ------
    DataError
        If the process was ended by a signal; what it could not read in any other way is refused later.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks while there are threads: none is used
        process = os.fork()
    if process == 0:
        _read_all(paths, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as progress:
        told = progress.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGALRM:
        path = paths[max(0, told.count(b"\n") - 1)]
        raise DataError(
            f"{path}: not a readable Parquet file (its footer crashes the library that reads it)",
            "check it, or fetch it anew",
        )


def _read_all(paths: Sequence[str], writer: int) -> None:
    """Read the footers in the forked process, which ends with it, silently."""
    try:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for path in paths:
            os.write(writer, b"\n")
            _read(path)
    finally:
        os._exit(0)


def _read(path: str) -> None:
    try:
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            entry = metadata.row_group(group)
            for i in range(entry.num_columns):
                entry.column(i).total_uncompressed_size  # noqa: B018 - reading it is the trial
    except Exception:
        return  # refused with its reason where the file is read
