"""Newton steps over the weights that are not zero: a few of them save many rounds of sweeps.

As a function of these weights the objective is smooth. Conjugate gradients minimise its quadratic model,
over the samples in row order; a line search on the objective itself follows. Together with sweeps, which
find out which weights are zero, this is a subspace acceleration in the sense of
Curtis, Dai, Robinson, "A subspace acceleration method for minimization involving a group
sparsity-inducing regularizer", SIAM J. Optim. 32 (2022).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from bigmc.engine import for_each
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.rows.newton import (
    add_penalty_curvature,
    add_squares,
    count_entries,
    descend,
    move_rows,
    place_entries,
    turn,
)
from bigmc.objectives.penalties import RestrictedPenalty
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.preconditioner import Preconditioner, block_bytes, preconditioner
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Rows are cut into at most so many parts for the workers, whatever their number; a part has its own sums,
#: so it should have many more entries than there are features.
_MOST_PARTS = 16
_ENTRIES_PER_SUM = 100
#: So few entries take less time than what comes with a part.
_ENTRIES_ALONE = 1 << 16

#: Vectors of the conjugate gradients are worked on in parts of so many numbers.
_PART_NUMBERS = 1 << 16

#: The residual of the conjugate gradients, relative to the gradient, at which they stop.
_FORCING = 0.1
#: Armijo's condition, and the shortest part of a step.
_SUFFICIENT_DECREASE = 0.01
_HALVINGS = 6
_SMALLEST_CURVATURE = 1e-12
#: Minimum damping: along directions without curvature the model has no minimum, and steps that leave these
#: directions out make no progress where few margins are positive.
_LEAST_DAMPING = 1e-6
#: Models of at most so many weights, padded classes included, are solved by a factorisation: conjugate
#: gradients amplify rounding where there are about as many steps as weights.
_DIRECT = 512
#: It takes a product for every weight, which is cheap with at most so many entries only.
_DIRECT_ENTRIES = 20_000
_RANK = 1e-13


@cache
def _libraries() -> ThreadpoolController:
    """Return the controller of BLAS threads, which takes a hundred times as long to make as to use."""
    return ThreadpoolController()


class _Line(NamedTuple):
    """Where a line search starts: the penalty at its weights, the gradient, and the terms of each row."""

    penalty: RestrictedPenalty
    gradient: NDArray[np.float64]
    ridges: NDArray[np.float64]
    tilt: NDArray[np.float64]


class _Point(NamedTuple):
    """Where it ends: weights, the step as the kernels take it, how much of it, and the objective's change."""

    rows: NDArray[np.float64]
    scaled: NDArray[Any]
    part: float
    change: float


