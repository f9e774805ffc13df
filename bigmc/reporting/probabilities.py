"""How well the probabilities of a model hold: a few figures and the reliability plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bigmc.reporting.markup import Content, Markup, element, figure, table
from bigmc.reporting.plots import Curve, plot

_NAMES = {
    "log_loss": "log loss",
    "brier": "Brier score",
    "calibration_error": "expected calibration error",
    "top_5_accuracy": "label among the five most probable classes",
    "roc_auc": "area under the ROC curve",
}


def probabilities(evaluated: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield the figures of an evaluation's probabilities; nothing if it has none."""
    bins = evaluated.get("reliability")
    if not bins:
        return
    yield element("h3", "Probabilities")
    rows: list[tuple[Content, Content]] = [
        (title, figure(evaluated[key])) for key, title in _NAMES.items() if key in evaluated
    ]
    yield table((), rows, "facts")
    points = [(entry["confidence"], entry["accuracy"]) for entry in bins]
    ends = points[0][0], points[-1][0]
    curves = [
        Curve("share of right answers", points, "#1f6feb"),
        Curve("perfectly calibrated", [(x, x) for x in ends], "#888888"),
    ]
    yield element(
        "p", "How often the most probable class is right, by its probability; on the line it is as often."
    )
    yield plot(curves, "probability of the answer", "reliability of the probabilities", 480, 300)
