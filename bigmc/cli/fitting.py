"""The command that needs no choices."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from bigmc.cli.arguments import Shown
from bigmc.cli.options import Format, Json, Memory, NewModel, Scheduler, SchedulerFile, Threads, workers
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show, show_fit
from bigmc.options.ingest import parse_ngrams

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}

Names = list[str] | None


def fit(
    source: Annotated[list[str], typer.Argument(help="Raw files, or one dataset.", show_default=False)],
    to: NewModel,
    text: Annotated[Names, typer.Option("--text", help="Text column; may be repeated.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Label column.")] = None,
    dense: Annotated[
        Names, typer.Option("--dense", help="Number kept as a feature; may be repeated.")
    ] = None,
    categorical: Annotated[
        Names, typer.Option("--categorical", help="Column hashed as name=value; may be repeated.")
    ] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Text between the labels of a row, where it has several.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Where raw data is kept; by default TO.dataset.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Splits of raw data; the model is then trained on train alone. By default "
            "train=0.9,test=0.1, and in the end all rows."
        ),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Column whose rows stay together in a split.")] = None,
    analyzer: Annotated[
        str | None, typer.Option(help="word, char or char_wb; by default what learns best from a sample.")
    ] = None,
    ngrams: Annotated[str | None, typer.Option(help="Shortest and longest n-gram, like 1-2.")] = None,
    hash_bits: Annotated[
        int | None, typer.Option(help="Hash to 2^BITS buckets; by default 18 or 20.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="Try no other settings after so long, like 90s, 5m or 1h.")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", help="HTML page on the model and the search.")
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    format: Format = None,
    as_json: Json = False,
) -> None:
    """Find, train and measure the best model of labelled data, without choices to make."""
    from bigmc import api

    asked: dict[str, Any] = {
        "dense": dense,
        "categorical": categorical,
        "label_separator": label_separator,
        "group": group,
        "analyzer": analyzer,
        "hash_bits": hash_bits,
        "ngrams": None if ngrams is None else parse_ngrams(ngrams),
    }
    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        result = api.fit(
            source[0] if len(source) == 1 else source,
            to,
            text=text,
            label=label,
            dataset=dataset,
            split=split,
            time_limit=None if time is None else parse_time(time),
            memory_limit=memory,
            engine=engine,
            format=format,
            progress=screen.update,
            **{name: value for name, value in asked.items() if value is not None},
        )
        if report is not None:
            result["report"] = api.report(to, report)["report"]
        usage = engine.usage()
    if as_json:
        show({**result, **usage}, Shown(as_json=as_json))
    else:
        show_fit(result)


def parse_time(text: str) -> float:
    """Return the seconds of a text such as ``90``, ``90s``, ``5m`` or ``1h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time, write it like 90s, 5m or 1h", param_hint="--time")
    return float(match[1]) * _SECONDS[match[2]]
