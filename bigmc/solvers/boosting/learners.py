"""Weak learners: small trees over the codes of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Feature of a node that does not split: every sample goes below.
NOWHERE = -1


class Learners(NamedTuple):
    """Complete binary trees of one depth; a node's children are ``2 k + 1`` (below) and ``2 k + 2``.

    `feature` is the column a node splits on, or `NOWHERE`, and samples with ``code > cut`` go above;
    missing values go above unless `missing_below`. These have the shape (n_learners, n_nodes). `leaf`, of
    shape (n_learners, n_nodes + 1), has the response at each leaf, from the lowest: -1, 0 or 1.
    """

    feature: NDArray[np.int32]
    cut: NDArray[np.int16]
    missing_below: NDArray[np.bool_]
    leaf: NDArray[np.int8]

    @classmethod
    def empty(cls, depth: int) -> Learners:
        """Return no learners of a depth."""
        nodes = 2**depth - 1
        features, bins = np.empty((0, nodes), np.int32), np.empty((0, nodes), np.int16)
        return cls(features, bins, np.empty((0, nodes), np.bool_), np.empty((0, nodes + 1), np.int8))

    @classmethod
    def constant(cls, depth: int) -> Learners:
        """Return the learner that is 1 everywhere."""
        nodes = 2**depth - 1
        features, bins = np.full((1, nodes), NOWHERE, np.int32), np.zeros((1, nodes), np.int16)
        return cls(features, bins, np.zeros((1, nodes), np.bool_), np.ones((1, nodes + 1), np.int8))

    @classmethod
    def joined(cls, parts: Sequence[Learners]) -> Learners:
        """Return the learners of all parts."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def take(self, positions: Any) -> Learners:
        """Return some of the learners."""
        return Learners(*(array[positions] for array in self))

    def keys(self) -> list[bytes]:
        """Return bytes that are equal only for equal learners."""
        rows = [np.ascontiguousarray(array).view(np.uint8) for array in self]
        return [row.tobytes() for row in np.concatenate(rows, axis=1)]
