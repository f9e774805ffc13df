"""Weak learners: small trees over the codes of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Feature of a node that asks nothing: every sample goes below.
NOWHERE = -1


class Learners(NamedTuple):
    """Complete binary trees of one depth; a node's children are ``2 k + 1`` (below) and ``2 k + 2``.

    Attributes
    ----------
    feature : int32 array of shape (n_learners, n_nodes)
        Column each node asks, `NOWHERE` for none.
    cut : int16 array of shape (n_learners, n_nodes)
        Samples with ``code > cut`` go above.
    missing_below : bool array of shape (n_learners, n_nodes)
        Missing values go below instead of above.
    leaf : int8 array of shape (n_learners, n_nodes + 1)
        Response at each leaf, from the lowest: -1, 0 or 1.
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
        """Return bytes that are equal for equal learners only."""
        rows = [np.ascontiguousarray(array).view(np.uint8) for array in self]
        return [row.tobytes() for row in np.concatenate(rows, axis=1)]
