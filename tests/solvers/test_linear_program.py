"""The restricted master against scipy's linprog, and every way it can end."""

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linprog

from bigmc.errors import DataError
from bigmc.solvers.minimax import linear_program
from bigmc.solvers.minimax.linear_program import Basis, solve_master


def program(seed=0, n_components=12, n_constraints=40, slack=0.05):
    """Return a program that is feasible: the bounds are about a distribution's own expectations."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_components, n_constraints))
    tau = matrix @ rng.dirichlet(np.ones(n_constraints))
    cost = 1 / rng.integers(1, 4, n_constraints) - 1
    return scipy.sparse.csc_array(matrix), cost, tau - slack, tau + slack


def optimum(matrix, cost, lower, upper):
    dense = matrix.toarray()
    found = linprog(
        cost, A_ub=np.vstack([dense, -dense]), b_ub=np.concatenate([upper, -lower]),
        A_eq=np.ones((1, len(cost))), b_eq=[1.0], method="highs",
    )  # fmt: skip
    assert found.status == 0
    return -found.fun


@pytest.mark.parametrize("interior", [True, False])
def test_the_optimum_and_its_multipliers(monkeypatch, interior):
    monkeypatch.setattr(linear_program, "INTERIOR_ENTRIES", 0 if interior else np.inf)
    matrix, cost, lower, upper = program()
    found = solve_master(matrix, cost, lower, upper, None)
    assert found.objective == pytest.approx(optimum(matrix, cost, lower, upper), abs=1e-8)
    assert found.alpha.sum() == pytest.approx(1)
    # Strong duality: the multipliers give the same value.
    dual = np.where(found.mu > 0, lower, upper) @ found.mu - found.nu
    assert -dual == pytest.approx(found.objective, abs=1e-7)
    assert (cost - matrix.T @ found.mu + found.nu >= -1e-6).all()


def test_going_on_from_a_basis_with_more_rows_and_columns():
    matrix, cost, lower, upper = program()
    few = solve_master(matrix[:8, :30].tocsc(), cost[:30], lower[:8] - 1, upper[:8] + 1, None)
    found = solve_master(matrix, cost, lower, upper, few.basis)
    assert found.objective == pytest.approx(optimum(matrix, cost, lower, upper), abs=1e-8)


def test_too_many_iterations_from_a_basis_are_a_fresh_start(monkeypatch):
    monkeypatch.setattr(linear_program, "WARM_ITERATIONS", 0)
    monkeypatch.setattr(linear_program, "FEW_ITERATIONS", 1)
    matrix, cost, lower, upper = program()
    start = Basis(np.zeros(0, np.int8), np.ones(1, np.int8))
    found = solve_master(matrix, cost, lower, upper, start)
    assert found.objective == pytest.approx(optimum(matrix, cost, lower, upper), abs=1e-8)


@pytest.mark.parametrize("warm", [False, True])
def test_expectations_that_no_distribution_has_are_refused(warm):
    matrix, cost, lower, upper = program()
    basis = solve_master(matrix, cost, lower, upper, None).basis if warm else None
    upper = upper + 1000
    with pytest.raises(
        DataError, match="40 constraints and 12 components ended as infeasible; raise lambda0"
    ):
        solve_master(matrix, cost, lower + 1000, upper, basis)


def test_bounds_the_wrong_way_round_are_infeasible():
    matrix, cost, lower, upper = program()
    with pytest.raises(DataError, match="ended as infeasible"):
        solve_master(matrix, cost, upper, lower, None)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(place, bad):
    given = list(program())
    given[place] = given[place].copy()
    (given[0].data if place == 0 else given[place])[3] = bad
    with pytest.raises(DataError, match="not finite"):
        solve_master(*given, None)


def test_no_time_is_no_solution():
    assert solve_master(*program(), None, seconds=0.0) is None
