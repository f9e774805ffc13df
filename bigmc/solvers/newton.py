"""Newton steps over the features that have weights: what sweeps need many rounds for, in a few.

On the rows of the weights that are not zero the objective is smooth. Conjugate gradients minimise its
quadratic model there, over the samples in row order; a line search on the objective itself follows.
Together with sweeps, which find out which rows are zero, this is a subspace acceleration in the sense of
Curtis, Dai, Robinson, "A subspace acceleration method for minimization involving a group
sparsity-inducing regularizer", SIAM J. Optim. 32 (2022).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.newton import (
    add_penalty_curvature,
    count_entries,
    descend,
    gradient_rows,
    hessian_rows,
    losses_along,
    move_rows,
    place_entries,
    turn,
)  # fmt: skip
from bigmc.solvers.columns import Columns
from bigmc.solvers.problem import Problem

#: Rows are cut into at most so many parts for the workers, whatever their number; a part has its own sums,
#: so it should have many more entries than there are features.
_MOST_PARTS = 16
_ENTRIES_PER_SUM = 100

#: The residual of the conjugate gradients, relative to the gradient, at which they stop.
_FORCING = 0.1
#: Armijo's condition, and the shortest part of a step.
_SUFFICIENT_DECREASE = 0.01
_HALVINGS = 6
_SMALLEST_CURVATURE = 1e-12


class Support:
    """The samples in row order, with the chosen features only.

    Parameters
    ----------
    problem : Problem
        Its scores move along with the steps.
    held : list of Columns
        Columns in memory.
    chosen : list of int64 array
        Positions of the chosen ones in each.
    """

    def __init__(self, problem: Problem, held: list[Columns], chosen: list[NDArray[np.int64]]) -> None:
        self._problem = problem
        n, base = problem.n_samples, held[0].base
        picked = [(columns, columns.positions[used]) for columns, used in zip(held, chosen, strict=True)]
        self.size = sum(len(used) for used in chosen)
        indptr = np.zeros(n + 1, np.int64)

        def count(s: int) -> None:
            counts = indptr[base[s] + 1 : base[s + 1] + 1]
            for columns, used in picked:
                count_entries(used, columns.indptr[s], columns.indices, counts)

        self._each(count, range(len(base) - 1))
        self._indptr = np.cumsum(indptr)
        free = self._indptr[:-1].copy()
        self._slots = np.empty(int(self._indptr[-1]), np.uint32)
        self._values = np.empty(int(self._indptr[-1]), held[0].data.dtype)

        def place(s: int) -> None:
            first = 0
            for columns, used in picked:
                place_entries(
                    used, first, columns.indptr[s], columns.indices, columns.data,
                    free[base[s] : base[s + 1]], self._slots, self._values,
                )  # fmt: skip
                first += len(used)

        self._each(place, range(len(base) - 1))
        features = [columns.features[used] for columns, used in zip(held, chosen, strict=True)]
        self._scale = problem.scale_of(np.concatenate(features))
        self._active = np.empty(n, np.uint64)
        n_parts = len(self._slots) // max(1, _ENTRIES_PER_SUM * self.size)
        n_parts = min(max(n_parts, 2), _MOST_PARTS)
        cuts = np.searchsorted(self._indptr, np.linspace(0, len(self._slots), n_parts + 1)[1:-1])
        self._parts = list(pairwise(np.unique([0, *cuts.tolist(), n]).tolist()))

    @staticmethod
    def memory(nnz: int, itemsize: int, n_samples: int, n_features: int, width: int) -> int:
        """Return the bytes a support of `nnz` entries and its Newton steps take."""
        vectors = 8 * 8 + 8 * 4  # eight float64 matrices of the conjugate gradients, and sums of parts
        return nnz * (4 + itemsize) + 24 * n_samples + vectors * n_features * width

    def newton_step(self, rows: NDArray[np.float64], alpha: float, most: int) -> bool:
        """Move the weights towards the minimum over their non-zero rows.

        Parameters
        ----------
        rows : float64 array of shape (n_chosen, width)
            Weights of the chosen features, none of them zero; changed in place. Rows that would turn
            round become zero.
        alpha : float
            Weight of the penalty.
        most : int
            Products with the Hessian, at most.

        Returns
        -------
        bool
            False if no part of the step made the objective smaller; the weights are as before then.
        """
        problem, ridge = self._problem, self._problem.objective.ridge
        lengths = np.maximum(np.sqrt(np.einsum("jr,jr->j", rows, rows)), np.finfo(np.float64).tiny)
        unit = rows / lengths[:, None]
        gradient, precondition = self._gradient()
        gradient += alpha * unit + ridge * rows
        bend = alpha / lengths
        precondition += bend[:, None] + (ridge + _SMALLEST_CURVATURE)
        np.divide(1.0, precondition, out=precondition)
        step = self._minimise_model(gradient, precondition, unit, bend, most)
        turned = np.einsum("jr,jr->j", rows + step, rows) <= 0
        step[turned] = -rows[turned]
        slope = float(np.einsum("jr,jr->", gradient, step))
        if not slope < 0:
            return False
        scaled = self._scaled(step)
        along, distance = float(np.einsum("jr,jr->", rows, step)), float(np.einsum("jr,jr->", step, step))
        part = 1.0
        for _ in range(_HALVINGS):
            moved = rows + part * step
            change = self._loss_change(scaled, part)
            change += alpha * float((np.sqrt(np.einsum("jr,jr->j", moved, moved)) - lengths).sum())
            change += ridge * part * (along + 0.5 * part * distance)
            if change <= _SUFFICIENT_DECREASE * part * slope:
                break
            part *= 0.5
        else:
            return False
        if part == 1.0:
            moved[turned] = 0.0
        rows[:] = moved
        number = problem.scores.dtype.type(part)

        def move(rows_of: tuple[int, int]) -> None:
            move_rows(
                *rows_of, self._indptr, self._slots, self._values, problem.scores, problem.row_scale, scaled,
                number,
            )  # fmt: skip

        self._each(move, self._parts)
        return True

    def _minimise_model(
        self,
        gradient: NDArray[np.float64],
        precondition: NDArray[np.float64],
        unit: NDArray[np.float64],
        bend: NDArray[np.float64],
        most: int,
    ) -> NDArray[np.float64]:
        """Return the step that at most `most` conjugate gradients find, preconditioned by the diagonal."""
        factor = self._problem.two_over_n * self._scale
        ridge = self._problem.objective.ridge
        solution, residual = np.zeros_like(gradient), -gradient
        direction = precondition * residual
        norm = float(np.einsum("jr,jr->", direction, residual))
        enough = _FORCING**2 * norm
        scaled = self._scaled(direction)
        for _ in range(most):
            product = self._product(scaled)
            curve = add_penalty_curvature(direction, unit, bend, ridge, factor, product)
            if not curve > 0:
                break
            before = norm
            norm = descend(before / curve, direction, product, precondition, solution, residual)
            if norm <= enough:
                break
            turn(norm / before, residual, precondition, self._scale, direction, scaled)
        return solution

    def _gradient(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the gradient of the loss and the diagonal of its Hessian."""
        problem = self._problem
        gradient, curvature = np.zeros((2, self.size, problem.width))

        def work(part: tuple[int, int]) -> NDArray[Any]:
            sums = np.zeros((2, self.size, problem.width), problem.scores.dtype)
            gradient_rows(
                *part, self._indptr, self._slots, self._values, problem.scores, problem.labels,
                problem.row_scale, problem.gain, self._active, *sums,
            )  # fmt: skip
            return sums

        for _, sums in problem.engine.map(work, self._parts):
            gradient += sums[0]
            curvature += sums[1]
        gradient *= problem.two_over_n * self._scale[:, None]
        curvature *= problem.two_over_n * self._scale[:, None] ** 2
        return gradient, curvature

    def _product(self, scaled: NDArray[Any]) -> NDArray[np.float64]:
        """Return the product of the loss's Hessian and a scaled direction, before the factors of the rows."""
        problem = self._problem

        def work(part: tuple[int, int]) -> NDArray[Any]:
            sums = np.zeros(scaled.shape, scaled.dtype)
            hessian_rows(
                *part, self._indptr, self._slots, self._values, problem.scores, problem.labels,
                problem.row_scale, problem.gain, self._active, scaled, sums,
            )  # fmt: skip
            return sums

        total = np.zeros(scaled.shape)
        for _, sums in problem.engine.map(work, self._parts):
            total += sums
        return total

    def _loss_change(self, scaled: NDArray[Any], part: float) -> float:
        problem = self._problem

        def work(rows: tuple[int, int]) -> float:
            return losses_along(  # type: ignore[no-any-return]
                *rows, self._indptr, self._slots, self._values, problem.scores, problem.labels,
                problem.row_scale, problem.gain, scaled, part,
            )  # fmt: skip

        return 0.5 * problem.two_over_n * sum(change for _, change in problem.engine.map(work, self._parts))

    def _scaled(self, step: NDArray[np.float64]) -> NDArray[Any]:
        return (self._scale[:, None] * step).astype(self._problem.scores.dtype)

    def _each(self, work: Any, parts: Any) -> None:
        for _ in self._problem.engine.map(work, parts):
            pass
