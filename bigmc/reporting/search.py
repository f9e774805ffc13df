"""The course of a search for settings: every trial in a table, and accuracy against size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bigmc.reporting.markup import Markup, element, figure, table
from bigmc.reporting.plots import Curve, plot

_HEAD = ("trial", "quality", "log loss", "features", "weighting", "loss", "ridge × rows", "alpha × rows")


def search(trials: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield what was tried on held-out rows before the model was trained."""
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
