"""Certificates by their definition, also where nothing is left to gain."""

import math

import pytest

from bigmc.solvers.certificate import Certificate


@pytest.mark.parametrize(
    ("lower", "upper", "gap"),
    [(1.0, 2.0, 0.5), (2.0, 2.0, 0.0), (2.0 + 1e-12, 2.0, 0.0), (-math.inf, 2.0, math.inf), (0.0, 0.0, 0.0)],
)
def test_the_gap_is_the_share_of_the_objective_that_may_be_gained(lower, upper, gap):
    assert Certificate.of(lower, upper) == Certificate(lower, upper, gap)
