"""The search for settings: a table of all trials, and accuracy by size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bigmc.reporting.markup import Markup, element, figure, table
from bigmc.reporting.plots import Curve, plot

_HEAD = ("trial", "quality", "log loss", "features", "weighting", "loss", "ridge × rows", "alpha × rows")


def search(trials: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the trials on held-out rows before the model was trained."""
    yield element(
        "p", "Each trial was trained on a part of the rows and measured on others, which it had not seen."
    )
    rows = []
    for number, trial in enumerate(trials, start=1):
        settings = trial["candidate"]
        rows.append(
            [
                figure(number),
                figure(trial["quality"], 4),
                figure(trial["log_loss"], 4),
                figure(trial["n_features"]),
                settings["weighting"] or "as stored",
                settings["loss"],
                figure(settings["ridge"], 3),
                figure(settings["alpha"], 3),
            ]
        )
    yield table(_HEAD, rows, "figures")
    best, points = 0.0, []
    for number, trial in enumerate(trials, start=1):
        best = max(best, trial["quality"])
        points.append((float(number), best))
    if len(points) > 1:
        yield plot([Curve("best so far", points, "#1f6feb")], "trial", "best quality so far", 760, 240)


def sizes(curve: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the quality of models of fewer features on held-out rows."""
    yield element(
        "p",
        "The features with the largest weights, and a model trained with these alone, measured on the same "
        "held-out rows. The model of this page has the fewest that lose no accuracy, or as many as were "
        "asked for.",
    )
    head = ("features", "quality", "log loss")
    rows = [
        [figure(size["n_features"]), figure(size["quality"], 4), figure(size["log_loss"], 4)]
        for size in curve
    ]
    yield table(head, rows, "figures")
    points = [(math.log10(size["n_features"]), float(size["quality"])) for size in reversed(curve)]
    if len(points) > 1:
        yield plot([Curve("quality", points, "#1f6feb")], "features, log10", "quality", 760, 240)
