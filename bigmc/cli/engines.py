"""The workers that a command uses: threads of this process, or a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import click
from click.core import ParameterSource

from bigmc.cli.arguments import Working
from bigmc.cli.screen import Screen
from bigmc.progress import ProgressCallback

_PLACES: Sequence[ParameterSource | None] = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
)
"""Where options are set, as ``docs/cli.md`` orders them; the last is the file of ``--config``."""


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
    named = _named_first({name: getattr(asked, name) for name in ("threads", "scheduler", "scheduler_file")})
    if len(named) > 1:
        raise click.BadParameter("give only one of --threads, --scheduler and --scheduler-file")
    if not named or "threads" in named:
        from bigmc.engine import ThreadEngine

        yield ThreadEngine(named.get("threads"))
        return
    from bigmc.engine import opened

    with opened(*named.values()) as engine:
        # A lost connection is reported in one line, by the command.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield engine


def _named_first(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the given ones of several options from the first place that sets any of them.

    So ``--scheduler`` on the command line is not in conflict with ``BIGMC_THREADS`` of an image.
    """
    source_of = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if value is not None}
    places = {name: _PLACES.index(source_of(name)) for name in given}
    return {name: value for name, value in given.items() if places[name] == min(places.values())}
