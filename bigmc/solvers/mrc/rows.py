"""The samples in the working set, with their feature vectors in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.solvers.mrc.bounds import ROUNDING
from bigmc.solvers.mrc.expectations import Expectations
from bigmc.solvers.mrc.scan import array_type, gather_samples
from bigmc.store.dataset import Dataset

#: Times that mass is balanced at most, and taken away at most; a share that stands for none.
_BALANCINGS, _REMOVALS, _NOTHING = 100, 20, 1e-300
#: Rows of an array that are moved at once, and bytes of a value while rows are looked at in double precision.
_MOVED, _CHUNK_BYTES = 64, 64


class WorkingRows:
    """Samples of the working set, and before them the centroid of every class, section III-E.

    The centroid of class c, ``τ_c / share_c``, is numbered ``c − n_classes``. It is the mean of training
    samples, so its constraints follow from theirs, and mass on it is mass on them: bounds are not changed.
    With the centroids alone the distribution that puts the share of each class on its centroid is in the
    uncertainty set, so that no restricted problem is unbounded.

    Parameters
    ----------
    dataset : Dataset
    expectations : Expectations
    row_scale : float32 array of shape (n_samples,)
    room : int
        Bytes a worker may take to read.
    engine : Engine
    max_rows : int
        Most rows that there may be.

    Attributes
    ----------
    samples : int64 array of shape (n_rows,)
        Number of each row's sample, increasing.
    matrix : array or csr_array of shape (n_rows, n_psi)
        ψ of each row; an array is in the precision of the values stored, but for the centroids exact.
    """

    def __init__(
        self,
        dataset: Dataset,
        expectations: Expectations,
        row_scale: NDArray[np.float32],
        room: int,
        engine: Engine,
        max_rows: int,
    ) -> None:
        self._dataset = dataset
        self._expectations = expectations
        self._row_scale = row_scale
        self._room = room
        self._engine = engine
        self._type = array_type(dataset)
        n_classes = len(expectations.shares)
        self.samples = np.arange(-n_classes, 0)
        self._centroids = (expectations.tau / expectations.shares).T
        if self._type is None:
            self.matrix = scipy.sparse.csr_array(self._centroids)
        else:  # what is never written takes no memory
            self._whole = np.empty((max_rows, expectations.tau.shape[0]), self._type)
            self._whole[:n_classes] = self._centroids
            self.matrix = self._whole[:n_classes]

    def __len__(self) -> int:
        return len(self.samples)

    def set(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hold these samples and the centroids, reading those not there yet.

        Parameters
        ----------
        samples : int64 array
            Increasing; centroids may be left out.

        Returns
        -------
        int64 array of shape (old number of rows,)
            New place of each row, -1 if it is gone.
        """
        wanted = np.union1d(self.samples[self.samples < 0], samples)
        kept = np.flatnonzero(np.isin(self.samples, wanted))
        new = np.setdiff1d(wanted, self.samples)
        places = np.full(len(self.samples), -1)
        places[kept] = np.searchsorted(wanted, self.samples[kept])
        pieces = gather_samples(
            self._dataset, new, self._expectations, self._row_scale, self._room, self._engine, self._type
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
        found = self.matrix[places]
        if self._type is not None:
            found = found.astype(np.float64)
            central = places < len(self._centroids)
            found[central] = self._centroids[places[central]]
        return found

    def _chunks(self) -> Iterator[slice]:
        """Yield the rows, so many at once that some copies of them are within the room."""
        entries = max(1, self.matrix.size // len(self))
        step = max(16, self._room // (_CHUNK_BYTES * entries))
        for lo in range(0, len(self), step):
            yield slice(lo, min(lo + step, len(self)))

    def balanced(self, dual: NDArray[np.float64], components: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return p without the mass that keeps the expectations of some components from zero.

        Rows where the feature has the sign that weighs more keep the share that the other sign balances, none
        if all have that sign. A row may have several such features, so this is done again until it settles;
        where it does not, all rows with the feature lose their mass.

        Parameters
        ----------
        dual : float64 array of shape (n_rows, n_classes)
        components : bool array of shape (n_psi, n_classes)
        """
        features = np.flatnonzero(components.any(axis=1))
        chosen = components[features]
        tolerance = ROUNDING / 10 * self._expectations.rms[features, np.newaxis]
        dual = dual.copy()
        for k in range(_BALANCINGS + _REMOVALS):
            total, size = np.zeros(chosen.shape), np.zeros(chosen.shape)
            for some in self._chunks():
                part = self.vectors(np.arange(some.start, some.stop))[:, features]
                total += part.T @ dual[some]
                size += abs(part).T @ dual[some]
            off = chosen & (abs(total) > tolerance)
            if not off.any():
                break
            share = (size[off] - abs(total[off])) / (size[off] + abs(total[off]))
            kept = np.zeros(off.shape)
            kept[off] = np.log(np.maximum(share, _NOTHING))
            rising, falling = np.where(total > 0, kept, 0.0), np.where(total < 0, kept, 0.0)
            if k >= _BALANCINGS:
                rising = falling = np.where(off, np.log(_NOTHING), 0.0)
            for some in self._chunks():
                part = self.vectors(np.arange(some.start, some.stop))[:, features]
                change = (part > 0).astype(np.float64) @ rising + (part < 0).astype(np.float64) @ falling
                dual[some] *= np.exp(change)
        mass = dual.sum()
        return dual / mass if mass > 0 else dual

    def moments(self, dual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Fᵀα in the form ``Σ_x p_xy ψ(x)``, shape (n_psi, n_classes), for p over the rows."""
        moments = np.zeros(self._expectations.tau.shape)
        for some in self._chunks():
            moments += self.vectors(np.arange(some.start, some.stop)).T @ dual[some]
        return moments
