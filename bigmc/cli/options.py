"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bigmc.cli import engines
from bigmc.cli.arguments import Working

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
NewModel = Annotated[str, typer.Option("--to", help="Model to make.", show_default=False)]


def workers(threads: int | None, scheduler: str | None, scheduler_file: Path | None) -> Any:
    """Return the engine to work with, which is opened and closed by a ``with`` statement."""
    return engines.workers(Working(threads=threads, scheduler=scheduler, scheduler_file=scheduler_file))
