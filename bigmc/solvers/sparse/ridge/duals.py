"""Dual variables of a ridge problem: visits to samples, dual objective, feasibility for an intercept."""

import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.parallel.simd import LANES
from bigmc.kernels.linear.rows.dual_descent import add_rows, descend_duals, score_rows
from bigmc.solvers.sparse.coefficients import slabs
from bigmc.store.files.file_array import give_back_pages

ROWS_AT_ONCE = 4096
"""Samples that are scored, or whose dual variables are copied, at once."""
_PIECE_SCORES = 1 << 20
"""Scores of samples that are computed at once, at most: with thousands of classes, those of `ROWS_AT_ONCE`
samples are new memory every time, whose pages take longer than the scores."""
_SCALED_AT_ONCE = 1 << 16
"""Dual variables that are scaled at once, at most: their copies stay in the cache. Those of a block of 5,000
classes took as much memory again as the block."""
_WORK_AT_ONCE = 200_000_000
"""Products of entries and classes between two looks at the clock, where there is a time to end: about a tenth
of a second."""
_MOST_GROUPS = 16
"""Groups of classes that go through the entries of a sample together. With 9,500 classes and 11,600 features
an epoch of 5,000 samples takes 2.7 CPU seconds with 16, 4.2 with 4, since rows of weights are further apart
than a page, and 3.3 with 64, whose weights do not stay in the cache."""


