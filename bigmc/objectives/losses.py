"""Losses: each one object that knows its name, its value and the kernels that work on it.

A further loss (multinomial logistic, one-vs-rest, ranking) is a further class here with the same
attributes, named in `LOSSES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.lanes import LANES
from bigmc.kernels.scores import class_margins
from bigmc.kernels.squared_hinge import PAD_SCORE, gradient_norms, sweep


class SquaredHinge:
    """``sum over r != y of max(1 - (s_y - s_r), 0)²``, equation (2) of Blondel et al. (2013).

    Attributes
    ----------
    name : str
    lanes : int
        The classes of a row of scores are padded to a multiple of this.
    pad_score : float
        Score of the pads, which take part in nothing.
    sweep, gradient_norms, class_margins : callable
        Kernels, see `bigmc.kernels.squared_hinge` and `bigmc.kernels.scores`.
    """

    name = "squared_hinge"
    lanes = LANES
    pad_score = PAD_SCORE
    sweep: Callable[..., None] = staticmethod(sweep)
    gradient_norms: Callable[..., None] = staticmethod(gradient_norms)
    class_margins: Callable[..., None] = staticmethod(class_margins)

    def value(self, squares: NDArray[np.float64], weight_sum: float) -> float:
        """Mean loss, of the squares `class_margins` adds up."""
        return float(squares.sum()) / weight_sum

    def dual_value(
        self,
        margins: NDArray[np.float64],
        squares: NDArray[np.float64],
        weight_sum: float,
        largest_scale: float,
    ) -> float:
        """Best dual value on the ray through the dual point that belongs to the margins.

        With ``b_ir = 2 w_i m_ir / n`` the dual is ``sum (b - n b² / (4 w))``; on the ray ``t b`` it is
        ``t * 2 / n * sum w m - t² / n * sum w m²``.

        Parameters
        ----------
        margins, squares : float64 arrays
            ``sum w m`` and ``sum w m²`` by own and other class.
        weight_sum : float
            n, the sum of the sample weights.
        largest_scale : float
            Largest feasible ``t``.
        """
        linear = 2.0 * float(margins.sum()) / weight_sum
        quadratic = float(squares.sum()) / weight_sum
        if quadratic == 0.0:
            return 0.0
        t = min(largest_scale, linear / (2.0 * quadratic))
        return t * linear - t * t * quadratic


LOSSES: dict[str, Any] = {SquaredHinge.name: SquaredHinge}
