"""The samples of a run with their scores, and the sums and products over both."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.errors import DataError
from bigmc.kernels.linear.arguments import Rows, Samples
from bigmc.kernels.linear.losses.sums import entropy
from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.kernels.linear.rows import log_rows
from bigmc.kernels.linear.scoring.score_matrix import add_columns, fill_scores, shift_scores
from bigmc.objectives import Objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.margins import ClassMargins, Margins, PairMargins
from bigmc.solvers.sparse.weighted_columns import WeightedColumns

#: Rows a worker takes at once in passes over the scores.
_PART_ROWS = 8192
#: The same for products with the Hessian, for which a loss keeps as much as the scores.
_PRODUCT_ROWS = 512


class SampleTable(Protocol):
    """The interface of samples that a problem needs, as of a `bigmc.store.dataset.Dataset`."""

    n_samples: int
    n_classes: int

    @property
    def has_sets(self) -> bool:
        """Whether labels are sets."""
        ...

    def label_sets(self) -> NDArray[np.int32]:
        """Return the class codes of every sample, -1 after the last."""
        ...

    def column_scale(self) -> NDArray[np.float32] | None:
        """Return the scale of every feature, or None."""
        ...

    def row_scale(self, column_scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the factor of every row."""
        ...


def check_labels(samples: SampleTable) -> None:
    """Raise a DataError where samples have no label, or one that is no class."""
    labels = samples.label_sets()
    if (not samples.has_sets and labels.min() < 0) or labels.max() >= samples.n_classes:
        raise DataError("some samples have no label", "train on labelled samples only")


