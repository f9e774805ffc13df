"""Some of the samples of a dataset, with the columns of chosen features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.columns import Columns
from bigmc.store.dataset import Dataset


class Samples:
    """Labels and scales of some samples, as `bigmc.solvers.sparse.problem.Problem` needs them.

    Attributes
    ----------
    n_samples, n_classes : int
    has_sets : bool
    weights : float64 array of shape (n_samples,) or None
        Of the samples.
    """

    def __init__(
        self,
        dataset: Dataset,
        labels: NDArray[np.int32],
        row_scale: NDArray[np.float32],
        weights: NDArray[np.float64] | None,
        column_scale: NDArray[np.float32] | None,
    ) -> None:
        self.n_samples, self.n_classes, self.has_sets = len(labels), dataset.n_classes, dataset.has_sets
        self.weights = weights
        self._labels, self._row_scale, self._column_scale = labels, row_scale, column_scale

    @property
    def weightless(self) -> bool:
        """Whether no sample has a weight."""
        return self.weights is not None and not self.weights.any()

    def label_sets(self) -> NDArray[np.int32]:
        """Return the class codes of every sample, -1 after the last."""
        return self._labels

    def column_scale(self) -> NDArray[np.float32] | None:
        """Return the scale of every feature, or None."""
        return self._column_scale

    def row_scale(self, column_scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the factor of every row."""
        return self._row_scale


@dataclass(frozen=True)
class Chunk:
    """Some samples and their columns of every layer."""

    samples: Samples
    held: list[Columns]
    positions: list[NDArray[np.uint16]]
    """Place of the samples of each piece in its shard."""
    n_bytes: int
    """Read from the file."""

    def counts(self) -> list[NDArray[np.int64]]:
        """Return the number of entries of each column of each layer."""
        return [columns.sizes() for columns in self.held]

    def of_features(self, groups: Sequence[NDArray[np.int64]]) -> Chunk:
        """Return the same samples with columns of the one layer, group by group of increasing features."""
        (layer,) = self.held
        held = [layer.choose(np.searchsorted(layer.features, features)) for features in groups]
        return replace(self, held=held)
