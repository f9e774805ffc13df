"""Describe a certificate in words."""

from __future__ import annotations

import math

from bigmc.model import Model
from bigmc.reporting.markup import Markup, figure, join


def bounds(model: Model) -> tuple[float, float, float]:
    """Return lower bound, upper bound and gap; NaN if the model has none."""
    lower, upper, gap = (model.certificate.get(name, math.nan) for name in ("lower", "upper", "gap"))
    return lower, upper, gap


def statements(model: Model) -> list[Markup]:
    """Return sentences about the optimum, the tolerance, and what is specific to the kind of model."""
    lower, upper, gap = bounds(model)
    what, said = model.objective_name, []
    if math.isfinite(lower) and math.isfinite(upper):
        between = (figure(lower), " and ", figure(upper))
        said.append(join([f"The optimum of the {what} lies between ", *between, "."]))
        if gap == 0:
            said.append(join(["The bounds meet: to rounding, no model of this kind has a smaller value."]))
        elif math.isfinite(gap) and model.gap_is_relative:
            said.append(
                join(["Training longer could lower the value of the model by ", percent(gap), " at most."])
            )
        elif math.isfinite(gap):
            said.append(join(["The model is within ", figure(gap), " of the optimum."]))
    else:
        said.append(
            join(
                [
                    f"Nothing is certified: no lower bound of the {what} is known, so nobody can say how far "
                    "the model is from the optimum."
                ]
            )
        )
        if math.isfinite(upper):
            said.append(join(["All that is known is that the optimum is not above ", figure(upper), "."]))
    tol = model.params.get("tol")
    if isinstance(tol, int | float) and math.isfinite(gap):
        verdict = "was reached" if gap <= tol else "was not reached: training ended before"
        said.append(join(["The gap asked for, ", figure(float(tol)), f", {verdict}."]))
    said += [join([note]) for note in model.certificate_notes()]
    return said


def percent(share: float) -> Markup:
    """Return a share as a percentage."""
    return join([f"{100 * share:.3g} %"])
