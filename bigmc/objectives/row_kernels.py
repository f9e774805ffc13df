"""Kernels of a loss for Newton steps, over samples in row order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.losses.interface import LossKernels
from bigmc.kernels.linear.rows import newton_rows
from bigmc.objectives.losses import Loss


@dataclass(frozen=True)
class RowKernels:
    """Derivatives of a loss over samples in row order.

    The functions are `gradient_rows`, `hessian_rows` and `losses_along` of
    `bigmc.kernels.linear.rows.newton_rows`, without their first argument. With `per_class`, `gradient` stores
    a number for every score for `hessian`, otherwise one word of bits for every sample.
    """

    gradient: Callable[..., None]
    hessian: Callable[..., None]
    change: Callable[..., float]
    per_class: bool

    @classmethod
    def of(cls, loss: Loss, kernels: LossKernels) -> RowKernels:
        """Return those of a loss; `kernels` is its compiled form for one label or for sets."""
        return cls(
            partial(newton_rows.gradient_rows, kernels),
            partial(newton_rows.hessian_rows, kernels),
            partial(newton_rows.losses_along, kernels),
            loss.newton_keeps_scores,
        )

    def workspace(self, scores: NDArray[np.floating]) -> NDArray[Any]:
        """Return an array that `gradient` fills for `hessian`."""
        return np.empty_like(scores) if self.per_class else np.empty(len(scores), np.uint64)

    def bytes_per_sample(self, scores: NDArray[np.floating]) -> int:
        """Return the bytes of a sample in the workspace."""
        return scores.shape[1] * scores.itemsize if self.per_class else 8
