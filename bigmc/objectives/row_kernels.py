"""What Newton steps need of a loss: its kernels over samples in row order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RowKernels:
    """Derivatives of a loss over samples in row order.

    Attributes
    ----------
    gradient, hessian, change : callable
        Kernels with the arguments of `bigmc.kernels.linear.newton_log.gradient_rows`, `hessian_rows` and
        `losses_along`.
    per_class : bool
        What `gradient` leaves for `hessian` is a number for every score, otherwise one word of bits for every
        sample.
    """

    gradient: Callable[..., None]
    hessian: Callable[..., None]
    change: Callable[..., float]
    per_class: bool

    @classmethod
    def of(cls, kernels: ModuleType, *fixed: Any, per_class: bool) -> RowKernels:
        """Return the kernels of a module, their first arguments fixed."""
        return cls(
            partial(kernels.gradient_rows, *fixed),
            partial(kernels.hessian_rows, *fixed),
            partial(kernels.losses_along, *fixed),
            per_class,
        )

    def room(self, scores: NDArray[np.floating]) -> NDArray[Any]:
        """Return an array for what `gradient` leaves for `hessian`."""
        return np.empty_like(scores) if self.per_class else np.empty(len(scores), np.uint64)

    def bytes_per_sample(self, scores: NDArray[np.floating]) -> int:
        """Return the bytes a sample takes of it."""
        return scores.shape[1] * scores.itemsize if self.per_class else 8
