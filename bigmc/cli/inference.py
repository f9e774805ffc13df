"""Commands that use a model, and the demonstration."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bigmc.cli.options import (
    Format,
    Json,
    Memory,
    OnBadRow,
    Overwrite,
    Scheduler,
    SchedulerFile,
    Threads,
    workers,
)
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show, show_features


def evaluate(
    model: Annotated[str, typer.Argument(help="Model.")],
    dataset: Annotated[str, typer.Argument(help="Dataset.")],
    split: Annotated[str, typer.Option(help="Split to evaluate on.")] = "test",
    to: Annotated[
        str | None, typer.Option("--to", help="File for the figures too, as bigmc publish reads it.")
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Precision, recall and F1 per class.")
    ] = False,
    confusion: Annotated[bool, typer.Option("--confusion", help="Confusion matrix.")] = False,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Measure a model on a split of a dataset."""
    from bigmc import api

    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        result = api.evaluate(
            model,
            dataset,
            split=split,
            to=to,
            per_class=per_class,
            confusion=confusion,
            overwrite=overwrite,
            memory_limit=memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), as_json, beside=to)


def publish(
    evaluations: Annotated[list[str], typer.Argument(help="Files made by bigmc evaluate --to.")],
    to: Annotated[str, typer.Option("--to", help="Public name of the best model.", show_default=False)],
    by: Annotated[
        Literal["accuracy", "macro_f1", "micro_f1"], typer.Option("--by", help="Figure to choose by.")
    ] = "accuracy",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose the best of evaluated models and give it its public name."""
    from bigmc import api

    show(api.publish(evaluations, to, by=by, overwrite=overwrite), as_json, beside=to)


def predict(
    model: Annotated[str, typer.Argument(help="Model.")],
    source: Annotated[
        list[str], typer.Argument(help="Raw files, one dataset, or - for JSON lines from standard input.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="File to write: Parquet, or CSV or JSON lines by its ending; - is standard output.",
            show_default=False,
        ),
    ],
    split: Annotated[str | None, typer.Option(help="Split of a dataset; by default all rows.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the score of every class too.")] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Write the probability of every class.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column of the source to copy, such as an id; may be repeated."),
    ] = None,
    overwrite: Overwrite = False,
    on_bad_row: OnBadRow = "fail",
    format: Format = None,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Predict labels for raw files or a dataset."""
    from bigmc import api

    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        result = api.predict(
            model,
            source[0] if len(source) == 1 else source,
            to,
            split=split,
            scores=scores,
            proba=proba,
            keep=keep,
            overwrite=overwrite,
            on_bad_row=on_bad_row,
            format=format,
            memory_limit=memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), as_json, beside=to)


def inspect(
    model: Annotated[str, typer.Argument(help="Model.")],
    top: Annotated[int, typer.Option(min=1, help="Features per class.")] = 20,
    as_json: Json = False,
) -> None:
    """List the strongest features of each class, as words where their names were kept."""
    from bigmc import api

    result = api.inspect(model, top=top)
    if as_json:
        show(result, as_json)
    else:
        show_features(result)


def report(
    model: Annotated[str, typer.Argument(help="Model.")],
    to: Annotated[str, typer.Option("--to", help="HTML file to write.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="Features per class.")] = 20,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="DATASET", help="Dataset to evaluate on.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of the dataset; by default test.", show_default=False)
    ] = None,
    overwrite: Overwrite = False,
    memory: Memory = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    scheduler_file: SchedulerFile = None,
    as_json: Json = False,
) -> None:
    """Write a page on a model: certificate, course of the training, strongest features."""
    from bigmc import api

    with Screen() as screen, workers(threads, scheduler, scheduler_file) as engine:
        result = api.report(
            model,
            to,
            top=top,
            dataset=dataset,
            split=split,
            overwrite=overwrite,
            memory_limit=memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), as_json, beside=to)


def demo(
    to: Annotated[str, typer.Option("--to", help="Folder to work in.")] = "bigmc-demo",
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Run everything on real text found here: which package does a line of Python come from."""
    from bigmc.cli.demo import run

    with Screen() as screen:
        tell = screen.say if as_json else typer.echo
        result = run(to, memory_limit=memory, progress=screen.update, tell=tell)
    if as_json:
        show(result, as_json)
