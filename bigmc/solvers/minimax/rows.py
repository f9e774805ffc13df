"""The samples in the working set, with their feature vectors in memory."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.solvers.minimax.bounds import ROUNDING
from bigmc.solvers.minimax.expectations import Expectations
from bigmc.solvers.minimax.pricing import array_type, gather_samples
from bigmc.store.dataset import Dataset

#: Maximum number of removals of mass of one sign, and the share of that sign from which it is removed.
_REMOVALS, _LONE = 20, 0.999
#: Maximum number of corrections, and maximum steps and relative residual of each.
_CORRECTIONS, _STEPS, _SOLVED = 4, 100, 1e-8
#: Rows of an array that are moved at once, and bytes of a value while rows are read in double precision.
_MOVED, _CHUNK_BYTES = 64, 64


class Measure(Enum):
    """The measure of the features' values that is added up."""

    VALUE = "value"
    SIZE = "size"
    SQUARE = "square"


class WorkingRows:
    """Samples of the working set, and before them the centroid of every class, section III-E.

    The centroid of class c, ``τ_c / share_c``, has the number ``c − n_classes``. It is the mean of
    training samples, so its constraints follow from theirs, and mass on it is mass on them: bounds are
    not changed. The distribution with the share of each class on its centroid is in the uncertainty set,
    so with the centroids no restricted problem is unbounded. Samples increase; `matrix`, of shape
    (n_rows, n_psi), has ψ of each row. If it is dense, it is in the precision of the stored values,
    except for the centroids.
    """

    def __init__(
        self,
        dataset: Dataset,
        expectations: Expectations,
        row_scale: NDArray[np.float32],
        scratch_bytes: int,
        engine: Engine,
        max_rows: int,
    ) -> None:
        self._dataset = dataset
        self._expectations = expectations
        self._row_scale = row_scale
        self._scratch_bytes = scratch_bytes
        self._engine = engine
        self._type = array_type(dataset)
        n_classes = len(expectations.shares)
        self.samples = np.arange(-n_classes, 0)
        self._centroids = (expectations.tau / expectations.shares).T
        if self._type is None:
            self.matrix = scipy.sparse.csr_array(self._centroids)
        else:  # memory that is never written is not allocated
            self._whole = np.empty((max_rows, expectations.tau.shape[0]), self._type)
            self._whole[:n_classes] = self._centroids
            self.matrix = self._whole[:n_classes]

    def __len__(self) -> int:
        return len(self.samples)

    def set(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hold these samples, which increase, and the centroids; read the missing ones.

        Returns the new place of each old row, -1 if it was dropped.
        """
        wanted = np.union1d(self.samples[self.samples < 0], samples)
        kept = np.flatnonzero(np.isin(self.samples, wanted))
        new = np.setdiff1d(wanted, self.samples)
        places = np.full(len(self.samples), -1)
        places[kept] = np.searchsorted(wanted, self.samples[kept])
        pieces = gather_samples(
            self._dataset,
            new,
            self._expectations,
            self._row_scale,
            self._scratch_bytes,
            self._engine,
            self._type,
        )
        if self._type is None:
            order = np.argsort(np.concatenate([self.samples[kept], new]), kind="stable")
            read = [piece for _, piece in pieces]
            self.matrix = scipy.sparse.vstack([self.matrix[kept], *read], format="csr")[order]
        else:
            self._move(kept, np.arange(len(kept)))
            self._move(np.arange(len(kept)), places[kept])
            at = np.searchsorted(wanted, new)
            for some, piece in pieces:
                self._whole[at[some]] = piece
            self.matrix = self._whole[: len(wanted)]
        self.samples = wanted
        return places

    def _move(self, old: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        """Move rows within the array, all down or all up, both places increasing."""
        starts = range(0, len(old), _MOVED)
        for lo in starts if (new <= old).all() else reversed(starts):
            self._whole[new[lo : lo + _MOVED]] = self._whole[old[lo : lo + _MOVED]]

    def vectors(self, places: NDArray[np.int64]) -> Any:
        """Return ψ of some rows in double precision."""
        vectors = self.matrix[places]
        if self._type is not None:
            vectors = vectors.astype(np.float64)
            central = places < len(self._centroids)
            vectors[central] = self._centroids[places[central]]
        return vectors

    def _chunks(self) -> Iterator[slice]:
        """Yield ranges of rows such that some copies of one fit into the scratch memory."""
        entries = max(1, self.matrix.size // len(self))
        step = max(16, self._scratch_bytes // (_CHUNK_BYTES * entries))
        for lo in range(0, len(self), step):
            yield slice(lo, min(lo + step, len(self)))

    def balanced(self, dual: NDArray[np.float64], components: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return a p close by under which the expectations of some components are zero.

        If all mass has the same sign of the feature, the only way is to remove it. The rest is
        changed in proportion, ``p (1 − Xa)`` with X the features in question: ``Xᵀ Diag(p) X a = Xᵀ
        p``. `dual` has the shape (n_rows, n_classes), `components` the shape (n_psi, n_classes).
        """
        features = np.flatnonzero(components.any(axis=1))
        chosen = components[features]
        tolerance = ROUNDING / 10 * self._expectations.rms[features, np.newaxis]
        for _ in range(_REMOVALS):
            total, size = self._weighed(features, dual), self._weighed(features, dual, Measure.SIZE)
            lone = chosen & (abs(total) > tolerance) & (abs(total) >= _LONE * size)
            if not lone.any():
                break
            dual = np.where(self._weighing(features, lone.astype(np.float64), Measure.SIZE) > 0, 0.0, dual)
        for _ in range(_CORRECTIONS):
            total = np.where(chosen, self._weighed(features, dual), 0.0)
            if not (abs(total) > tolerance).any():
                break
            spread = np.sqrt(self._weighed(features, dual, Measure.SQUARE))
            unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=chosen & (spread > 0))
            # Conjugate gradients, separately for every class.
            correction, residual = np.zeros_like(total), unit * total
            direction, square = residual.copy(), (residual**2).sum(axis=0)
            least = _SOLVED**2 * square
            for _ in range(_STEPS):
                if (square <= least).all():
                    break
                image = unit * self._weighed(features, dual * self._weighing(features, unit * direction))
                curvature = (direction * image).sum(axis=0)
                length = np.divide(
                    square, curvature, out=np.zeros_like(curvature), where=(curvature > 0) & (square > least)
                )
                correction += length * direction
                residual -= length * image
                before, square = square, (residual**2).sum(axis=0)
                direction = (
                    residual
                    + np.divide(square, before, where=before > 0, out=np.zeros_like(before)) * direction
                )
            dual = dual * np.maximum(1.0 - self._weighing(features, unit * correction), 0.0)
        mass = dual.sum()
        return dual / mass if mass > 0 else dual

    def _weighed(
        self, features: NDArray[np.int64], dual: NDArray[np.float64], measure: Measure = Measure.VALUE
    ) -> NDArray[np.float64]:
        """Return ``Σ_x p_xy m(ψ(x))`` of some features for a measure m."""
        total = np.zeros((len(features), dual.shape[1]))
        for some in self._chunks():
            part = self.vectors(np.arange(some.start, some.stop))[:, features]
            total += _measured(part, measure).T @ dual[some]
        return total

    def _weighing(
        self, features: NDArray[np.int64], coef: NDArray[np.float64], measure: Measure = Measure.VALUE
    ) -> NDArray[np.float64]:
        """Return ``Σ_j m(ψ_j(x)) coef_jy`` over some features for a measure m."""
        pieces = []
        for some in self._chunks():
            part = self.vectors(np.arange(some.start, some.stop))[:, features]
            pieces.append(np.asarray(_measured(part, measure) @ coef))
        return np.concatenate(pieces)

    def moments(self, dual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Fᵀα in the form ``Σ_x p_xy ψ(x)``, shape (n_psi, n_classes), for p over the rows."""
        moments = np.zeros(self._expectations.tau.shape)
        for some in self._chunks():
            moments += self.vectors(np.arange(some.start, some.stop)).T @ dual[some]
        return moments


def _measured(part: Any, measure: Measure) -> Any:
    """Return a measure of every entry of a dense or sparse matrix."""
    if measure is Measure.SIZE:
        return abs(part)
    return part**2 if measure is Measure.SQUARE else part
