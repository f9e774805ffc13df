"""Commands that make a dataset and look at what is there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from bigmc.cli.options import Format, Json, Memory, OnBadRow, Scheduler, SchedulerFile, Threads, workers
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show


def ingest(
    source: Annotated[list[str], typer.Argument(help="Files, folders or globs.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="Dataset to make.", show_default=False)],
    text: Annotated[list[str] | None, typer.Option("--text", help="Text column; may be repeated.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Label column; where it holds lists, labels are sets.")
    ] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Text between the labels of a row, where it has several.")
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option("--categorical", help="Column hashed as name=value; may be repeated.")
    ] = None,
    numeric: Annotated[
        list[str] | None,
        typer.Option("--numeric", help="Number hashed by its column's name; may be repeated."),
    ] = None,
    dense: Annotated[
        list[str] | None,
        typer.Option("--dense", help="Number kept as a feature of its own; may be repeated."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column copied along with the rows; may be repeated.")
    ] = None,
    hash_bits: Annotated[int | None, typer.Option(help="Hash to 2^BITS buckets.", show_default="18")] = None,
    ngrams: Annotated[
        str | None, typer.Option(help="Shortest and longest n-gram.", show_default="1-2")
    ] = None,
    analyzer: Annotated[str | None, typer.Option(help="word, char or char_wb.", show_default="word")] = None,
    lowercase: Annotated[
        bool | None, typer.Option(help="Lowercase texts before hashing.", show_default="lowercase")
    ] = None,
    standardize: Annotated[
        bool | None, typer.Option("--standardize", help="Dense features become (x - mean) / deviation.")
    ] = None,
    fourier: Annotated[
        int | None, typer.Option(help="Turn dense features into so many random Fourier ones.")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Of their Gaussian kernel; by default 1 / number of dense features.")
    ] = None,
    missing: Annotated[
        Literal["refuse", "keep"] | None,
        typer.Option(
            help="Empty, null or NaN in --dense columns: a bad row, or kept for boosting.",
            show_default="refuse",
        ),
    ] = None,
    weighting: Annotated[
        str | None,
        typer.Option(
            help="counts, binary, l2 or tfidf; by default tfidf for text, l2 for other hashed columns, "
            "else counts."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Splits and their shares.", show_default="train=0.8,test=0.2")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Column whose rows stay together in a split.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the split.", show_default="0")] = None,
    n_features: Annotated[int | None, typer.Option(help="Width of svmlight data.")] = None,
    names: Annotated[
        bool | None, typer.Option(help="Keep the words behind hashed features.", show_default="names")
    ] = None,
    append: Annotated[
        bool,
        typer.Option("--append", help="Add to the dataset that exists, whose options hold; nothing twice."),
    ] = False,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="I/N",
            help="Do part I, from 0, of N beside other processes; the command without it completes the work.",
        ),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    on_bad_row: OnBadRow = "fail",
    format: Format = None,
    as_json: Json = False,
) -> None:
    """Turn text, CSV, JSONL, Parquet or svmlight files into a dataset."""
    from bigmc import api

    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        asked: dict[str, Any] = {
            "text": text,
            "label": label,
            "label_separator": label_separator,
            "categorical": categorical,
            "numeric": numeric,
            "dense": dense,
            "keep": keep,
            "hash_bits": hash_bits,
            "ngrams": None if ngrams is None else parse_ngrams(ngrams),
            "analyzer": analyzer,
            "lowercase": lowercase,
            "standardize": standardize,
            "fourier": fourier,
            "gamma": gamma,
            "missing": missing,
            "weighting": weighting,
            "split": split,
            "group": group,
            "seed": seed,
            "n_features": n_features,
            "names": names,
            "append": append,
            "memory_limit": memory,
            "engine": engine,
            "on_bad_row": on_bad_row,
            "format": format,
            "progress": screen.update,
        }
        if part is not None:
            result = {"part": part, **api.ingest_part(source, to, _parse_part(part), **asked)}
        else:
            before = api.open_dataset(to).n_samples if append else 0
            dataset = api.ingest(source, to, **asked)
            added = dataset.n_samples - before
            if not added:
                screen.say(f"nothing to append: {to} has every source already")
            result = dataset.info() | ({"n_appended": added} if append else {})
    show(result | engine.usage(), as_json)


def info(path: Annotated[str, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Say what a dataset or a model holds."""
    from bigmc import api

    show(api.info(path), as_json)


def verify(path: Annotated[str, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Check every byte of a dataset or a model against its manifest."""
    from bigmc import api

    problems = api.verify(path)
    show({"path": path, "sound": not problems, "problems": problems}, as_json)
    if problems:
        raise typer.Exit(1)


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
