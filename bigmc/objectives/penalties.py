"""Penalties: each one object that knows its name and its value.

A further penalty (l1, l1/linf, sparse group) is a further class here, named in `PENALTIES`, with a
proximal step in the kernels of the losses it goes with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class GroupLasso:
    """``sum over features of ||W_j||_2``: a feature is kept for all classes or for none."""

    name = "l1/l2"

    def value(self, coef: NDArray[np.float64]) -> float:
        """Penalty of weights of shape (n_features, n_classes), before the factor alpha."""
        return float(np.sqrt((coef * coef).sum(axis=1)).sum())


PENALTIES: dict[str, Any] = {GroupLasso.name: GroupLasso}
