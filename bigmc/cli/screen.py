"""Progress of a command: a bar on a terminal, lines in a log, JSON for a program, or nothing."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from bigmc import progress as messages
from bigmc.budget import current_memory, format_bytes
from bigmc.cli.metrics import refuse_other_file, write_metrics
from bigmc.cli.settings import LogFormat, current
from bigmc.errors import DataError
from bigmc.printable import finite, printable, printable_json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES = 5.0
"""Seconds between progress lines where no bar can be drawn, as in a batch job's log."""

TOLD = "told as an event"
"""Note on an error that is already in the log, so that it is not reported again."""


@dataclass
class Course:
    """Progress of a stage: the share of the work done or, in training, of the decrease of the gap.

    The gap falls roughly geometrically, so its decrease is measured on a logarithmic scale.
    """

    started: float
    first_gap: float | None = None
    done: int = 0

    def share(self, message: messages.Progress) -> float:
        """Return the finished share of the stage, from 0 to 1."""
        share = message.done / message.total if message.total else 0.0
        gap, tol = message.facts.get("gap", math.nan), message.facts.get("tol", math.nan)
        if gap > 0 and tol > 0 and math.isfinite(gap):
            if self.first_gap is None:
                self.first_gap = gap
            if gap <= tol:
                return 1.0
            way = math.log(self.first_gap / tol) if self.first_gap > tol else 0.0
            share = max(share, math.log(self.first_gap / gap) / way) if way else share
        return min(max(share, 0.0), 1.0)

    def seconds_left(self, share: float, now: float) -> float | None:
        """Return the estimated seconds left; None at the first message, when no time is known."""
        elapsed = now - self.started
        return elapsed * (1 - share) / share if share and elapsed > 0 else None


class Screen:
    """Shows the progress of a command, as its settings say."""

    def __init__(self) -> None:
        self._settings = current.get()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_lines: dict[str, float] = {}
        self._courses: dict[str, Course] = {}
        self._started = time.monotonic()
        self._last: messages.Progress | None = None

    def __enter__(self) -> Screen:
        if self._settings.metrics is not None:
            refuse_other_file(self._settings.metrics)
        if self._settings.log is LogFormat.JSON:
            self._write_event("start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        if self._settings.log is LogFormat.JSON:
            told = error is None or isinstance(error, click.exceptions.Exit)  # whose result says why
            self._write_event("end" if error is None else "error", message=None if told else str(error))
            if error is not None:
                error.add_note(TOLD)
        if self._settings.metrics is not None:
            seconds = time.monotonic() - self._started
            with (
                nullcontext() if error is None else suppress(DataError)
            ):  # report the error that ended the run
                write_metrics(self._settings.metrics, self._settings.command, seconds, self._last, error)

    def say(self, line: str) -> None:
        """Write a message line."""
        if self._settings.log is LogFormat.JSON:
            self._write_event("message", message=line)
        elif not self._settings.quiet:
            print(printable(line), file=sys.stderr)

    def update(self, message: messages.Progress) -> None:
        """Show a progress message."""
        now = time.monotonic()
        course = self._courses.get(message.stage)
        if course is None or message.done < course.done:  # a repeated stage starts again
            course = self._courses[message.stage] = Course(now)
        course.done = message.done
        share, self._last = course.share(message), message
        if self._settings.log is LogFormat.JSON:
            if self._is_due(message, now):
                self._write_progress(message, share, course.seconds_left(share, now))
        elif self._settings.quiet:
            return
        elif sys.stderr.isatty():
            self._update_bar(message, share)
        elif self._is_due(message, now):
            self._write_line(message, course.seconds_left(share, now))

    def _is_due(self, message: messages.Progress, now: float) -> bool:
        """Return whether to write a line now: at the end of a stage, and of each stage every few seconds."""
        finished = message.total > 0 and message.done >= message.total
        last = self._last_lines.get(message.stage, -math.inf)
        if not finished and now - last < SECONDS_BETWEEN_LINES:
            return False
        self._last_lines[message.stage] = now
        return True

    def _update_bar(self, message: messages.Progress, share: float) -> None:
        if self._bars is None:  # at the first message: most commands have none
            self._bars = _bars()
            self._bars.start()
        bars = self._bars
        if message.stage not in self._tasks:
            self._tasks[message.stage] = bars.add_task(printable(message.stage), total=None, facts="")
        known = message.total > 0 or "tol" in message.facts
        bars.update(
            self._tasks[message.stage],
            completed=share,
            total=1.0 if known else None,
            facts=describe(message.facts),
        )

    def _write_line(self, message: messages.Progress, left: float | None) -> None:
        done = f"{message.done:,}/{message.total:,} {message.unit}" if message.total else f"{message.done:,}"
        remaining = f", {left:.0f} s left" if left is not None and left >= 1 else ""
        facts = describe(message.facts)
        line = f"{message.stage}: {done}{remaining}{', ' if facts else ''}{facts}"
        print(printable(line), file=sys.stderr)

    def _write_progress(self, message: messages.Progress, share: float, left: float | None) -> None:
        self._write_event(
            "progress",
            step=message.stage,
            done=message.done,
            total=message.total or None,
            unit=message.unit,
            share=round(share, 4),
            seconds_left=None if left is None else round(left, 1),
            **message.facts,
        )

    def _write_event(self, event: str, **facts: Any) -> None:
        """Write an event as a line of JSON; `facts` do not replace the common fields."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "event": event,
            "command": self._settings.command,
            "seconds": round(time.monotonic() - self._started, 3),
            "memory_bytes": current_memory(),
        }
        entry |= {
            name: finite(value) for name, value in facts.items() if value is not None and name not in entry
        }
        print(printable_json(json.dumps(entry, ensure_ascii=False)), file=sys.stderr, flush=True)


def describe(facts: Mapping[str, float]) -> str:
    """Return figures for a person: ``gap 0.00123  1,200,000 rows/s``."""
    return "  ".join(_described(name, _figure(name, value)) for name, value in facts.items())


def _described(name: str, figure: str) -> str:
    return f"{figure} {name}" if name.endswith("/s") else f"{name} {figure}"


def _figure(name: str, value: float) -> str:
    if "bytes" in name:
        return format_bytes(value)
    if not math.isfinite(value):
        return f"{value:g}"
    whole = abs(value) >= 100 and (abs(value) >= 10_000 or float(value).is_integer())
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def _bars() -> Progress:
    """Return bars on the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        console=Console(stderr=True),
    )
