"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory", help="Memory limit above the bare process, like 512MB or 2GB.", metavar="SIZE"),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads; by default all processors.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Scan the shards on a Dask cluster, not on threads."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="csv, tsv, jsonl, parquet or svmlight; by default from the name."),
]
TrainData = Annotated[str, typer.Argument(metavar="DATASET", help="Dataset.", show_default=False)]
NewModel = Annotated[str, typer.Option("--to", help="Model to make.", show_default=False)]
TrainSplit = Annotated[str, typer.Option("--split", help="Split to train on.")]
OnBadRow = Annotated[
    Literal["fail", "quarantine"],
    typer.Option("--on-bad-row", help="fail: stop at it. quarantine: set it aside."),
]


def engine_of(threads: int | None) -> Any:
    """Return the engine of so many threads."""
    from bigmc.engine import ThreadEngine

    return ThreadEngine(threads)


@contextmanager
def workers(threads: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the engine to train with; a connection to a scheduler is closed at the end."""
    if scheduler is None:
        yield engine_of(threads)
        return
    if threads is not None:
        raise typer.BadParameter("give --threads or --scheduler, not both")
    from bigmc.engine.dask import DaskEngine

    with DaskEngine(scheduler) as engine:
        yield engine
