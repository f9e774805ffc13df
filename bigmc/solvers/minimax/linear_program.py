"""The restricted master of the minimax risk classifier: one linear program, solved by HiGHS.

It is the dual (15) of Bondugula, Mazuelas and Pérez over a working set I of constraints (a sample and a
label subset each) and a working set J of components of the feature mapping::

                α_1        α_2      …    α_I
    min         b_1        b_2      …    b_I          b_i = 1/|C_i| − 1
    row 0        1          1       …     1           =  1                       → nu   = −row dual
    row j      F_1j       F_2j      …    F_Ij         in [τ_j − λ_j, τ_j + λ_j]  → mu_j = row dual
               α_1 ≥ 0    α_2 ≥ 0   …    α_I ≥ 0      R = −(optimum)

A new constraint is a new column, a new feature a new ranged row. Every call builds the program from
its arguments and starts from the basis it is given, so that equal arguments give equal bits and a resumed
run needs nothing but arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.errors import DataError

#: Bytes of an entry of the program: value and index, HiGHS's copies by row and by column, and the factors.
ENTRY_BYTES = 60
#: Entries above which the first solution is by the interior point method, with crossover to a basis.
INTERIOR_ENTRIES = 30_000
#: Simplex iterations per row and column above which a new interior point solution is cheaper.
WARM_ITERATIONS = 2.0
FEW_ITERATIONS = 1000

_DUAL_SIMPLEX, _PRIMAL_SIMPLEX = 1, 4

_LOWER, _BASIC, _UPPER, _ZERO = range(4)
_STATUSES = (
    highspy.HighsBasisStatus.kLower,
    highspy.HighsBasisStatus.kBasic,
    highspy.HighsBasisStatus.kUpper,
    highspy.HighsBasisStatus.kZero,
)


@dataclass(frozen=True)
class Basis:
    """The start of the simplex method, for each α, and for the sum of α and each component.

    A status is 0 at the lower bound, 1 basic, 2 at the upper bound, 3 at zero.
    """

    constraints: NDArray[np.int8]
    rows: NDArray[np.int8]

    def extended(self, n_constraints: int, n_rows: int) -> Basis:
        """Return the basis for more constraints, at 0, and more rows, basic."""
        more = n_constraints - len(self.constraints)
        constraints = np.concatenate([self.constraints, np.full(more, _LOWER, np.int8)])
        rows = np.concatenate([self.rows, np.full(n_rows - len(self.rows), _BASIC, np.int8)])
        return Basis(constraints, rows)


@dataclass(frozen=True)
class MasterSolution:
    """Optimum of a restricted master; `objective` R is the worst-case error over the working sets."""

    alpha: NDArray[np.float64]
    mu: NDArray[np.float64]
    nu: float
    objective: float
    basis: Basis
    n_iter: int


def solve_master(
    matrix: scipy.sparse.csc_array,
    cost: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    basis: Basis | None,
    *,
    seconds: float = np.inf,
    tol: float = 1e-7,
) -> MasterSolution | None:
    """Solve the restricted master; None if the time was over.

    `matrix`, of shape (n_components, n_constraints), is Fᵀ over the working sets, `cost` is b, and
    `lower` and `upper` are τ − λ and τ + λ. The solver starts from `basis`, see `Basis.extended`, or
    anew; `tol` is the feasibility tolerance of HiGHS, primal and dual. `DataError` if numbers are not
    finite, or HiGHS ends with any other status than optimal.
    """
    for values in (matrix.data, cost, lower, upper):
        if not np.isfinite(values).all():  # HiGHS would answer NaN with "optimal"
            raise DataError("the linear program has numbers that are not finite", "look for huge values")
    solver = _program(matrix, cost, lower, upper, tol)
    if basis is not None:
        n_components, n_constraints = matrix.shape
        # The old solution stays feasible when constraints were added only, and its multipliers stay
        # dual feasible when components were.
        added_components = n_components + 1 > len(basis.rows)
        solver.setOptionValue("simplex_strategy", _DUAL_SIMPLEX if added_components else _PRIMAL_SIMPLEX)
        most = int(WARM_ITERATIONS * (n_components + n_constraints)) + FEW_ITERATIONS
        solver.setOptionValue("simplex_iteration_limit", most)
        solver.setBasis(_to_highs(basis.extended(n_constraints, n_components + 1)))
    elif matrix.nnz >= INTERIOR_ENTRIES:
        solver.setOptionValue("solver", "ipm")
    if np.isfinite(seconds):
        solver.setOptionValue("time_limit", max(seconds, 0.0))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kTimeLimit:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        if basis is not None:  # too many iterations, or numerical trouble: a fresh start is safe
            left = seconds - solver.getRunTime()
            return solve_master(matrix, cost, lower, upper, None, seconds=left, tol=tol)
        raise DataError(
            f"the linear program of {matrix.shape[1]} constraints and {matrix.shape[0]} components ended as "
            f"{solver.modelStatusToString(status).lower()}",
            "raise lambda0, or scale the features to similar sizes",
        )
    return _solution(solver)


def _program(
    matrix: scipy.sparse.csc_array,
    cost: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    tol: float,
) -> Any:
    n_components, n_constraints = matrix.shape
    ones = scipy.sparse.csr_array(np.ones((1, n_constraints)))
    whole = scipy.sparse.vstack([ones, matrix], format="csc")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = n_constraints, n_components + 1
    program.col_cost_ = cost
    program.col_lower_ = np.zeros(n_constraints)
    program.col_upper_ = np.full(n_constraints, highspy.kHighsInf)
    program.row_lower_ = np.concatenate([[1.0], lower])
    program.row_upper_ = np.concatenate([[1.0], upper])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = whole.indptr.astype(np.int32)
    program.a_matrix_.index_ = whole.indices.astype(np.int32)
    program.a_matrix_.value_ = whole.data
    make: Any = _SilentHighs
    solver = make()
    for name, value in (
        ("threads", 1),
        ("primal_feasibility_tolerance", tol),
        ("dual_feasibility_tolerance", tol),
        ("solver", "simplex"),
    ):
        solver.setOptionValue(name, value)
    if solver.passModel(program) == highspy.HighsStatus.kError:
        raise DataError("HiGHS refused the linear program", "look for huge values in the data")
    return solver


class _SilentHighs(highspy.Highs):
    """HiGHS that prints nothing; 1.16 prints its banner when callbacks are enabled, at the start."""

    def enableCallbacks(self) -> Any:
        self.silent()
        return super().enableCallbacks()  # type: ignore[no-untyped-call]


def _solution(solver: Any) -> MasterSolution:
    values, basis, info = solver.getSolution(), solver.getBasis(), solver.getInfo()
    duals = np.array(values.row_dual)
    return MasterSolution(
        np.array(values.col_value),
        duals[1:],
        -float(duals[0]),
        -float(info.objective_function_value),
        Basis(_from_highs(basis.col_status), _from_highs(basis.row_status)),
        int(info.simplex_iteration_count + info.ipm_iteration_count + max(info.crossover_iteration_count, 0)),
    )


def _to_highs(basis: Basis) -> Any:
    made = highspy.HighsBasis()
    made.col_status = [_STATUSES[s] for s in basis.constraints]
    made.row_status = [_STATUSES[s] for s in basis.rows]
    made.valid = True
    return made


def _from_highs(statuses: Any) -> NDArray[np.int8]:
    code = {status: number for number, status in enumerate(_STATUSES)}
    return np.array([code.get(status, _LOWER) for status in statuses], np.int8)
