"""Ridge problems of dense columns and many classes: Newton's method for each class, with factorised Hessians.

Where nothing but a ridge is there, the squared hinges of the classes are problems of their own, and each is a
quadratic function as long as no margin changes its sign. So Newton's method on it ends after some twenty
steps, exactly at the minimum (Mangasarian, "A finite Newton method for classification", Optimization Methods
and Software 17, 2002; Chapelle, "Training a support vector machine in the primal", Neural Computation 19,
2007). Its Hessian is the Gram matrix of the rows with a positive margin, of which few come and go between two
steps. Sweeps and conjugate gradients need many times as long where columns are dense, are much alike, and
nearly separate the classes: the optimum is then nearly 0, and a gap relative to it is small early for none.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from bigmc.engine import for_each
from bigmc.solvers.sparse.ridge.row_order import in_row_order
from bigmc.solvers.sparse.run import SparseRun, Task
from bigmc.solvers.sparse.state import Start

MOST_FEATURES = 1000
"""Features at most: a factorisation takes their number to the third power for every class and step."""
FEWEST_ENTRIES = 50_000
"""Non-zeros times classes below which sweeps take little time anyway. Chosen on synthetic embeddings (3,200
rows of 256 columns, 100 classes: 2.6 s of processor time instead of 17 to 38) and digits. Judged on letters,
texture and satimage of KEEL, and 3,000 images of glyphs: it took a fifth to three fifths of the time (on
letters as long), and as many held-out rows were right, but for the glyphs (.8856 instead of .8895, with an
objective smaller by .4 %)."""
LEAST_DENSITY = 0.25
"""Share of the entries that are not zero, at least: all of them are worked with."""
_AT_ONCE = 16
"""Classes that take their steps together, so that rows are read once for all of them."""
_MOST_STEPS = 60
_LINE_STEPS = 8
"""Newton steps along a line, on which the objective is quadratic in pieces."""
_SHORTEST = 1e-3
_NOTHING = 1e-10
"""Share of an objective that is not worth a step: rounding may be of that size."""
_DAMPING = 1e-10
"""Share of its diagonal that is added to the Hessian: the intercept has no ridge."""


class _Rows(NamedTuple):
    """Rows with a constant, times the root of their weights, and the sum of the weights times half the ridge.

    Attributes
    ----------
    values : float64 array of shape (n_rows, n_features + 1)
    roots : float64 array of shape (n_rows,)
        Of the weights.
    ridges : float64 array of shape (n_features + 1,)
        0 for the intercept.
    gram : float64 array of shape (n_features + 1, n_features + 1)
        Of all rows.
    """

    values: NDArray[np.float64]
    roots: NDArray[np.float64]
    ridges: NDArray[np.float64]
    gram: NDArray[np.float64]


def is_dense(task: Task) -> bool:
    """Return whether the columns that occur are dense, few, and of enough classes for this to be worth it.

    They must not be more than the rows: any rows are fitted exactly then, and sweeps that end at the
    tolerance foretell other rows better than the exact minimum does. On 270 synthetic rows of 300 columns
    and 9 classes the held-out log loss of the model of a fit was .010 by sweeps, .021 by Newton's method.
    """
    dataset = task.dataset
    n_used = int(np.count_nonzero(dataset.column_nnz()))
    return (
        n_used < MOST_FEATURES
        and n_used <= dataset.n_samples
        and dataset.nnz >= LEAST_DENSITY * n_used * dataset.n_samples
        and dataset.nnz * dataset.n_classes >= FEWEST_ENTRIES
    )


def memory(task: Task, n_threads: int) -> int:
    """Return the bytes that `start_by_newton` takes."""
    dataset = task.dataset
    n_rows, width = dataset.n_samples, int(np.count_nonzero(dataset.column_nnz())) + 1
    of_rows = 8 * n_rows * (2 * width + dataset.n_classes) + 16 * dataset.nnz
    of_thread = 8 * (_AT_ONCE + 3) * width**2 + 8 * n_rows * (8 * _AT_ONCE + width)
    return of_rows + n_threads * of_thread + 16 * width * (width + dataset.n_classes)


def start_by_newton(run: SparseRun, tol: float) -> Start | None:
    """Return weights near the minimum; None where columns are too unequal for a factorisation.

    Parameters
    ----------
    run : SparseRun
        Of the multitask squared hinge, with a ridge alone. Its threads share the classes; those not begun
        when its time ends keep the weights of least squares.
    tol : float
        A class is done when its gap is at most this share of its objective: with a ridge, the squared norm of
        the gradient bounds it.
    """
    task, engine, ends = run.task, run.context.local_engine, run.context.ends
    features = np.flatnonzero(task.dataset.column_nnz())
    rows, signs = _read(run, features)
    damped = _damped(rows.gram, rows.ridges)
    with threadpool_limits(limits=1, user_api="blas"):  # sums in one order, whatever the machine
        factor, failed = lapack.dpotrf(damped, lower=1, overwrite_a=1)
        if failed:
            return None
        n_classes = task.dataset.n_classes
        weights = np.zeros((len(features) + 1, n_classes))
        is_done = np.ones(n_classes, bool)

        def work(lo: int) -> None:
            some = slice(lo, lo + _AT_ONCE)
            own = signs[:, some]
            first = lapack.dpotrs(factor, rows.values.T @ (rows.roots[:, None] * own), lower=1)[0]
            moved = first if time.monotonic() >= ends else _minimised(rows, own, first, tol)
            is_done[some] = moved is not None
            weights[:, some] = 0.0 if moved is None else moved

        for_each(engine, work, range(0, n_classes, _AT_ONCE))
    if not (is_done.all() and np.isfinite(weights).all()):
        return None
    return Start(features, weights[:-1], weights[-1] * run.descent.fit_intercept)


def _read(run: SparseRun, features: NDArray[np.int64]) -> tuple[_Rows, NDArray[np.float64]]:
    """Return the rows that have a weight, and 1 for their classes, -1 for the others."""
    task, dataset = run.task, run.task.dataset
    weights = np.ones(dataset.n_samples) if task.sample_weight is None else task.sample_weight
    learns = np.flatnonzero(weights > 0)
    entries = in_row_order(dataset, features, np.zeros(len(features), bool), False)[0]
    values = np.zeros((dataset.n_samples, len(features) + 1))
    values[np.repeat(np.arange(dataset.n_samples), np.diff(entries.indptr)), entries.slots] = entries.values
    values[:, -1] = run.descent.fit_intercept
    roots = np.sqrt(weights[learns])
    values = values[learns] if len(learns) < len(values) else values
    values *= roots[:, None]
    ridges = np.full(len(features) + 1, 0.5 * task.objective.ridge * task.weight_sum)
    ridges[-1] = 0.0
    targets = dataset.label_sets()[learns]
    signs = np.full((len(learns), dataset.n_classes), -1.0)
    at, places = np.nonzero(targets >= 0)
    signs[at, targets[at, places]] = 1.0
    return _Rows(values, roots, ridges, values.T @ values), signs


def _minimised(
    rows: _Rows, signs: NDArray[np.float64], weights: NDArray[np.float64], tol: float
) -> NDArray[np.float64] | None:
    """Return the weights of some classes at their minima, from those given; None without a factorisation.

    Half of ``sum_i w_i max(0, 1 - y_i f_i)² + sum_j ridges_j W_j²`` is minimised; its Hessian is the Gram
    matrix of the rows with a positive margin and the ridges. `signs` times the root of the weights are the
    same for rows times that root.
    """
    values, roots, ridges, gram = rows
    n_classes = signs.shape[1]
    hessians = [gram.copy() for _ in range(n_classes)]
    active = np.ones(signs.shape, bool)
    margins = roots[:, None] - signs * (values @ weights)
    live = np.arange(n_classes)
    for _ in range(_MOST_STEPS):
        own, positive = weights[:, live], np.maximum(margins[:, live], 0.0)
        gradient = ridges[:, None] * own - values.T @ (signs[:, live] * positive)
        objective = np.einsum("ir,ir->r", positive, positive) + ridges @ own**2
        step = np.empty_like(gradient)
        for place, r in enumerate(live):
            now = positive[:, place] > 0
            _update(hessians[r], values, active[:, r], now)
            active[:, r] = now
            found = _solved(hessians[r], ridges, -gradient[:, place])
            if found is None:
                return None
            step[:, place] = found
        promised = -np.einsum("jr,jr->r", gradient, step)
        gap = np.einsum("jr,jr->r", gradient[:-1], gradient[:-1] / ridges[:-1, None])
        goes_on = (promised > _NOTHING * objective) & (np.maximum(promised, gap) > tol * objective)
        live, step = live[goes_on], step[:, goes_on]
        if not len(live):
            break
        along = signs[:, live] * (values @ step)
        part = _line_search(margins[:, live], along, ridges, weights[:, live], step)
        weights[:, live] += part * step
        margins[:, live] -= part * along
    return weights


def _update(
    hessian: NDArray[np.float64],
    values: NDArray[np.float64],
    before: NDArray[np.bool_],
    now: NDArray[np.bool_],
) -> None:
    """Make the Gram matrix of some rows that of others: by those that change, or anew if they are fewer."""
    come, gone = now & ~before, before & ~now
    if np.count_nonzero(come) + np.count_nonzero(gone) >= np.count_nonzero(now):
        chosen = values[now]
        np.matmul(chosen.T, chosen, out=hessian)
        return
    for some, sign in ((come, 1.0), (gone, -1.0)):
        if some.any():
            chosen = values[some]
            hessian += sign * (chosen.T @ chosen)


def _damped(hessian: NDArray[np.float64], ridges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a copy of a Gram matrix with the ridges, and a little more; columns of zeros get a 1."""
    diagonal = hessian.diagonal()
    damped = hessian.copy()
    damped[np.diag_indices_from(damped)] += ridges + np.where(diagonal > 0, _DAMPING * diagonal, 1.0)
    return damped


def _solved(
    hessian: NDArray[np.float64], ridges: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the solution of a damped Newton equation; None if its matrix is not positive definite."""
    factor, failed = lapack.dpotrf(_damped(hessian, ridges), lower=1, overwrite_a=1)
    if failed:
        return None
    solution: NDArray[np.float64] = lapack.dpotrs(factor, right, lower=1)[0]
    return solution


def _line_search(
    margins: NDArray[np.float64],
    along: NDArray[np.float64],
    ridges: NDArray[np.float64],
    weights: NDArray[np.float64],
    step: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return which part of its step brings each class to the minimum along it, nearly."""
    slope, bend = ridges @ (weights * step), ridges @ step**2
    part = np.ones(margins.shape[1])
    for _ in range(_LINE_STEPS):
        left = margins - part * along
        positive = left > 0
        moving = np.where(positive, along, 0.0)
        first = slope + part * bend - np.einsum("ir,ir->r", moving, left)
        second = bend + np.einsum("ir,ir->r", moving, along)
        part = np.maximum(part - first / np.maximum(second, 1e-300), _SHORTEST)
    return part
