"""Candidates whose weights the samples of a chunk may change to make a dual point feasible.

Where there are more candidates than sweeps have memory for, it is those whose gradients are the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.evaluation import dual_norms
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.scratch.chunk import Chunk
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated


@dataclass(frozen=True)
class Movable:
    """Candidates whose weights may change, and weights to start from.

    Attributes
    ----------
    layers : sequence of int64 arrays
        Features, layer by layer.
    point : Evaluated
        Weights, with the gradients of these features alone.
    fixed : int64 array or None
        All other features with weights, increasing, which keep theirs; None where all candidates may change.
    """

    layers: Sequence[NDArray[np.int64]]
    point: Evaluated
    fixed: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, task: ChunkTask, spill: Spill, point: Evaluated, most: int | None) -> Movable:
        """Return all candidates, or `most` of the one layer; the point has the gradients of all."""
        layers = spill.features_by_layer
        if most is None or sum(map(len, layers)) <= most:
            return cls(layers, point)
        (features,) = layers
        norms = dual_norms(task, point, layers)
        chosen = np.sort(np.argsort(-norms, kind="stable")[:most])
        fixed = np.setdiff1d(point.coef.features, features[chosen], assume_unique=True)
        part = replace(point, gradient=point.gradient[chosen], curvature=point.curvature[chosen])
        return cls([features[chosen]], part, fixed)

    def columns_of(self, chunk: Chunk) -> tuple[Chunk, list[Columns]]:
        """Return a chunk with these columns alone, layer by layer, and those that keep their weights."""
        if self.fixed is None:
            return chunk, []
        of_both = chunk.of_features([*self.layers, self.fixed])
        *held, fixed = of_both.held
        return replace(of_both, held=held), [fixed]