class Excess(NamedTuple):
    """Shares by which dual variables above 0, and those below, are too large to add up to 0; (n_classes,)."""

    up: NDArray[np.float32]
    down: NDArray[np.float32]

    def take_off(self, duals: NDArray[np.float32]) -> None:
        """Scale the dual variables of some samples, shape (n_some, n_classes), down by them, in place."""
        for places in slabs(len(duals), max(1, _SCALED_AT_ONCE // duals.shape[1])):
            some = duals[places]
            some -= np.maximum(some, 0.0) * self.up
            some -= np.minimum(some, 0.0) * self.down


def excess_of(duals: NDArray[np.float32]) -> Excess:
    """Return what makes dual variables feasible where an intercept is not penalised.

    The larger of the two sides of a class, labels and rest, is scaled down to the other's sum.

    Parameters
    ----------
    duals : float32 array of shape (n_samples, n_classes)
    """
    up, down = np.zeros(duals.shape[1]), np.zeros(duals.shape[1])
    for lo in range(0, len(duals), ROWS_AT_ONCE):
        some = duals[lo : lo + ROWS_AT_ONCE]
        up += np.maximum(some, 0.0).sum(axis=0, dtype=np.float64)
        down -= np.minimum(some, 0.0).sum(axis=0, dtype=np.float64)
        give_back_pages(some)
    pairs = ((up, down), (down, up))
    scales = (np.divide(b, a, out=np.ones_like(a), where=a > b) for a, b in pairs)
    return Excess(*((1.0 - scale).astype(np.float32) for scale in scales))


def class_spans(width: int, n_threads: int) -> list[tuple[int, int]]:
    """Return the groups of classes that are worked on at once; any cut gives the same bits.

    Parameters
    ----------
    width : int
        Padded number of classes.
    """
    n_groups = width // LANES
    n_parts = max(-(-n_groups // _MOST_GROUPS), min(n_groups, n_threads))
    cuts = np.linspace(0, n_groups, n_parts + 1).round().astype(int).tolist()
    return list(pairwise(cuts))


class Weighed(NamedTuple):
    """Samples as `dual_descent.descend_duals` takes them, with its three curvatures."""

    rows: Rows
    targets: NDArray[np.int32]
    squares: NDArray[np.float32]
    diagonal: NDArray[np.float32]
    lone_squares: NDArray[np.float32]


class Visit(NamedTuple):
    """Sum of the losses, each as it was when visited; gain of the dual objective; number of samples."""

    losses: float
    gains: float
    n_samples: int


def visit_once(
    order: NDArray[np.int64],
    samples: Weighed,
    duals: NDArray[np.float32],
    coef: NDArray[np.float32],
    n_classes: int,
    engine: Engine,
    ends: float = math.inf,
) -> Visit:
    """Move dual variables and weights by a visit to each sample; threads of the engine share the classes.

    At the time `ends` of `time.monotonic` it stops, after some samples at least.
    """
    totals, n_visited = np.zeros((2, coef.shape[1])), 0
    rows, targets, *curvature = samples
    for some in slabs(len(order), len(order) if math.isinf(ends) else _rows_between_looks(rows, coef)):

        def work(span: tuple[int, int], chosen: NDArray[np.int64] = order[some]) -> None:
            descend_duals(chosen, span, rows, targets, tuple(curvature), (duals, coef), totals)

        _for_classes(work, coef, engine)
        n_visited = some.stop
        if time.monotonic() >= ends:
            break
    losses, gains = totals[:, :n_classes].sum(axis=1)
    return Visit(float(losses), float(gains), n_visited)


def _rows_between_looks(rows: Rows, coef: NDArray[np.float32]) -> int:
    entries = max(len(rows.values) / max(len(rows.indptr) - 1, 1), 1.0)
    return max(1, int(_WORK_AT_ONCE / (entries * coef.shape[1])))


def _for_classes(work: Callable[[tuple[int, int]], None], coef: NDArray[np.float32], engine: Engine) -> None:
    """Call a function for groups of classes, whose weights stay in the cache; threads share them."""
    for_each(engine, work, class_spans(coef.shape[1], engine.n_threads))


def add_up(
    chosen: NDArray[np.int64],
    rows: Rows,
    duals: NDArray[np.float32],
    coef: NDArray[np.float32],
    engine: Engine,
) -> None:
    """Add the chosen samples times their dual variables to the weights."""
    _for_classes(lambda span: add_rows(chosen, span, rows, duals, coef), coef, engine)


def scores_of(
    chosen: NDArray[np.int64], rows: Rows, coef: NDArray[np.float32], engine: Engine
) -> NDArray[np.float32]:
    """Return the scores of the chosen samples, shape (n_chosen, width)."""
    scores = np.empty((len(chosen), coef.shape[1]), np.float32)
    _for_classes(lambda span: score_rows(chosen, span, rows, coef, scores), coef, engine)
    return scores


def samples_in_pieces(places: NDArray[np.int64], width: int, most: int) -> Iterator[NDArray[np.int64]]:
    """Cut the places of samples into pieces of at most `most` whose scores of all classes are few."""
    size = max(1, min(most, _PIECE_SCORES // width))
    return (places[some] for some in slabs(len(places), size))


def diagonal_of(weights: NDArray[np.float64], weight_sum: float, ridge: float) -> NDArray[np.float32]:
    """Return what the squared hinge adds to the diagonal of the dual's Hessian, ``n ridge / (2 weight)``."""
    diagonal = np.full(len(weights), np.inf, np.float32)
    scale = 0.5 * weight_sum * ridge
    np.divide(scale, weights, out=diagonal, where=weights > 0, casting="same_kind")
    return diagonal


def half_norm(coef: NDArray[np.float32], n_classes: int) -> float:
    """Return half the sum of the squared weights; classes that only fill a vector have weights too."""
    own = coef[:, :n_classes]
    rows = np.einsum("jr,jr->j", own, own)  # in double precision many times slower
    return 0.5 * float(rows.sum(dtype=np.float64))


def dual_value(duals: NDArray[np.float32], diagonal: NDArray[np.float32]) -> float:
    """Return what some samples add to the dual objective, without the norm of the weights.

    Parameters
    ----------
    duals : float32 array of shape (n_some, n_classes)
    diagonal : float32 array of shape (n_some,)
        ``n ridge / (2 weight)``.
    """
    exact = duals.astype(np.float64)
    squares = np.einsum("ir,ir->i", exact, exact)
    return float(np.abs(exact).sum()) - 0.5 * float(diagonal.astype(np.float64) @ squares)


def hinge_losses(scores: NDArray[np.float64], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the sum over the classes of the squared hinge of each sample.

    Parameters
    ----------
    scores : float64 array of shape (n_some, n_classes)
        Overwritten.
    targets : int32 array of shape (n_some, most labels)
        Classes of each sample, -1 after the last.
    """
    rows, places = np.nonzero(targets >= 0)
    own = rows, targets[rows, places]
    of_labels = 1.0 - scores[own]
    scores += 1.0
    scores[own] = of_labels
    np.maximum(scores, 0.0, out=scores)
    np.square(scores, out=scores)
    losses: NDArray[np.float64] = scores.sum(axis=1)
    return losses
