"""The samples in the working set, with their feature vectors in memory."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.solvers.mrc.bounds import ROUNDING
from bigmc.solvers.mrc.expectations import Expectations
from bigmc.solvers.mrc.scan import gather_samples, is_dense, stack_rows, with_constant
from bigmc.store.dataset import Dataset

#: Times that mass is balanced at most, and a share of it that stands for none.
_BALANCINGS, _NOTHING = 30, 1e-300


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

    Attributes
    ----------
    samples : int64 array of shape (n_rows,)
        Number of each row's sample, increasing.
    matrix : array or csr_array of shape (n_rows, n_psi)
        ψ of each row.
    """

    def __init__(
        self,
        dataset: Dataset,
        expectations: Expectations,
        row_scale: NDArray[np.float32],
        room: int,
        engine: Engine,
    ) -> None:
        self._dataset = dataset
        self._expectations = expectations
        self._row_scale = row_scale
        self._room = room
        self._engine = engine
        n_classes = len(expectations.shares)
        self.samples = np.arange(-n_classes, 0)
        n_used = len(expectations.features)
        centroids = scipy.sparse.csr_array((expectations.tau[:n_used] / expectations.shares).T)
        self.matrix = with_constant(centroids, expectations.intercept, is_dense(dataset))

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
        kept = np.isin(self.samples, wanted)
        new = np.setdiff1d(wanted, self.samples)
        read = gather_samples(
            self._dataset, new, self._expectations, self._row_scale, self._room, self._engine
        )
        order = np.argsort(np.concatenate([self.samples[kept], new]), kind="stable")
        if scipy.sparse.issparse(self.matrix):
            self.matrix = stack_rows([self.matrix[kept], read])[order]
        else:  # one array beside the old one, no more
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            whole = np.empty((len(order), read.shape[1]))
            n_kept = int(kept.sum())
            whole[place[:n_kept]] = self.matrix[kept] if n_kept < len(kept) else self.matrix
            whole[place[n_kept:]] = read
            self.matrix = whole
        places = np.full(len(self.samples), -1)
        places[kept] = np.searchsorted(wanted, self.samples[kept])
        self.samples = wanted
        return places

    def balanced(self, dual: NDArray[np.float64], components: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return p without the mass that keeps the expectations of some components from zero.

        Rows where the feature has the sign that weighs more keep the share that the other sign balances, none
        if all have that sign. A row may have several such features, so this is done again until it settles.

        Parameters
        ----------
        dual : float64 array of shape (n_rows, n_classes)
        components : bool array of shape (n_psi, n_classes)
        """
        features = np.flatnonzero(components.any(axis=1))
        chosen, part = components[features], self.matrix[:, features]
        tolerance = ROUNDING / 10 * self._expectations.rms[features, np.newaxis]
        sides = (abs(part) + part) / 2, (abs(part) - part) / 2
        signs = [(side > 0).astype(np.float64) for side in sides]
        dual = dual.copy()
        for _ in range(_BALANCINGS):
            weights = [side.T @ dual for side in sides]
            off = chosen & (abs(weights[0] - weights[1]) > tolerance)
            if not off.any():
                break
            share = np.minimum(*weights)[off] / np.maximum(*weights)[off]
            kept = np.zeros(off.shape)
            kept[off] = np.log(np.maximum(share, _NOTHING))
            for weight, other, sign in zip(weights, weights[::-1], signs, strict=True):
                dual *= np.exp(sign @ np.where(weight > other, kept, 0.0))
        total = dual.sum()
        return dual / total if total > 0 else dual

    def moments(self, dual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Fᵀα in the form ``Σ_x p_xy ψ(x)``, shape (n_psi, n_classes), for p over the rows."""
        return np.asarray(self.matrix.T @ dual)
