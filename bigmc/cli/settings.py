"""What a command says while it works, and where: options that every command has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

ENVIRONMENT = "BIGMC"
"""Prefix of variables that give options: ``BIGMC_MEMORY``, or ``BIGMC_PREDICT_SPLIT`` for one command."""


class LogFormat(Enum):
    """How progress is written: for a person, or a JSON object a line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Settings:
    """What a command says while it works.

    Attributes
    ----------
    command : str
        Its name, such as ``train sparse``.
    quiet : bool
        Say nothing but results and errors.
    metrics : Path or None
        File for the figures of the run in OpenMetrics text.
    """

    command: str = ""
    quiet: bool = False
    log: LogFormat = LogFormat.TEXT
    metrics: Path | None = None


_DEFAULT = Settings()
current: ContextVar[Settings] = ContextVar("settings", default=_DEFAULT)
"""Settings of the command that runs."""

_Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", metavar="", envvar="BIGMC_QUIET", help="Say nothing but results and errors."
    ),
]
_Log = Annotated[
    LogFormat,
    typer.Option("--log", envvar="BIGMC_LOG", help="Progress for a person, or as a JSON object a line."),
]
_Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        envvar="BIGMC_METRICS",
        help="Write the figures of the run to a file, too, as OpenMetrics text.",
    ),
]
_OPTIONS = (("quiet", _Quiet, False), ("log", _Log, LogFormat.TEXT), ("metrics", _Metrics, None))


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of `Settings` beside its own."""
    own = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, kind, default in _OPTIONS
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name, _, _ in _OPTIONS}
        name = typer.main.get_command_name(command.__name__).replace("train-", "train ")
        token = current.set(Settings(name, **given))
        try:
            command(**values)
        finally:
            current.reset(token)

    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {
        parameter.name: parameter.annotation for parameter in (*own.parameters.values(), *more)
    } | {"return": None}
    return run
