"""Commands that make a dataset, describe or verify files, and compile kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import click

from bigmc.cli.arguments import Shown, Working, as_command, given
from bigmc.cli.engines import working
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show
from bigmc.options.declare import argument, option, required
from bigmc.options.ingest import IngestKeywords, IngestOptions


@dataclass(frozen=True, kw_only=True)
class Ingest(Working):
    """Arguments of `bigmc ingest`; with `append`, only the given options are compared."""

    source: list[str] = argument("Files, folders, globs, addresses, or - for standard input.")
    to: str = required("Dataset to write.")
    options: IngestKeywords = given(IngestOptions)
    append: bool = option(False, "Add new files to an existing dataset, with its options.")
    part: str | None = option(
        None,
        "Do only part I (from 0) of N, in one of N processes; the command without --part then finishes.",
        metavar="I/N",
    )


@as_command
def ingest(asked: Ingest) -> None:
    """Turn text, CSV, JSONL, Parquet or svmlight files into a dataset."""
    from bigmc import api

    with working(asked) as work:
        ingest: Any = functools.partial(
            api.ingest if asked.part is None else api.ingest_part,
            asked.source,
            asked.to,
            append=asked.append,
            **work.means,
            **asked.options,
        )
        if asked.part is not None:
            result = {"part": asked.part, **ingest(part=_parse_part(asked.part))}
        else:
            before = api.open_dataset(asked.to).n_samples if asked.append else 0
            dataset = ingest()
            added = dataset.n_samples - before
            if not added:
                work.screen.say(f"nothing to append: {asked.to} already has every source")
            for doubt in api.doubts_about_labels(dataset):
                work.screen.say(f"note: {doubt}")
            result = dataset.info() | ({"n_appended": added} if asked.append else {})
    show(result | work.engine.usage(), asked)


@dataclass(frozen=True, kw_only=True)
class Place(Shown):
    """Arguments of commands that describe or verify a dataset or a model."""

    path: str = argument("Dataset or model.")


@as_command
def info(asked: Place) -> None:
    """Describe a dataset or a model."""
    from bigmc import api

    with Screen():
        result = api.info(asked.path)
    show(result, asked)


@as_command
def verify(asked: Place) -> None:
    """Check every byte of a dataset or a model against its manifest."""
    from bigmc import api

    with Screen():
        problems = api.verify(asked.path)
        show({"path": asked.path, "sound": not problems, "problems": problems}, asked)
        if problems:
            raise click.exceptions.Exit(1)  # inside: metrics and log say that it failed


@as_command
def warm(asked: Shown) -> None:
    """Compile all kernels now, for example while building an image."""
    from bigmc import api

    with Screen() as screen:
        result = api.warm(progress=screen.update)
    show(result, asked)


def _parse_part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise click.BadParameter(f"{text!r} is not a part; write it like 0/8, up to 7/8")
    return int(number), int(count)
