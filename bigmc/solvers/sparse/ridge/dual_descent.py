"""Ridge problems in memory: the squared hinge of each class against the rest, without another penalty.

Where no weight is zero there is nothing to select, and coordinates of the dual (one for each sample and
class) reach a gap of some per cent after a few times through the samples, each of which costs one product and
at most one update: LIBLINEAR's algorithm with the classes side by side. The intercept is shrunk like the
weights, as LIBLINEAR's is; the bound is of the problem in which it is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.solvers.sparse.ridge.duals import (
    ROWS_AT_ONCE,
    Visit,
    Weighed,
    add_up,
    diagonal_of,
    dual_value,
    excess_of,
    half_norm,
    hinge_losses,
    samples_in_pieces,
    scores_of,
    visit_once,
)
from bigmc.solvers.sparse.ridge.lone_features import Change
from bigmc.solvers.sparse.ridge.row_order import ENTRIES_AT_ONCE, in_row_order
from bigmc.solvers.sparse.state import Start
from bigmc.store.dataset import Dataset

_FEWEST_EPOCHS = 3
"""Times through the samples of a useful training."""
_COPIED = 2048
"""Features whose weights are copied at once."""


class DualDescent:
    """Samples in row order, their dual variables, and the weights these make.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples, which are copied.
    engine : Engine
        Its threads share the classes.
    seed : int
        Of the order of the samples.
    sample_weight : float64 array of shape (n_samples,), optional
        Samples of weight 0 are passed over.
    fit_intercept : bool, optional
        Add a feature that is always 1.
    features : int64 array, optional
        The only features that may have weight, increasing; by default all that occur.

    Attributes
    ----------
    features : int64 array of shape (n_used,)
        Features that may have weight.
    gap : float
        Relative gap of the two objectives, the primal one estimated from the losses of the samples when they
        were visited last; 1 before the first epoch.
    n_epochs : int
        Times through the samples so far.
    n_visited : int
        Samples that the last one had time for.
    """

    def __init__(
        self,
        dataset: Dataset,
        engine: Engine,
        seed: int = 0,
        sample_weight: NDArray[np.float64] | None = None,
        fit_intercept: bool = True,
        features: NDArray[np.int64] | None = None,
    ) -> None:
        self._engine, self._seed = engine.local(), seed  # all arrays are in this process
        self.n_classes = dataset.n_classes
        self.features = np.flatnonzero(dataset.column_nnz()) if features is None else features
        lone = dataset.column_nnz()[self.features] == 1
        self._shared = np.flatnonzero(~lone)
        self._rows, self._squares, self._lone = in_row_order(dataset, self.features, lone, fit_intercept)
        self._change: Change | None = None
        self._targets = dataset.label_sets()
        weights = np.ones(dataset.n_samples) if sample_weight is None else sample_weight
        self._visited = np.flatnonzero(weights > 0)
        self._weights, self._weight_sum = weights, float(weights.sum())
        width = padded_classes(self.n_classes)
        self._duals = np.zeros((dataset.n_samples, width), np.float32)
        self._coef = np.zeros((len(self._shared) + 1, width), np.float32)
        self.gap, self.n_epochs, self.n_visited = 1.0, 0, 0
        self._epoch_seconds = 0.0
        self._moved = self._visited[:0]  # samples that may have dual variables
        self._ridge: float | None = None

    @staticmethod
    def memory(dataset: Dataset) -> int:
        """Return the bytes it takes, with the weights it returns."""
        counts = dataset.column_nnz()
        n_lone, n_shared = int(np.count_nonzero(counts == 1)), int(np.count_nonzero(counts > 1))
        width, of_feature = padded_classes(dataset.n_classes), DualDescent.memory_of_feature
        decoded = max(max(min(ENTRIES_AT_ONCE, shard.nnz), shard.n_rows) for shard in dataset.shards)
        entries = dataset.nnz * (4 + 4) + 2 * decoded * dataset.entry_bytes  # of a shard and the one before
        per_row = 12 * 8 + 4 * dataset.most_labels()
        duals = DualDescent.memory_of_duals(dataset)
        features = of_feature(dataset.n_classes) * (n_shared + 1) + (8 * width + 40) * n_lone
        return entries + per_row * dataset.n_samples + duals + features

    @staticmethod
    def memory_of_feature(n_classes: int) -> int:
        """Return the bytes per feature of several samples: its weights and the arrays that go with them."""
        return 12 * padded_classes(n_classes) + 40

    @staticmethod
    def memory_of_duals(dataset: Dataset) -> int:
        """Return the bytes of the dual variables."""
        return 4 * padded_classes(dataset.n_classes) * dataset.n_samples

    def descend(self, ridge: float, tol: float, most_epochs: int, ends: float = math.inf) -> None:
        """Go through the samples until the gap is at most `tol`, from the dual variables there are.

        With another ridge than before these are first scaled, those of a class by the factor that is best.

        Parameters
        ----------
        ridge : float
            Strength of the squared norm in ``1/n sum_i w_i loss_i + ridge / 2 |W|²``.
        tol : float
            Relative gap.
        most_epochs : int
            Times through the samples, at most.
        ends : float, optional
            Time by `time.monotonic` before which the last one ends, unless it is the first. If there is no
            time for `_FEWEST_EPOCHS` through all samples, they are through some that are drawn at random:
            after a single one the classes seen last outweigh the others.
        """
        diagonal = self._diagonal(ridge)
        if ridge != self._ridge and self._duals.any():
            self._scale_duals(diagonal)
        self._ridge, self.gap = ridge, 1.0
        lower = self._dual_objective(diagonal)
        began, learned = time.monotonic(), self._visited
        first_ends = began + max(ends - began, 0.0) / _FEWEST_EPOCHS
        for epoch in range(most_epochs):
            began, order = time.monotonic(), self._order(learned)
            visit = self._visit(order, diagonal, math.inf if epoch else first_ends)
            self.n_visited, seconds = visit.n_samples, time.monotonic() - began
            learned = self._visited if self.is_whole else order[: visit.n_samples]
            self._epoch_seconds = seconds * len(self._visited) / max(self.n_visited, 1)
            lower += visit.gains
            if self.is_whole:
                upper = visit.losses + self._half_norm()
                self.gap = (upper - lower) / upper if upper > 0 else 0.0
            may_end = self.is_whole or epoch + 1 >= _FEWEST_EPOCHS
            if self.gap <= tol or (may_end and time.monotonic() + seconds > ends):
                break

    @property
    def is_whole(self) -> bool:
        """Whether the last time through the samples was through all of them."""
        return self.n_visited == len(self._visited)

    def has_time(self, ends: float) -> bool:
        """Return whether what takes as long as a time through the samples ends in time."""
        return time.monotonic() + self._epoch_seconds <= ends

    def duals(self) -> NDArray[np.float32]:
        """Return a copy of the dual variables, for `start_from`, shape (n_samples, width)."""
        return self._duals.copy()

    def take_duals(self) -> NDArray[np.float32]:
        """Return the dual variables themselves, as the last use of this object."""
        return self._duals

    def start_from(self, duals: NDArray[np.float32], places: NDArray[np.int64] | None = None) -> None:
        """Start from dual variables of a similar problem: of other features, weights or fewer samples.

        Parameters
        ----------
        duals : float32 array of shape (n_given, width)
            As `duals` of that problem returned them.
        places : int64 array of shape (n_given,), optional
            Which samples they are of; by default all in their order. Others have 0.
        """
        self.reset()
        self._duals[slice(None) if places is None else places] = duals
        self._duals[self._weights <= 0] = 0.0
        self._moved = self._visited if places is None else np.intersect1d(self._visited, places)
        add_up(self._moved, self._rows, self._duals, self._coef, self._engine)  # others add nothing
        if self._rows.constant:
            self._coef[-1] = self._duals.sum(axis=0, dtype=np.float64)

    def start(self) -> Start:
        """Return the weights."""
        used = np.concatenate([[False], *(weights.any(axis=1) for weights in self.weights())])[1:]
        coef = np.empty((int(np.count_nonzero(used)), self.n_classes))
        lo = place = 0
        for weights in self.weights():  # a copy of all rows at once would be in memory too
            kept = weights[used[place : place + len(weights)]]
            coef[lo : lo + len(kept)] = kept
            lo, place = lo + len(kept), place + len(weights)
        return Start(self.features[used], coef, self.intercept.astype(np.float64))

    def weights(self) -> Iterator[NDArray[np.float32]]:
        """Yield the weights of all features as they are now, some features at a time, a row for each."""
        n_classes, lone = self.n_classes, self._lone
        for lo in range(0, len(self.features), _COPIED):
            hi = min(lo + _COPIED, len(self.features))
            a, b = np.searchsorted(self._shared, (lo, hi))
            c, d = np.searchsorted(lone.places, (lo, hi))
            weights = np.empty((hi - lo, n_classes), np.float32)
            weights[self._shared[a:b] - lo] = self._coef[a:b, :n_classes]
            if d > c:
                alone = lone.weights(c, d, self._duals)[:, :n_classes]
                weights[lone.places[c:d] - lo] = alone if self._change is None else self._change(alone)
            yield weights

    def change_weights(self, change: Change) -> None:
        """Replace the weights, feature by feature; the intercepts stay.

        After that the dual variables can only be used by `lower_bound`.

        Parameters
        ----------
        change : callable
            Of a float32 array, a row for a feature, with all classes.
        """
        for lo in range(0, len(self._shared), _COPIED):
            some = self._coef[lo : min(lo + _COPIED, len(self._shared)), : self.n_classes]
            some[:] = change(some)
        self._change = change

    @property
    def intercept(self) -> NDArray[np.float32]:
        """The intercepts as they are now, shape (n_classes,)."""
        return self._coef[-1, : self.n_classes]

    def objective(self, ridge: float) -> float:
        """Return the training objective of the weights, in which the intercepts are not penalised."""
        total = 0.0
        for chosen in samples_in_pieces(self._visited, self._coef.shape[1], ROWS_AT_ONCE):
            total += float(self._weights[chosen] @ hinge_losses(self.scores(chosen), self._targets[chosen]))
        squares = sum(float(np.einsum("jr,jr->", w, w, dtype=np.float64)) for w in self.weights())
        return total / self._weight_sum + 0.5 * ridge * squares

    def lower_bound(self, ridge: float) -> float:
        """Return a lower bound of the optimum, in the units of the problem; the weights are lost.

        Where an intercept is not penalised dual variables are first made feasible, see `excess_of`.
        """
        if self._rows.constant:
            excess_of(self._duals).take_off(self._duals)
        self._coef[:], self._change = 0.0, None
        add_up(self._visited, self._rows, self._duals, self._coef, self._engine)
        self._coef[-1] = 0.0
        value = self._dual_objective(self._diagonal(ridge))
        rounding = 4.0 * np.finfo(np.float32).eps * (abs(value) + 2.0 * self._half_norm())
        return ridge * (value - float(rounding))

    def reset(self) -> None:
        """Set all dual variables and weights to zero."""
        if len(self._moved):  # else they are zero, and large arrays take no memory where none was written
            self._duals[:], self._coef[:], self._change = 0.0, 0.0, None
            self._moved = self._visited[:0]
        self.gap, self.n_epochs, self.n_visited = 1.0, 0, 0
        self._ridge = None

    @property
    def n_used(self) -> int:
        """Number of features with weight."""
        lone = np.repeat(self._duals.any(axis=1), np.diff(self._lone.indptr)) & (self._lone.values != 0)
        return int(np.count_nonzero(self._coef[:-1].any(axis=1))) + int(np.count_nonzero(lone))

    def scores(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the scores of some samples, shape (n_chosen, n_classes)."""
        scores = scores_of(chosen, self._rows, self._coef, self._engine)[:, : self.n_classes]
        for lo in range(0, len(chosen) if len(self._lone.places) else 0, ROWS_AT_ONCE):
            some = slice(lo, lo + ROWS_AT_ONCE)
            scores[some] += self._lone.scores(chosen[some], self._duals[:, : self.n_classes], self._change)
        return scores.astype(np.float64)

    def _order(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return samples in the order of the next epoch."""
        generator = np.random.default_rng([self._seed, self.n_epochs])
        return generator.permutation(samples)

    def _visit(self, order: NDArray[np.int64], diagonal: NDArray[np.float32], ends: float) -> Visit:
        """Visit samples once, or as many as there is time for."""
        samples = Weighed(self._rows, self._targets, self._squares, diagonal, self._lone.squares)
        self.n_epochs += 1
        visit = visit_once(order, samples, self._duals, self._coef, self.n_classes, self._engine, ends)
        whole = visit.n_samples == len(self._visited)
        self._moved = self._visited if whole else np.union1d(self._moved, order[: visit.n_samples])
        return visit

    def _diagonal(self, ridge: float) -> NDArray[np.float32]:
        return diagonal_of(self._weights, self._weight_sum, ridge)

    def _scale_duals(self, diagonal: NDArray[np.float32]) -> None:
        """Multiply the dual variables of every class by the factor with the largest dual objective."""
        sums, squares = np.zeros(self._coef.shape[1]), np.einsum("jr,jr->r", self._coef, self._coef)
        squares = squares.astype(np.float64)
        for chosen in samples_in_pieces(self._moved, self._coef.shape[1], ROWS_AT_ONCE):
            duals = self._duals[chosen].astype(np.float64)
            sums += np.abs(duals).sum(axis=0)
            squares += (diagonal[chosen].astype(np.float64) + self._lone.squares[chosen]) @ duals**2
        factors = np.divide(sums, squares, out=np.ones_like(sums), where=squares > 0).astype(np.float32)
        self._duals *= factors
        self._coef *= factors

    def _half_norm(self) -> float:
        return half_norm(self._coef, self.n_classes) + self._lone.half_norm(self._duals)

    def _dual_objective(self, diagonal: NDArray[np.float32]) -> float:
        if not self._duals.any():
            return 0.0
        value = 0.0
        for chosen in samples_in_pieces(self._moved, self._coef.shape[1], ROWS_AT_ONCE):
            value += dual_value(self._duals[chosen, : self.n_classes], diagonal[chosen])
        return value - self._half_norm()
