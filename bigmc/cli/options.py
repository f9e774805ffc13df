"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        envvar="BIGMC_MEMORY",
        help="Memory limit above the bare process, like 512MB or 2GB.",
        metavar="SIZE",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", envvar="BIGMC_THREADS", min=1, help="Threads; by default all processors."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        envvar="BIGMC_SCHEDULER",
        metavar="ADDRESS",
        help="Work on a Dask cluster that sees the same files, not on threads; --memory is for each process.",
    ),
]
SchedulerFile = Annotated[
    Path | None,
    typer.Option(
        "--scheduler-file",
        envvar="BIGMC_SCHEDULER_FILE",
        metavar="FILE",
        help="The same; the file its scheduler wrote.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="csv, tsv, jsonl, parquet or svmlight; by default from the name."),
]
TrainData = Annotated[str, typer.Argument(metavar="DATASET", help="Dataset.", show_default=False)]
NewModel = Annotated[str, typer.Option("--to", help="Model to make.", show_default=False)]
TrainSplit = Annotated[str, typer.Option("--split", help="Split to train on.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace another file at --to, which is refused otherwise."),
]
OnBadRow = Annotated[
    Literal["fail", "quarantine"],
    typer.Option("--on-bad-row", help="fail: stop at it. quarantine: set it aside."),
]


def engine_of(threads: int | None) -> Any:
    """Return the engine of so many threads."""
    from bigmc.engine import ThreadEngine

    return ThreadEngine(threads)


@contextmanager
def workers(threads: int | None, scheduler: str | None, scheduler_file: Path | None) -> Iterator[Any]:
    """Yield the engine to work with; a connection to a scheduler is closed at the end."""
    cluster = scheduler if scheduler_file is None else scheduler_file
    if cluster is None:
        yield engine_of(threads)
        return
    if [threads, scheduler, scheduler_file].count(None) < 2:
        raise typer.BadParameter("give one of --threads, --scheduler and --scheduler-file")
    from bigmc.engine import opened

    with opened(cluster) as engine:
        # A lost connection is told in one line, by us.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield engine
