"""The training history: the figures that every kind of model records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from bigmc.reporting.markup import Markup, element, figure, join
from bigmc.reporting.plots import Curve, plot

_BLUE, _ORANGE, _GREEN = "#1d5fa8", "#c4561b", "#2c7d5b"

#: Figures for the horizontal axis; the first that a history has is used.
_TIMES = {"n_passes": "passes over the data", "n_iter": "iterations"}

#: Names to display; other figures keep their own.
_NAMES = {
    "objective": "objective",
    "upper": "upper bound",
    "lower": "lower bound",
    "gap": "gap",
    "violation": "largest violation",
    "largest_norm": "largest gradient norm",
    "n_nonzero": "features with weight",
    "n_learners": "weak learners",
    "sigma": "σ of the best cut",
    "held_error": "error on samples held out",
    "held_loss": "loss on samples held out",
    "n_scans": "scans of the samples",
    "n_rows": "samples in the working set",
    "n_components": "components in the program",
    "n_constraints": "constraints in the program",
}


def course(history: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return a large plot of the bounds and a small one of every other figure that changes."""
    time = next((name for name in _TIMES if any(name in entry for entry in history)), None)
    label = "entries of the history" if time is None else _TIMES[time]
    curves = {
        name: Curve(_NAMES.get(name, name.replace("_", " ")), points, _colour(name))
        for name, points in _series(history, time)
    }
    if not curves:
        return [element("p", "The model has no history of its training to draw.")]
    above = next((curves[name] for name in ("upper", "objective") if name in curves), None)
    drawn = []
    if above is not None:
        pair = [above, curves["lower"]] if "lower" in curves else [above]
        drawn.append(_bounds(pair, label))
    shown = {"lower", "upper", "objective"} if above is not None else set()
    small = [_single(curve, label) for name, curve in curves.items() if name not in shown]
    return [*drawn, element("div", *small, class_="small-plots")]


def _series(
    history: Sequence[Mapping[str, Any]], time: str | None
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield the figures that have two different values, the gap first, each with its finite points."""
    names = dict.fromkeys(name for entry in history for name in entry if name not in _TIMES)
    for name in sorted(names, key=lambda name: (name != "gap", name)):
        points = []
        for k, entry in enumerate(history):
            x, y = (float(k + 1) if time is None else entry.get(time)), entry.get(name)
            if _is_finite(x) and _is_finite(y):
                points.append((float(x), float(y)))
        if len({y for _, y in points}) > 1 or (name in ("upper", "objective") and len(points) > 1):
            yield name, points


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _colour(name: str) -> str:
    return {"lower": _ORANGE, "gap": _GREEN}.get(name, _BLUE)


def _bounds(curves: Sequence[Curve], x_label: str) -> Markup:
    names = " and ".join(curve.name for curve in curves)
    parts = [
        join([element("span", "", class_="key", style=f"background:{curve.colour}"), _ends(curve)])
        for curve in curves
    ]
    if len(curves) == 2:
        between = "the optimum is in the shaded part"
        parts.append(join([element("span", "", class_="key between"), between]))
    caption = element("figcaption", *(element("span", part, class_="entry") for part in parts))
    return element("figure", caption, plot(curves, x_label, names, 760, 300))


def _single(curve: Curve, x_label: str) -> Markup:
    picture = plot([curve], x_label, curve.name, 370, 190)
    return element("figure", element("figcaption", _ends(curve)), picture)


def _ends(curve: Curve) -> Markup:
    """Return the name of a curve, and where it begins and ends."""
    (_, first), (_, last) = curve.points[0], curve.points[-1]
    return join([element("b", curve.name), " ", figure(first), " → ", figure(last)])
