"""The workers that a command uses: threads of this process, or a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import click

from bigmc.cli.arguments import Working
from bigmc.cli.screen import Screen
from bigmc.progress import ProgressCallback


class Means(TypedDict):
    """Arguments common to all functions that work on data."""

    memory_limit: str | None
    engine: Any
    progress: ProgressCallback


@dataclass(frozen=True)
class Session:
    """A running command: its engine, memory limit, and progress display."""

    engine: Any
    screen: Screen
    memory: str | None

    @property
    def means(self) -> Means:
        """Keyword arguments for the API function."""
        return {"memory_limit": self.memory, "engine": self.engine, "progress": self.screen.update}


@contextmanager
def working(asked: Working) -> Iterator[Session]:
    """Yield the session of a command, as set by its options."""
    with Screen() as screen, workers(asked) as engine:
        yield Session(engine, screen, asked.memory)


@contextmanager
def workers(asked: Working) -> Iterator[Any]:
    """Yield the engine to work with; a connection to a scheduler is closed at the end."""
    cluster = asked.scheduler if asked.scheduler_file is None else asked.scheduler_file
    if cluster is None:
        from bigmc.engine import ThreadEngine

        yield ThreadEngine(asked.threads)
        return
    if [asked.threads, asked.scheduler, asked.scheduler_file].count(None) < 2:
        raise click.BadParameter("give only one of --threads, --scheduler and --scheduler-file")
    from bigmc.engine import opened

    with opened(cluster) as engine:
        # A lost connection is reported in one line, by the command.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield engine
