"""Commands that make a dataset and look at what is there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import typer

from bigmc.cli.arguments import Raw, Shown, Working, as_command
from bigmc.cli.engines import workers
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show
from bigmc.options.declare import argument, option, required


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What of the sources becomes of the dataset; what is not given has a default, or is as it was."""

    text: list[str] | None = option(None, "Text column; may be repeated.")
    label: str | None = option(None, "Label column; where it holds lists, labels are sets.")
    label_separator: str | None = option(None, "Text between the labels of a row, where it has several.")
    weight: str | None = option(None, "Number of at least 0: how much the row counts in training.")
    categorical: list[str] | None = option(None, "Column hashed as name=value; may be repeated.")
    numeric: list[str] | None = option(None, "Number hashed by its column's name; may be repeated.")
    dense: list[str] | None = option(None, "Number kept as a feature of its own; may be repeated.")
    keep: list[str] | None = option(None, "Column copied along with the rows; may be repeated.")
    hash_bits: int | None = option(None, "Hash to 2^BITS buckets.", shown="18")
    ngrams: str | None = option(None, "Shortest and longest n-gram.", shown="1-2")
    analyzer: str | None = option(None, "word, char or char_wb.", shown="word")
    lowercase: bool | None = option(
        None, "Lowercase texts before hashing.", "--lowercase/--no-lowercase", shown="lowercase"
    )
    standardize: bool | None = option(None, "Dense features become (x - mean) / deviation.", "--standardize")
    fourier: int | None = option(None, "Turn dense features into so many random Fourier ones.")
    gamma: float | None = option(None, "Of their Gaussian kernel; by default 1 / number of dense features.")
    missing: Literal["refuse", "keep"] | None = option(
        None, "Empty, null or NaN in --dense columns: a bad row, or kept for boosting.", shown="refuse"
    )
    weighting: str | None = option(
        None,
        "counts, binary, l2 or tfidf; by default tfidf for text, l2 for other hashed columns, else counts.",
    )
    split: str | None = option(None, "Splits and their shares.", shown="train=0.8,test=0.2")
    group: str | None = option(None, "Column whose rows stay together in a split.")
    seed: int | None = option(None, "Seed of the split.", shown="0")
    n_features: int | None = option(None, "Width of svmlight data.")
    names: bool | None = option(
        None, "Keep the words behind hashed features.", "--names/--no-names", shown="names"
    )


@dataclass(frozen=True, kw_only=True)
class Ingest(Contents, Working, Raw):
    """Arguments of `bigmc ingest`."""

    source: list[str] = argument("Files, folders, globs, or - for standard input.")
    to: str = required("Dataset to make.")
    append: bool = option(False, "Add to the dataset that exists, whose options hold; nothing twice.")
    part: str | None = option(
        None,
        "Do part I, from 0, of N beside other processes; the command without it completes the work.",
        metavar="I/N",
    )


@as_command
def ingest(asked: Ingest) -> None:
    """Turn text, CSV, JSONL, Parquet or svmlight files into a dataset."""
    from bigmc import api
    from bigmc.ingestion.doubtful_labels import doubts_about_labels

    contents = {item.name: getattr(asked, item.name) for item in fields(Contents)}
    contents["ngrams"] = None if asked.ngrams is None else parse_ngrams(asked.ngrams)
    with Screen() as screen, workers(asked) as engine:
        given = contents | {
            "append": asked.append,
            "memory_limit": asked.memory,
            "engine": engine,
            "on_bad_row": asked.on_bad_row,
            "progress": screen.update,
            **asked.files(),
        }
        if asked.part is not None:
            done = api.ingest_part(asked.source, asked.to, _parse_part(asked.part), **given)
            result = {"part": asked.part, **done}
        else:
            before = api.open_dataset(asked.to).n_samples if asked.append else 0
            dataset = api.ingest(asked.source, asked.to, **given)
            added = dataset.n_samples - before
            if not added:
                screen.say(f"nothing to append: {asked.to} has every source already")
            for doubt in doubts_about_labels(dataset.classes):
                screen.say(f"note: {doubt}")
            result = dataset.info() | ({"n_appended": added} if asked.append else {})
    show(result | engine.usage(), asked.as_json)


@dataclass(frozen=True, kw_only=True)
class Place(Shown):
    """Arguments of commands that look at a dataset or a model."""

    path: str = argument("Dataset or model.")


@as_command
def info(asked: Place) -> None:
    """Say what a dataset or a model holds."""
    from bigmc import api

    show(api.info(asked.path), asked.as_json)


@as_command
def verify(asked: Place) -> None:
    """Check every byte of a dataset or a model against its manifest."""
    from bigmc import api

    problems = api.verify(asked.path)
    show({"path": asked.path, "sound": not problems, "problems": problems}, asked.as_json)
    if problems:
        raise typer.Exit(1)


@as_command
def warm(asked: Shown) -> None:
    """Compile all kernels now, as when an image is built: commands then start without compiling."""
    from bigmc import api

    with Screen() as screen:
        result = api.warm(progress=screen.update)
    show(result, asked.as_json)


def parse_ngrams(text: str) -> tuple[int, int]:
    """Return the shortest and longest n of a text such as ``1-2``."""
    shortest, _, longest = text.partition("-")
    try:
        return int(shortest), int(longest or shortest)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no range of n-grams; write it like 1-2") from None


def _parse_part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise typer.BadParameter(f"{text!r} is no part; write it like 0/8, up to 7/8")
    return int(number), int(count)
