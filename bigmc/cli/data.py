"""Commands that make a dataset and look at what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bigmc.cli.options import Format, Json, Memory, OnBadRow, Scheduler, SchedulerFile, Threads, workers
from bigmc.screen import Screen, show


def ingest(
    source: Annotated[list[str], typer.Argument(help="Files, folders or globs.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="Dataset to make.", show_default=False)],
    text: Annotated[list[str] | None, typer.Option("--text", help="Text column; may be repeated.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Label column.")] = None,
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
    hash_bits: Annotated[int, typer.Option(help="Hash to 2^BITS buckets.")] = 18,
    ngrams: Annotated[str, typer.Option(help="Shortest and longest n-gram.")] = "1-2",
    analyzer: Annotated[str, typer.Option(help="word, char or char_wb.")] = "word",
    lowercase: Annotated[bool, typer.Option(help="Lowercase texts before hashing.")] = True,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Dense features become (x - mean) / deviation.")
    ] = False,
    fourier: Annotated[int, typer.Option(help="Turn dense features into so many random Fourier ones.")] = 0,
    gamma: Annotated[
        float | None, typer.Option(help="Of their Gaussian kernel; by default 1 / number of dense features.")
    ] = None,
    missing: Annotated[
        Literal["refuse", "keep"],
        typer.Option(help="Empty, null or NaN in --dense columns: a bad row, or kept for boosting."),
    ] = "refuse",
    weighting: Annotated[
        str | None,
        typer.Option(help="counts, binary, l2 or tfidf; by default l2 for hashed columns, else counts."),
    ] = None,
    split: Annotated[str, typer.Option(help="Splits and their shares.")] = "train=0.8,test=0.2",
    group: Annotated[str | None, typer.Option(help="Column whose rows stay together in a split.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    n_features: Annotated[int | None, typer.Option(help="Width of svmlight data.")] = None,
    names: Annotated[bool, typer.Option(help="Keep the words behind hashed features.")] = True,
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
        dataset = api.ingest(
            source,
            to,
            text=text,
            label=label,
            categorical=categorical or (),
            numeric=numeric or (),
            dense=dense or (),
            keep=keep or (),
            hash_bits=hash_bits,
            ngrams=_parse_ngrams(ngrams),
            analyzer=analyzer,
            lowercase=lowercase,
            standardize=standardize,
            fourier=fourier,
            gamma=gamma,
            missing=missing,
            weighting=weighting,
            split=split,
            group=group,
            seed=seed,
            n_features=n_features,
            names=names,
            memory_limit=memory,
            engine=engine,
            on_bad_row=on_bad_row,
            format=format,
            progress=screen.update,
        )
    show(dataset.info() | engine.usage(), as_json)


def info(path: Annotated[Path, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Say what a dataset or a model holds."""
    from bigmc import api

    show(api.info(path), as_json)


def verify(path: Annotated[Path, typer.Argument(help="Dataset or model.")], as_json: Json = False) -> None:
    """Check every byte of a dataset or a model against its manifest."""
    from bigmc import api

    problems = api.verify(path)
    show({"path": str(path), "sound": not problems, "problems": problems}, as_json)
    if problems:
        raise typer.Exit(1)


def _parse_ngrams(text: str) -> tuple[int, int]:
    shortest, _, longest = text.partition("-")
    try:
        return int(shortest), int(longest or shortest)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no range of n-grams; write it like 1-2") from None
