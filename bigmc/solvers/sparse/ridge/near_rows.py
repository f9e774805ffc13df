"""Squared hinges of a dense ridge problem, class by class, on the rows near the margin of each.

Rows beyond their margin add nothing to a squared hinge, and nearly all are where the classes can be told
apart. A class is minimised on those near its margin at the last weights; all rows then say which others are
within it at the new ones, and so on: the chunking of support vector machines. The Gram matrix of these rows
whitens far better than that of all.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.solvers.sparse.ridge.dense_problem import DenseProblem, Stop, bytes_of_part
from bigmc.solvers.sparse.ridge.lbfgs import REMEMBERED, minimised
from bigmc.store.files.file_array import give_back_pages

_NEAR = 1.1
"""Margin up to which rows are always taken."""
_ROWS_PER_FEATURE = 2
"""Rows for each feature, at least. On 20,000 rows of 512 features and 10 classes one of them, two and four
took 3.8, 3.2 and 3.1 CPU seconds to gaps of about .01 in a prototype."""
_MOST_SHARE = 0.25
"""Share of all rows up to which their number pays, on average."""
_MOST_ROUNDS, _OWN_SHARE = 10, 1 / 3
"""Evaluations of all rows at most, and the share of the tolerance to which a class is minimised."""


class Room(NamedTuple):
    """What memory allows.

    Attributes
    ----------
    most_rows : int
        Rows of a class, at most.
    n_threads : int
        Classes at a time.
    """

    most_rows: int
    n_threads: int

    @classmethod
    def of(cls, width: int, n_rows: int, n_bytes: int, n_threads: int) -> Self | None:
        """Return what so many bytes allow for rows of this number of values; None if it is too little.

        The rows do not depend on the number of threads: any gives the same bits.
        """
        fixed = 8 * width * (3 * width + 2 * REMEMBERED + 12) + 2 * bytes_of_part(width, 1)
        row = 4 * width + 64
        most_rows = min(n_rows // 2, (n_bytes // 2 - fixed) // row)
        if most_rows < fewest_rows(width):
            return None
        return cls(most_rows, max(1, min(n_threads, n_bytes // (fixed + row * most_rows))))


def fewest_rows(width: int) -> int:
    """Return the number of rows, of this number of values, that a class has at least."""
    return _ROWS_PER_FEATURE * width


def minimised_near_margins(
    problem: DenseProblem, weights: NDArray[np.float64], tol: float, room: Room, margins: NDArray[np.float32]
) -> NDArray[np.float64] | None:
    """Return the weights where this ends; None at the start if rows near margins are too many.

    It ends when the gap that the gradient proves is at most this share of the objective.

    Parameters
    ----------
    margins : float32 array of shape (n_classes, n_rows)
        To work in, in memory or in a file.
    """
    best, least = weights.copy(), np.full(problem.n_classes, np.inf)
    for round_ in range(_MOST_ROUNDS):
        objectives, gaps = _evaluated(problem, weights, margins)
        better = objectives < least
        best[:, better], least[better] = weights[:, better], objectives[better]
        unsolved = np.flatnonzero(gaps > tol * objectives)
        if gaps.sum() <= tol * objectives.sum() or len(unsolved) == 0 or problem.is_over:
            break
        if not _is_worth_it(problem, room, margins, unsolved.tolist()):
            return None if round_ == 0 else best
        weights = weights.copy()

        def work(r: int, at: NDArray[np.float64] = weights) -> NDArray[np.float64]:
            return _minimised_class(problem, at[:, r : r + 1], r, margins[r], _OWN_SHARE * tol)

        for r, own in ThreadEngine(room.n_threads).map(work, unsolved.tolist()):
            weights[:, r] = own
    return best


def _evaluated(
    problem: DenseProblem, weights: NDArray[np.float64], margins: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the objective of each class, and a bound of its distance to the minimum; set the margins."""
    point = problem.at(problem.place_of(weights), margins)
    objectives = 0.5 * np.einsum("jr,jr,j->r", weights, weights, problem.ridges)
    for r, own in enumerate(margins):
        left = np.maximum(1.0 - own, 0.0)
        left *= left
        objectives[r] += left @ problem.rows.row_weights.astype(np.float64)
        give_back_pages(own)
    slopes = point.slopes[:-1]
    return objectives, np.einsum("jr,jr,j->r", slopes, slopes, 0.5 / problem.ridges[:-1])


def _is_worth_it(problem: DenseProblem, room: Room, margins: NDArray[np.float32], classes: list[int]) -> bool:
    """Whether rows near margins fit, and are few."""
    counts = []
    for r in classes:
        counts.append(max(int(np.count_nonzero(margins[r] < _NEAR)), fewest_rows(len(problem.ridges))))
        give_back_pages(margins[r])
    return max(counts) <= room.most_rows and float(np.mean(counts)) <= _MOST_SHARE * margins.shape[1]


def _minimised_class(
    problem: DenseProblem, weights: NDArray[np.float64], r: int, margins: NDArray[np.float32], tol: float
) -> NDArray[np.float64]:
    """Return the weights of a class for the rows near its margin, from those of shape (width, 1)."""
    fewest = min(fewest_rows(len(weights)), len(margins) - 1)
    chosen = np.union1d(np.argpartition(margins, fewest)[:fewest], np.flatnonzero(margins < _NEAR))
    give_back_pages(margins)
    rows = problem.rows.of_class(chosen, r)
    own = DenseProblem.of(rows, problem.loss, 1, problem.ridges, ThreadEngine(1), Stop(problem.stop.ends))
    return (weights if own is None else minimised(own, own.place_of(weights), tol))[:, 0]
