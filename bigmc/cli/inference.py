"""Commands that use a model, and the demonstration."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import click

from bigmc.cli.arguments import Limited, Replacing, Shown, Working, as_command
from bigmc.cli.engines import working
from bigmc.cli.screen import Screen
from bigmc.cli.terminal import show, show_explanation, show_features
from bigmc.options.declare import argument, option, required, values_of
from bigmc.options.inference import EvaluateOptions, PredictOptions, ReportOptions


@dataclass(frozen=True, kw_only=True)
class Evaluate(Working, Replacing, EvaluateOptions):
    """Arguments of `bigmc evaluate`."""

    model: str = argument("Model.")
    source: list[str] = argument("A dataset, or raw files with a label column.")
    to: str | None = option(None, "File for the figures, for bigmc publish.")


@as_command
def evaluate(asked: Evaluate) -> None:
    """Evaluate a model on a split of a dataset, or on labelled files."""
    from bigmc import api

    with working(asked) as work:
        result = api.evaluate(
            asked.model,
            asked.source[0] if len(asked.source) == 1 else asked.source,
            to=asked.to,
            overwrite=asked.overwrite,
            **work.means,
            **values_of(EvaluateOptions, asked),
        )
    show(result | work.engine.usage(), asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Publish(Shown, Replacing):
    """Arguments of `bigmc publish`."""

    evaluations: list[str] = argument("Files made by bigmc evaluate --to.")
    to: str = required("File to publish the best model as.")
    by: Literal["accuracy", "macro_f1", "micro_f1"] = option("accuracy", "Figure that decides.")


@as_command
def publish(asked: Publish) -> None:
    """Publish the best of several evaluated models."""
    from bigmc import api

    with Screen():
        result = api.publish(asked.evaluations, asked.to, by=asked.by, overwrite=asked.overwrite)
    show(result, asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Predict(Working, Replacing, PredictOptions):
    """Arguments of `bigmc predict`."""

    model: str = argument("Model.")
    source: list[str] = argument("Raw files, one dataset, or - for JSON lines from standard input.")
    to: str = required("File to write: Parquet, or CSV or JSON lines by its extension; - is standard output.")


@as_command
def predict(asked: Predict) -> None:
    """Predict labels for raw files or a dataset."""
    from bigmc import api

    with working(asked) as work:
        result = api.predict(
            asked.model,
            asked.source[0] if len(asked.source) == 1 else asked.source,
            asked.to,
            overwrite=asked.overwrite,
            **work.means,
            **values_of(PredictOptions, asked),
        )
    show(result | work.engine.usage(), asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Inspect(Shown):
    """Arguments of `bigmc inspect`."""

    model: str = argument("Model.")
    top: int = option(20, "Features per class.", minimum=1)


@as_command
def inspect(asked: Inspect) -> None:
    """List the strongest features of each class, as words if known."""
    from bigmc import api

    with Screen():
        result = api.inspect(asked.model, top=asked.top)
    if asked.as_json:
        show(result, asked)
    else:
        show_features(result)


@dataclass(frozen=True, kw_only=True)
class Explain(Shown):
    """Arguments of `bigmc explain`."""

    model: str = argument("Model.")
    sample: str = argument("A text, or a row of a table as a JSON object; - reads it from standard input.")
    top: int = option(10, "Words per class.", minimum=1)
    classes: int = option(5, "Number of classes to show, largest scores first.", minimum=1)


@as_command
def explain(asked: Explain) -> None:
    """Show which words or columns of a row speak for which class."""
    from bigmc import api

    with Screen():
        sample = sys.stdin.read() if asked.sample == "-" else asked.sample
        result = api.explain(asked.model, sample, asked.top).to_dict()
    result["classes"] = result["classes"][: asked.classes]
    if asked.as_json:
        show(result, asked)
    else:
        show_explanation(result)


@dataclass(frozen=True, kw_only=True)
class Report(Working, Replacing, ReportOptions):
    """Arguments of `bigmc report`."""

    model: str = argument("Model.")
    to: str = required("HTML file to write.")


@as_command
def report(asked: Report) -> None:
    """Write an HTML report: certificate, training, strongest features."""
    from bigmc import api

    with working(asked) as work:
        result = api.report(
            asked.model, asked.to, overwrite=asked.overwrite, **work.means, **values_of(ReportOptions, asked)
        )
    show(result | work.engine.usage(), asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Export(Limited, Replacing):
    """Arguments of `bigmc export`."""

    model: str = argument("Model.")
    to: str = required("File to write: .md for a model card, .onnx for a linear model as an ONNX graph.")
    dataset: str | None = option(
        None, "Dataset to evaluate the model on, for a model card.", metavar="DATASET"
    )
    split: str = option("test", "Split of the dataset.")


@as_command
def export(asked: Export) -> None:
    """Export a model as an ONNX graph, or write its model card."""
    from bigmc import api

    with Screen():
        result = api.export(
            asked.model,
            asked.to,
            dataset=asked.dataset,
            split=asked.split,
            overwrite=asked.overwrite,
            memory_limit=asked.memory,
        )
    show(result, asked, beside=asked.to)


@dataclass(frozen=True, kw_only=True)
class Demo(Limited):
    """Arguments of `bigmc demo`."""

    to: str = option("bigmc-demo", "Folder to work in.")


@as_command
def demo(asked: Demo) -> None:
    """Run all steps on Python code of this machine; needs no network."""
    from bigmc.cli.demo import run

    with Screen() as screen:
        tell = screen.say if asked.as_json else click.echo
        result = run(asked.to, memory_limit=asked.memory, progress=screen.update, tell=tell)
    if asked.as_json:
        show(result, asked)