def _value_type(problem: Problem, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of values in row order: numbers as precise as the scores that they are added to.

    The scores are computed afresh from the columns, whose values keep their dtype, before each certificate.
    """
    return problem.dtype if dtype == np.float64 else dtype


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
    constant : bool, optional
        There is an intercept: one more feature after the others, 1 in every sample and not penalised.
    """

    def __init__(
        self, problem: Problem, held: list[Columns], chosen: list[NDArray[np.int64]], constant: bool = False
    ) -> None:
        self._problem = problem
        self._kernels = problem.objective.row_kernels
        n, base = problem.n_samples, held[0].base
        picked = [(columns, columns.positions[used]) for columns, used in zip(held, chosen, strict=True)]
        self.size = sum(len(used) for used in chosen) + constant
        self._penalised = np.ones(self.size)
        indptr = np.zeros(n + 1, np.int64)

        def count(s: int) -> None:
            counts = indptr[base[s] + 1 : base[s + 1] + 1]
            for columns, used in picked:
                count_entries(used, columns.indptr[s], columns.indices, counts)

        for_each(problem.engine, count, range(len(base) - 1))
        indptr = np.cumsum(indptr)
        free = indptr[:-1].copy()
        slots = np.empty(int(indptr[-1]), np.uint32)
        values = np.empty(int(indptr[-1]), _value_type(problem, held[0].data.dtype))

        def place(s: int) -> None:
            first = 0
            for columns, used in picked:
                shard = (columns.indptr[s], columns.indices, columns.data)
                place_entries(used, first, shard, free[base[s] : base[s + 1]], slots, values)
                first += len(used)

        for_each(problem.engine, place, range(len(base) - 1))
        features = [columns.features[used] for columns, used in zip(held, chosen, strict=True)]
        self._scale = np.ones(self.size)
        self._scale[: self.size - constant] = problem.scale_of(np.concatenate(features))
        self._penalised[self.size - constant :] = 0.0
        self._kept = self._kernels.workspace(problem.scores)
        self._rows = Rows(indptr, slots, values, constant)
        n_parts = len(slots) // max(1, _ENTRIES_PER_SUM * self.size)
        n_parts = 1 if len(slots) <= _ENTRIES_ALONE else min(max(n_parts, 2), _MOST_PARTS)
        cuts = np.searchsorted(indptr, np.linspace(0, len(slots), n_parts + 1)[1:-1])
        self._parts = list(pairwise(np.unique([0, *cuts.tolist(), n]).tolist()))
        most = max(_PART_NUMBERS // problem.width, 1)
        self._slices = [slice(k, k + most) for k in range(0, self.size, most)]

    @staticmethod
    def memory(problem: Problem, nnz: int, dtype: np.dtype[Any], n_features: int) -> int:
        """Return the bytes that `nnz` entries of this dtype, of some features, and Newton steps take."""
        vectors = 8 * 8 + 8 * 4  # eight float64 matrices of the conjugate gradients, and sums of parts
        per_sample = 16 + problem.objective.row_kernels.bytes_per_sample(problem.scores)
        block = block_bytes(n_features, problem.n_classes)
        samples = nnz * (4 + _value_type(problem, dtype).itemsize) + per_sample * problem.n_samples
        return samples + vectors * n_features * problem.width + block

    def newton_step(
        self, rows: NDArray[np.float64], alpha: float, terms: Terms, most: int, damping: float = 0.0
    ) -> float:
        """Move the weights that are not zero towards their minimum.

        Parameters
        ----------
        rows : float64 array of shape (n_chosen, width)
            Weights of the chosen features, no row of them zero, and the intercept; changed in place. Rows
            that would turn round become zero, and so do weights whose sign would, if they have a penalty
            of their own.
        alpha : float
            Weight of the penalty.
        terms : Terms
            Of the chosen features.
        most : int
            Products with the Hessian, at most.
        damping : float
            Added to the model (Levenberg's method): this share of the curvature that each row has where all
            margins are positive, and of ``alpha / |w|``. Where few margins are positive the Hessian is near
            singular, and its steps are far too long: they make many margins positive that were just not. A
            share of the curvature there is would be nothing where there is none. With the second term a
            gradient that is off by this share of alpha moves a row by no more than its own length. (Weights
            of rare features that occur together are such directions, and one of them too long halves the
            step of all.)

        Returns
        -------
        float
            The part of the step that was taken; 0 if none made the objective smaller, and the weights are
            as before.
        """
        problem = self._problem
        penalty = problem.objective.penalty.restricted(rows, alpha * self._penalised)
        terms = terms.padded(self.size)
        ridges, tilt = terms.ridges, terms.tilt
        gradient, precondition = self.gradient()
        gradient += penalty.gradient + ridges[:, None] * rows + tilt
        damped = ridges + _LEAST_DAMPING * precondition.mean(axis=1)
        if damping:
            damped += damping * self.largest_curvatures()
        damped += damping * alpha * self._penalised / penalty.lengths
        damping_of = penalty.curvature + damped + _SMALLEST_CURVATURE
        precondition += damping_of[:, None]
        # weights that are not free do not move
        with _libraries().limit(limits=1, user_api="blas"):  # sums in one order, whatever the machine
            if rows.size <= _DIRECT and len(self._rows.slots) <= _DIRECT_ENTRIES:
                step = self._solve_model(gradient, penalty, damped)
            else:
                scale, free = self._scale, penalty.free
                inverse = preconditioner(problem, self._rows, scale, precondition, damping_of, free)
                step = self._minimise_model(gradient, inverse, penalty, damped, most)
        turned = penalty.turned(step)
        along = _Line(penalty, gradient, ridges, tilt)
        point = self._search(along, step, 1)
        if point is None or turned.any():
            # weights that change sign may have their minimum at zero, where the model does not hold
            other = self._search(along, np.where(turned, -rows, step), _HALVINGS)
            if point is None or (other is not None and other.change < point.change):
                point = other or self._search(along, step, _HALVINGS)
        if point is None:
            return 0.0
        rows[:] = point.rows
        number = problem.scores.dtype.type(point.part)

        def move(span: tuple[int, int]) -> None:
            move_rows(span, self._rows, problem.samples, point.scaled, number)

        for_each(problem.engine, move, self._parts)
        return point.part

    def _search(self, line: _Line, step: NDArray[np.float64], tries: int) -> _Point | None:
        """Halve a step until Armijo's condition holds; None if it does not within so many tries."""
        derivative = float(np.einsum("jr,jr->", line.gradient, step))
        if not derivative < 0:
            return None
        scaled, part = self.scaled(step), 1.0
        along = float(line.ridges @ np.einsum("jr,jr->j", line.penalty.rows, step))
        along += float(np.einsum("jr,jr->", line.tilt, step))
        distance = float(line.ridges @ np.einsum("jr,jr->j", step, step))
        for _ in range(tries):
            moved = line.penalty.rows + part * step
            change = self.loss_change(scaled, part)
            change += line.penalty.change(moved)
            change += part * (along + 0.5 * part * distance)
            if change <= _SUFFICIENT_DECREASE * part * derivative:
                return _Point(moved, scaled, part, change)
            part *= 0.5
        return None

    def _minimise_model(
        self,
        gradient: NDArray[np.float64],
        inverse: Preconditioner,
        penalty: RestrictedPenalty,
        ridges: NDArray[np.float64],
        most: int,
    ) -> NDArray[np.float64]:
        """Return the step that at most `most` conjugate gradients find."""
        unit, penalty_curvature = penalty.unit, penalty.curvature
        factor = self._problem.two_over_n * self._scale
        solution, residual = np.zeros_like(gradient), -gradient
        n_classes, block = self._problem.n_classes, inverse.block
        direction = inverse.diagonal * residual
        direction[block, :n_classes] = inverse.over_block(residual)
        norm = float(np.einsum("jr,jr->", direction, residual))
        enough = _FORCING**2 * norm
        scaled = self.scaled(direction)
        for _ in range(most):
            product = self.product(scaled)
            curve = sum(
                self._in_parts(
                    add_penalty_curvature, direction, unit, penalty_curvature, ridges, factor, product
                )
            )
            if not curve > 0:
                break
            before, vectors = norm, (direction, product, inverse.diagonal, solution, residual)
            norm = sum(self._in_parts(partial(descend, before / curve), *vectors))
            turned = inverse.over_block(residual)
            norm += float(np.einsum("jr,jr->", turned, residual[block, :n_classes]))
            if norm <= enough:
                break
            vectors = (residual, inverse.diagonal, self._scale, direction, scaled)
            self._in_parts(partial(turn, norm / before), *vectors)
            direction[block, :n_classes] += turned
            scaled[block] = self._scale[block, None] * direction[block]
        return solution

    def _solve_model(
        self, gradient: NDArray[np.float64], penalty: RestrictedPenalty, ridges: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the step to the minimum of a small model, from its matrix; of several, the shortest."""
        factor = self._problem.two_over_n * self._scale
        used = np.nonzero(penalty.free[:, : self._problem.n_classes])
        hessian = np.empty((len(used[0]), len(used[0])))
        for k, place in enumerate(zip(*used, strict=True)):
            direction = np.zeros_like(gradient)
            direction[place] = 1.0
            product = self.product(self.scaled(direction))
            add_penalty_curvature(direction, penalty.unit, penalty.curvature, ridges, factor, product)
            hessian[k] = product[used]
        step = np.zeros_like(gradient)
        step[used] = np.linalg.lstsq(0.5 * (hessian + hessian.T), -gradient[used], rcond=_RANK)[0]
        return step

    def gradient(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the gradient of the loss and the diagonal of its Hessian."""
        problem = self._problem
        gradient, curvature = np.zeros((2, self.size, problem.width))

        def work(part: tuple[int, int]) -> NDArray[Any]:
            sums = np.zeros((2, self.size, problem.width), problem.scores.dtype)
            self._kernels.gradient(part, self._rows, problem.samples, self._kept, *sums)
            return sums

        for _, sums in problem.engine.map(work, self._parts):
            gradient += sums[0]
            curvature += sums[1]
        gradient *= problem.two_over_n * self._scale[:, None]
        curvature *= problem.two_over_n * self._scale[:, None] ** 2
        return gradient, curvature

    def largest_curvatures(self) -> NDArray[np.float64]:
        """Return the curvature of each row if every sample had that of a positive margin, shape (size,)."""

        def work(part: tuple[int, int]) -> NDArray[np.float64]:
            squares = np.zeros(self.size)
            add_squares(part, self._rows, self._problem.samples, squares)
            return squares

        total = np.zeros(self.size)
        for _, squares in self._problem.engine.map(work, self._parts):
            total += squares
        return self._problem.two_over_n * self._scale**2 * total

    def product(self, scaled: NDArray[Any]) -> NDArray[np.float64]:
        """Return the product of the loss's Hessian and a scaled direction, before the factors of the rows."""
        problem = self._problem

        def work(part: tuple[int, int]) -> NDArray[Any]:
            sums = np.zeros(scaled.shape, scaled.dtype)
            self._kernels.hessian(part, self._rows, problem.samples, self._kept, scaled, sums)
            return sums

        total = np.zeros(scaled.shape)
        for _, sums in problem.engine.map(work, self._parts):
            total += sums
        return total

    def loss_change(self, scaled: NDArray[Any], part: float) -> float:
        """Return by how much the loss changes along this part of a scaled direction."""
        problem = self._problem

        def work(span: tuple[int, int]) -> float:
            return self._kernels.change(span, self._rows, problem.samples, scaled, part)

        return 0.5 * problem.two_over_n * sum(change for _, change in problem.engine.map(work, self._parts))

    def scaled(self, step: NDArray[np.float64]) -> NDArray[Any]:
        """Return a direction times the scale of the columns, in the type of the scores."""
        return (self._scale[:, None] * step).astype(self._problem.scores.dtype)

    def _in_parts(self, kernel: Callable[..., Any], *arrays: NDArray[Any]) -> list[Any]:
        """Call a kernel with rows of some arrays, part by part; return what it returns."""

        def work(rows: slice) -> Any:
            return kernel(*(array[rows] for array in arrays))

        return [returned for _, returned in self._problem.engine.map(work, self._slices)]
