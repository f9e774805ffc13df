"""Commands that use a model, and the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import typer

from bigmc.cli.arguments import Raw, Replacing, Shown, Working, as_command
from bigmc.cli.engines import workers
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show, show_features
from bigmc.options.declare import argument, option, required


@dataclass(frozen=True, kw_only=True)
class Evaluate(Working, Replacing):
    """Arguments of `bigmc evaluate`."""

    model: str = argument("Model.")
    dataset: str = argument("Dataset.")
    split: str = option("test", "Split to evaluate on.")
    to: str | None = option(None, "File for the figures too, as bigmc publish reads it.")
    per_class: bool = option(False, "Precision, recall and F1 per class.")
    confusion: bool = option(False, "Confusion matrix.")


@as_command
def evaluate(asked: Evaluate) -> None:
    """Measure a model on a split of a dataset."""
    from bigmc import api

    with Screen() as screen, workers(asked) as engine:
        result = api.evaluate(
            asked.model,
            asked.dataset,
            split=asked.split,
            to=asked.to,
            per_class=asked.per_class,
            confusion=asked.confusion,
            overwrite=asked.overwrite,
            memory_limit=asked.memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), asked.as_json, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Publish(Shown, Replacing):
    """Arguments of `bigmc publish`."""

    evaluations: list[str] = argument("Files made by bigmc evaluate --to.")
    to: str = required("Public name of the best model.")
    by: Literal["accuracy", "macro_f1", "micro_f1"] = option("accuracy", "Figure to choose by.")


@as_command
def publish(asked: Publish) -> None:
    """Choose the best of evaluated models and give it its public name."""
    from bigmc import api

    result = api.publish(asked.evaluations, asked.to, by=asked.by, overwrite=asked.overwrite)
    show(result, asked.as_json, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Predict(Working, Replacing, Raw):
    """Arguments of `bigmc predict`."""

    model: str = argument("Model.")
    source: list[str] = argument("Raw files, one dataset, or - for JSON lines from standard input.")
    to: str = required("File to write: Parquet, or CSV or JSON lines by its ending; - is standard output.")
    split: str | None = option(None, "Split of a dataset; by default all rows.")
    scores: bool = option(False, "Write the score of every class too.")
    proba: bool = option(False, "Write the probability of every class.")
    keep: list[str] | None = option(None, "Column of the source to copy, such as an id; may be repeated.")


@as_command
def predict(asked: Predict) -> None:
    """Predict labels for raw files or a dataset."""
    from bigmc import api

    with Screen() as screen, workers(asked) as engine:
        result = api.predict(
            asked.model,
            asked.source[0] if len(asked.source) == 1 else asked.source,
            asked.to,
            split=asked.split,
            scores=asked.scores,
            proba=asked.proba,
            keep=asked.keep,
            overwrite=asked.overwrite,
            on_bad_row=asked.on_bad_row,
            **asked.files(),
            memory_limit=asked.memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), asked.as_json, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Inspect(Shown):
    """Arguments of `bigmc inspect`."""

    model: str = argument("Model.")
    top: int = option(20, "Features per class.", minimum=1)


@as_command
def inspect(asked: Inspect) -> None:
    """List the strongest features of each class, as words where their names were kept."""
    from bigmc import api

    result = api.inspect(asked.model, top=asked.top)
    if asked.as_json:
        show(result, asked.as_json)
    else:
        show_features(result)


@dataclass(frozen=True, kw_only=True)
class Report(Working, Replacing):
    """Arguments of `bigmc report`."""

    model: str = argument("Model.")
    to: str = required("HTML file to write.")
    top: int = option(20, "Features per class.", minimum=1)
    dataset: str | None = option(None, "Dataset to evaluate on.", metavar="DATASET")
    split: str | None = option(None, "Split of the dataset; by default test.")


@as_command
def report(asked: Report) -> None:
    """Write a page on a model: certificate, course of the training, strongest features."""
    from bigmc import api

    with Screen() as screen, workers(asked) as engine:
        result = api.report(
            asked.model,
            asked.to,
            top=asked.top,
            dataset=asked.dataset,
            split=asked.split,
            overwrite=asked.overwrite,
            memory_limit=asked.memory,
            engine=engine,
            progress=screen.update,
        )
    show(result | engine.usage(), asked.as_json, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Demo(Shown):
    """Arguments of `bigmc demo`."""

    to: str = option("bigmc-demo", "Folder to work in.")
    memory: str | None = option(
        None, "Memory limit above the bare process, like 512MB or 2GB.", metavar="SIZE"
    )


@as_command
def demo(asked: Demo) -> None:
    """Run everything on real text of this machine: which package does a line of Python come from."""
    from bigmc.cli.demo import run

    with Screen() as screen:
        tell = screen.say if asked.as_json else typer.echo
        result = run(asked.to, memory_limit=asked.memory, progress=screen.update, tell=tell)
    if asked.as_json:
        show(result, asked.as_json)
