"""The workers that a command uses: threads of this process, or a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from bigmc.cli.arguments import Working


def engine_of(threads: int | None) -> Any:
    """Return the engine of so many threads."""
    from bigmc.engine import ThreadEngine

    return ThreadEngine(threads)


@contextmanager
def workers(asked: Working) -> Iterator[Any]:
    """Yield the engine to work with; a connection to a scheduler is closed at the end."""
    cluster = asked.scheduler if asked.scheduler_file is None else asked.scheduler_file
    if cluster is None:
        yield engine_of(asked.threads)
        return
    if [asked.threads, asked.scheduler, asked.scheduler_file].count(None) < 2:
        raise typer.BadParameter("give one of --threads, --scheduler and --scheduler-file")
    from bigmc.engine import opened

    with opened(cluster) as engine:
        # A lost connection is reported in one line, by the command.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield engine
