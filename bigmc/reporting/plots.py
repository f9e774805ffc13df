"""Curves as SVG, with the same bytes everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bigmc.reporting.markup import Markup, element

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 38
_LOG_RATIO = 50
"""A range of positive values with a larger ratio is drawn in powers of ten."""
_SAME, _LEAST = 1e-12, 1e-300
"""Relative and absolute range below which values count as equal."""
_DOTS = 40
"""Curves of more points have no dots."""


@dataclass(frozen=True)
class Curve:
    """A named sequence of finite points, in order."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


@dataclass(frozen=True)
class Axis:
    """Maps values to positions from 0 to 1, and has the values with a mark."""

    low: float
    high: float
    log: bool
    ticks: Sequence[float]

    @classmethod
    def across(cls, values: Sequence[float]) -> Axis:
        """Return an axis from the least value to the largest."""
        low, high = min(values), max(values)
        around = cls.linear(values)
        if low == high:
            return around
        return cls(low, high, False, [tick for tick in around.ticks if low <= tick <= high])

    @classmethod
    def of(cls, values: Sequence[float]) -> Axis:
        """Return an axis for the values, of powers of ten where they span many, which ends with marks."""
        low, high = min(values), max(values)
        positive = [value for value in values if value > 0]
        if low >= 0 and positive and high / min(positive) > _LOG_RATIO:
            first, last = math.floor(math.log10(max(min(positive), _LEAST))), math.ceil(math.log10(high))
            stride = max(1, math.ceil((last - first) / 5))
            ticks = [10.0**power for power in range(first, last + 1, stride)]
            return cls(10.0**first, 10.0**last, True, ticks)
        return cls.linear(values)

    @classmethod
    def linear(cls, values: Sequence[float]) -> Axis:
        """Return an axis of even steps that begins and ends with a mark."""
        low, high = min(values), max(values)
        if high - low <= max(_SAME * max(abs(low), abs(high)), _LEAST):
            low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
        step = _round_step((high - low) / 4)
        if all(float(value).is_integer() for value in values):
            step = max(step, 1.0)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        return cls(first * step, last * step, False, ticks)

    def place(self, value: float) -> float:
        """Return the position of a value; 0 on an axis of powers of ten is at its start."""
        if self.log:
            span = math.log10(self.high) - math.log10(self.low)
            return (math.log10(max(value, self.low)) - math.log10(self.low)) / span
        return (value - self.low) / (self.high - self.low)


def plot(curves: Sequence[Curve], x_label: str, title: str, width: int, height: int) -> Markup:
    """Return a picture of curves, none empty; the area between two curves is shaded.

    The range of the first one decides whether heights are in powers of ten. The title is the description
    for screen readers.
    """
    x_axis = Axis.across([x for curve in curves for x, _ in curve.points])
    in_powers = Axis.of([y for _, y in curves[0].points]).log
    heights = [y for curve in curves for _, y in curve.points]
    y_axis = Axis.of(heights) if in_powers else Axis.linear(heights)
    right, bottom = width - _RIGHT, height - _BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = x_axis.place(point[0]), y_axis.place(point[1])
        return round(_LEFT + x * (right - _LEFT), 1), round(bottom - y * (bottom - _TOP), 1)

    drawn: list[Markup] = []
    for tick in y_axis.ticks:
        _, y = place((x_axis.low, tick))
        drawn.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid"))
        drawn.append(element("text", _label(tick), x=_LEFT - 8, y=y + 4, text_anchor="end"))
    for tick in x_axis.ticks:
        x, _ = place((tick, y_axis.low))
        drawn.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        drawn.append(element("text", _label(tick), x=x, y=bottom + 17, text_anchor="middle"))
    drawn.append(element("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"))
    middle = (_LEFT + right) / 2
    drawn.append(element("text", x_label, x=middle, y=height - 4, text_anchor="middle", class_="label"))
    if len(curves) == 2:
        above, below = (curve.points for curve in curves)
        outline = [place(point) for point in (*above, *reversed(below))]
        drawn.append(element("polygon", points=_points(outline), class_="between"))
    for curve in curves:
        placed = [place(point) for point in curve.points]
        drawn.append(
            element("polyline", points=_points(placed), fill="none", stroke=curve.colour, stroke_width=2)
        )
        if len(placed) <= _DOTS:
            drawn += [element("circle", cx=x, cy=y, r=2.5, fill=curve.colour) for x, y in placed]
    return element("svg", *drawn, viewBox=f"0 0 {width} {height}", role="img", aria_label=title)


def _points(placed: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in placed)


def _round_step(step: float) -> float:
    """Return the least of 1, 2, 2.5, 5 or 10 times a power of ten that is not below `step`."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def _label(value: float) -> str:
    short = f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.5g}"
    return short.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "−")