class Problem:
    """Rows, scores and objective of a run.

    Parameters
    ----------
    sample_weight : float64 array of shape (n_samples,) or None
    dtype : numpy.dtype
        Of the scores.

    Attributes
    ----------
    scores : array of shape (n_samples, width)
        Product of samples and weights plus intercept; pads hold the loss's pad score.
    residuals : array of shape (n_samples, width), or (n_samples, 1)
        Where a loss that keeps them has its residuals: in the place of the scores, but for two classes.
    labels : int32 array of shape (n_samples, most labels)
        Of each sample, increasing, -1 after the last.
    label : int32 array of shape (n_samples,)
        The first of them, where samples have one.
    row_scale, gain : arrays of shape (n_samples,)
        Factor of a row's values, and the same times the sample weight.
    column_scale : float32 array of shape (n_features,) or None
    weight_sum : float
        n of the objective: the sum of the sample weights.
    """

    def __init__(
        self,
        dataset: SampleTable,
        objective: Objective,
        alpha: float,
        sample_weight: NDArray[np.float64] | None,
        dtype: np.dtype[Any],
        engine: Engine,
    ) -> None:
        self.objective = objective
        self.alpha = alpha
        self.engine = engine
        self.n_samples, self.n_classes = dataset.n_samples, dataset.n_classes
        self.labels = dataset.label_sets()
        self.label = self.labels[:, 0]
        check_labels(dataset)
        self.column_scale = dataset.column_scale()
        self.row_scale = dataset.row_scale(self.column_scale).astype(dtype, copy=False)
        self.weights = np.empty(0)
        self.gain = self.row_scale
        self.weight_sum = float(self.n_samples)
        if sample_weight is not None:
            self.weights = np.ascontiguousarray(sample_weight, np.float64)
            self.weight_sum = float(self.weights.sum())
            if not (np.isfinite(self.weights).all() and self.weights.min() >= 0 and self.weight_sum > 0):
                raise DataError("sample weights must be finite, not negative, and not all zero")
            self.gain = (self.row_scale * self.weights).astype(dtype)
        self.width = padded_classes(self.n_classes)
        self.scores = np.empty((self.n_samples, self.width), dtype)
        of_residuals = objective.residuals_width(self.n_classes, self.width)
        self.residuals = (
            self.scores if of_residuals == self.width else np.empty((self.n_samples, of_residuals), dtype)
        )

    def unscaled(self) -> Problem:
        """Return the same samples, scores included, for columns whose values have their scales already."""
        other = copy.copy(self)
        other.column_scale, other.row_scale = None, np.ones_like(self.row_scale)
        other.gain = self.weights.astype(self.dtype) if len(self.weights) else other.row_scale
        return other

    @property
    def samples(self) -> Samples:
        """The samples as kernels take them."""
        return Samples(self.scores, self.labels, self.weights, self.row_scale, self.gain)

    @property
    def residual_samples(self) -> Samples:
        """The samples as kernels take them that add up gradients, with residuals if the loss keeps them."""
        return self.samples._replace(scores=self.residuals)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the scores."""
        dtype: np.dtype[Any] = self.scores.dtype
        return dtype

    @property
    def two_over_n(self) -> float:
        """Factor of the gradient, ``2 / n``."""
        return 2.0 / self.weight_sum

    def scale_of(self, features: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the column scale of some features."""
        if self.column_scale is None:
            return np.ones(len(features))
        return self.column_scale[features].astype(np.float64)

    def padded(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of the classes as the row of a feature, zeros in the pads."""
        row = np.zeros((1, self.width), values.dtype)
        row[0, : len(values)] = values
        return row

    def _row_parts(self) -> list[tuple[int, int]]:
        return [(i, min(i + _PART_ROWS, self.n_samples)) for i in range(0, self.n_samples, _PART_ROWS)]

    def rebuild_scores(
        self, coef: Coefficients, intercept: NDArray[np.float64], holding: Iterable[Columns]
    ) -> None:
        """Set the scores to intercept plus samples times weights.

        Every row is added up in the order of the features, whatever the blocks and workers, so that
        equal weights give equal bits.

        Parameters
        ----------
        intercept : float64 array of shape (n_classes,)
        holding : iterable of Columns
            All features with weights, in increasing order; others are passed over.
        """
        self.add_up_scores(intercept, WeightedColumns.of(coef, holding))

    def add_up_scores(self, intercept: NDArray[np.float64], weighted: Iterable[WeightedColumns]) -> None:
        """Set the scores to intercept, of shape (n_classes,), plus columns times weights, in this order."""
        pad = self.objective.loss.pad_score
        n_cuts = 1  # of the rows of a shard

        def start(part: tuple[int, int]) -> None:
            fill_scores(intercept, pad, self.scores[part[0] : part[1]])

        def add(part: tuple[int, int], columns: Columns, used: Any, scale: Any, rows: Any) -> None:
            s, k = part
            own = slice(columns.base[s], columns.base[s + 1])
            shard = (columns.indptr[s], columns.indices, columns.data)
            n_rows = own.stop - own.start
            span = (n_rows * k // n_cuts, n_rows * (k + 1) // n_cuts)
            add_columns(used, shard, self.row_scale[own], scale, rows, span, self.scores[own])

        for_each(self.engine, start, self._row_parts())
        for columns, used, rows in weighted:
            n_shards = len(columns.base) - 1
            n_cuts = -(-self.engine.n_threads // n_shards)
            shared = (columns, columns.positions[used], self.scale_of(columns.features[used]), rows)
            parts = list(product(range(n_shards), range(n_cuts)))
            for_each(self.engine, add, parts, *shared)

    def fill_residuals(self, shares: NDArray[Any] | None = None) -> None:
        """Fill the residuals, if the loss keeps them: gradients are added up from these.

        They may take the place of the scores: what takes scores comes before, or after they are set anew.
        Probabilities go to `shares`, if given.
        """

        def fill(part: tuple[int, int]) -> None:
            some = slice(*part)
            own = None if shares is None else shares[some]
            self.objective.fill_residuals(self.scores[some], self.labels[some], self.residuals[some], own)

        for_each(self.engine, fill, self._row_parts())

    @cached_property
    def spare_residuals(self) -> NDArray[Any]:
        """An array of the shape of the residuals, for probabilities or residuals of other scores."""
        return np.empty_like(self.residuals)

    def dual_samples(self, factor: NDArray[np.floating]) -> Samples:
        """Return the samples as kernels take them that add up gradients of a dual point.

        A loss that keeps residuals has those in the place of the scores; they are in `spare_residuals`.

        Parameters
        ----------
        factor : array of shape (n_classes, width), or of no rows
            Factors of the dual variables, see `bigmc.objectives.losses.Loss.balance`.
        """
        if not self.objective.loss.keeps_residuals:
            return self.residual_samples
        residuals = self.spare_residuals

        def fill(part: tuple[int, int]) -> None:
            some = slice(*part)
            if len(factor):
                log_rows.balanced_residuals(self.scores[some], self.labels[some], factor, residuals[some])
            else:
                self.objective.fill_residuals(self.scores[some], self.labels[some], residuals[some], None)

        for_each(self.engine, fill, self._row_parts())
        return self.samples._replace(scores=residuals)

    def total_loss(self) -> float:
        """Return the weighted sum of the losses at the present scores."""
        if not self.objective.loss.keeps_residuals:
            return self.margins().total_loss

        def add_up(part: tuple[int, int]) -> float:
            some = slice(*part)
            weights = self.weights[some] if len(self.weights) else self.weights
            total: float = log_rows.total_loss(self.n_classes, self.scores[some], self.labels[some], weights)
            return total

        return sum(total for _, total in self.engine.map(add_up, self._row_parts()))

    def margins(self) -> Margins:
        """Add up the margins of all samples at the present scores."""
        loss = self.objective.loss

        def add_up(part: tuple[int, int]) -> NDArray[np.float64]:
            sums = Margins.of(loss, Margins.empty(self.n_classes))
            lo, hi = part
            weights = self.weights[lo:hi] if len(self.weights) else self.weights
            if isinstance(sums, ClassMargins):
                loss.class_totals(self.scores[lo:hi], self.labels[lo:hi], weights, *sums.parts)
            else:
                loss.class_sums(self.scores[lo:hi], self.labels[lo:hi], weights, *sums.stacked)
            return sums.stacked

        total = Margins.empty(self.n_classes)
        for _, sums in self.engine.map(add_up, self._row_parts()):
            total += sums
        return Margins.of(loss, total)

    def pair_margins(self) -> PairMargins:
        """Add up the margins of all samples by pairs of classes, however many these are."""
        margins = self.margins()
        if isinstance(margins, PairMargins):
            return margins
        loss, sums = self.objective.loss, np.zeros((3, self.n_classes, self.n_classes))
        loss.class_sums(self.scores, self.labels, self.weights, *sums)
        return PairMargins(loss, sums)

    def intercept_product(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the Hessian of the sum of losses by an intercept times a direction, (n_classes,)."""
        kernels = self.objective.row_kernels
        wide = np.zeros((1, self.width), self.dtype)
        wide[0, : self.n_classes] = direction
        none, most = np.empty(0, np.float32), min(_PRODUCT_ROWS, self.n_samples)
        rows = Rows(np.zeros(most + 1, np.int64), np.empty(0, np.uint32), none, constant=True)

        def samples_of(some: slice) -> Samples:
            scores, labels, weights, row_scale, gain = self.samples
            return Samples(scores[some], labels[some], weights[some], row_scale[some], gain[some])

        def add_up(part: tuple[int, int]) -> NDArray[np.float64]:
            total, kept = np.zeros(self.width), kernels.workspace(self.scores[:most])
            for lo in range(*part, most):
                some = slice(lo, min(lo + most, part[1]))
                span = (0, some.stop - lo)
                samples = samples_of(some)
                unused = np.zeros((2, 1, self.width), self.dtype)
                kernels.gradient(span, rows, samples, kept, *unused)
                product = np.zeros((1, self.width), self.dtype)
                kernels.hessian(span, rows, samples, kept, wide, product)
                total += product[0]
            return total

        total = np.zeros(self.width)
        for _, some in self.engine.map(add_up, self._row_parts()):
            total += some
        return total[: self.n_classes]

    def value(self, rows: Iterable[NDArray[np.float64]], margins: Margins | None = None) -> float:
        """Return the objective at the present scores, of which `rows` are the weights."""
        total = margins.total_loss if margins else self.total_loss()
        return total / self.weight_sum + sum(self.objective.regulariser(self.alpha, some) for some in rows)

    def entropy(self, factor: NDArray[np.float64], scale: float) -> float:
        """Return the sum of entropies of a scaled dual point; see `kernels.linear.losses.sums.entropy`."""

        def add_up(part: tuple[int, int]) -> float:
            lo, hi = part
            weights = self.weights[lo:hi] if len(self.weights) else self.weights
            total: float = entropy(self.scores[lo:hi], self.labels[lo:hi], weights, factor, scale)
            return total

        return sum(total for _, total in self.engine.map(add_up, self._row_parts()))

    def entropies(self, scales: tuple[float, ...]) -> NDArray[np.float64]:
        """Return the entropies of the dual variables that the derivatives are, at some scales."""
        nothing = np.empty((0, self.n_classes))
        return np.array([self.entropy(nothing, scale) for scale in scales], np.float64)

    def shift(self, step: NDArray[np.float64]) -> None:
        """Add the step of the intercept to all scores."""

        def move(part: tuple[int, int]) -> None:
            shift_scores(step, self.scores[part[0] : part[1]])

        for_each(self.engine, move, self._row_parts())
