"""Gradients of the candidates at a dual point, without a pass: rounds measure them at the weights.

The dual point of a certificate is that of the weights, but for the samples of some chunks
(`bigmc.solvers.sparse.chunks.feasible_dual`). So the gradients there are those that the last round measured,
and what these samples change, which takes no more than their own columns. Passes leave the candidates out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Measures
from bigmc.solvers.sparse.chunks.evaluation import Evaluation, candidate_measures
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated


@dataclass(frozen=True)
class Measured:
    """Gradients of some features as the conditions of optimality see them.

    Attributes
    ----------
    features : int64 array
        Increasing.
    measures : Measures
        Of each.
    """

    features: NDArray[np.int64]
    measures: Measures


def gradient_changes(
    task: ChunkTask, spill: Spill, point: Evaluated, moved: Sequence[MovedSamples]
) -> NDArray[np.float64]:
    """Return what samples with other weights, one at least, change in the gradients at a point.

    They have the shape (n_candidates, width), layer by layer of the spill.
    """
    total: NDArray[np.float64] | None = None
    for own in moved:
        chunk = own.read(spill)
        for sign, coef, intercept in ((-1.0, point.coef, point.intercept), (1.0, own.coef, own.intercept)):
            evaluation = Evaluation(task, spill.features_by_layer, coef, intercept)
            evaluation.add(chunk)
            gradient = evaluation.gradient
            gradient *= sign
            total = gradient if total is None else np.add(total, gradient, out=total)
    assert total is not None
    return total


def measured_at(task: ChunkTask, spill: Spill, point: Evaluated) -> Measured:
    """Measure the gradients of the features of the spill, which a point has layer by layer."""
    measures = candidate_measures(task, point, spill.features_by_layer)
    order = np.argsort(spill.features)
    return Measured(spill.features[order], Measures(*(array[order] for array in measures)))
