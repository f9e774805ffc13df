"""Options of every command: what it prints while it works, and where."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click

ENVIRONMENT = "BIGMC"
"""Prefix of environment variables: ``BIGMC_MEMORY``, or ``BIGMC_PREDICT_SPLIT`` for one command."""


class LogFormat(Enum):
    """Format of progress messages: plain text, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Settings:
    """What a command, such as ``train sparse``, prints while it works.

    If `quiet`, only results and errors. `metrics` is a file for the figures of the run in OpenMetrics
    text.
    """

    command: str = ""
    quiet: bool = False
    log: LogFormat = LogFormat.TEXT
    metrics: Path | None = None


_DEFAULT = Settings()
current: ContextVar[Settings] = ContextVar("settings", default=_DEFAULT)
"""Settings of the running command."""


def settings_options() -> list[click.Parameter]:
    """Return the options behind `Settings`."""
    return [
        click.Option(
            ["quiet", "--quiet", "-q"],
            is_flag=True,
            default=False,
            envvar="BIGMC_QUIET",
            show_envvar=True,
            help="Print only results and errors.",
        ),
        click.Option(
            ["log", "--log"],
            type=click.Choice([form.value for form in LogFormat]),
            default=LogFormat.TEXT.value,
            show_default=True,
            envvar="BIGMC_LOG",
            show_envvar=True,
            help="Format of progress: text, or one JSON object per line.",
        ),
        click.Option(
            ["metrics", "--metrics"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="BIGMC_METRICS",
            show_envvar=True,
            help="Write the figures of the run to this file as OpenMetrics text.",
        ),
    ]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that runs with the settings from its options."""

    def run(*, quiet: bool, log: str, metrics: Path | None, **values: Any) -> None:
        name = _name(click.get_current_context())
        token = current.set(Settings(name, quiet, LogFormat(log), metrics))
        try:
            command(**values)
        finally:
            current.reset(token)

    return run


def _name(context: click.Context) -> str:
    """Return the name of a command below the program, such as ``train sparse``."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)
