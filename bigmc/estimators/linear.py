"""Attributes of linear classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.model import LinearModel


class LinearMixin:
    """Weights and intercepts of a classifier whose ``model_`` is a `LinearModel`."""

    model_: Any

    @property
    def coef_(self) -> scipy.sparse.csr_array:
        """Weights of shape (n_classes, n_features), even for two classes; computed at every access."""
        model: LinearModel = self.model_
        return model.weights()

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Intercepts of shape (n_classes,)."""
        model: LinearModel = self.model_
        return model.intercept
