"""Which method the minimax learner goes on with, at the sizes and costs on both sides of every limit."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bigmc.solvers.minimax.method_choice import MethodChoice, program_seconds
from bigmc.solvers.minimax.restricted import WorkingSets

N_FEATURES, N_CLASSES, N_ROWS, TOL = 40, 3, 2000, 1e-4


class Rows:
    """Rows of the working set, of which only the numbers count."""

    def __init__(self, n):
        self.n, self.matrix = n, SimpleNamespace(size=n * N_FEATURES)

    def __len__(self):
        return self.n


def state_of(gap, n_used=N_ROWS, n_coef=N_FEATURES, falls=1.0, setbacks=0):
    """Return a state of first-order steps: two classes of each used row have mass, `n_coef` weights not 0.

    Its gap fell by a factor of ``exp(falls)`` in each of the last eight iterations.
    """
    dual, coef = np.zeros((N_ROWS, N_CLASSES)), np.zeros((N_FEATURES, N_CLASSES))
    dual[:n_used, :2] = 1.0
    coef.ravel()[:n_coef] = 1.0
    return SimpleNamespace(
        linear=False, outgrown=False, sets=WorkingSets(N_CLASSES), spent=7.0, allowance=0.0,
        setbacks=setbacks, upper=0.3 + gap, lower=0.3, iterate=SimpleNamespace(dual=dual, coef=coef),
        history=[{"gap": gap * np.exp(falls * k)} for k in range(8, -1, -1)],
    )  # fmt: skip


def chosen(state, program_bytes=1 << 40, n_steps=1000, n_rows=N_ROWS):
    MethodChoice(program_bytes, N_FEATURES, N_CLASSES, TOL).choose(state, Rows(n_rows), n_steps)
    return state


def expected_steps(gap, falls, n_steps):
    """Seconds of the steps that take the gap to the tolerance, of two products by 6e-11 s an entry each."""
    return np.log(gap / TOL) / falls * n_steps * (6e-11 * 2 * N_ROWS * N_FEATURES * N_CLASSES + 2e-4)


def test_a_program_costs_by_its_entries_and_its_smaller_side():
    assert program_seconds(30, 20, 0.5) == pytest.approx(5e-9 * 0.5 * 30 * 20 * 20)
    assert program_seconds(20, 30, 1.0) == pytest.approx(5e-9 * 30 * 20 * 20)


def test_a_program_is_tried_where_its_entries_fit():
    """60 bytes each; one and a half times the rows with mass, and as many constraints as classes besides."""
    n_bytes = 60 * (2 / 3) * (15 + N_CLASSES) * N_FEATURES
    assert chosen(state_of(0.01, n_used=10), program_bytes=n_bytes + 1).linear
    assert not chosen(state_of(0.01, n_used=10), program_bytes=n_bytes - 1).linear


def test_before_the_sets_are_good_enough_a_quick_program_is_tried_whose_every_entry_fits():
    """A twentieth of a second is quick; all rows and components count, whether or not they are used."""
    sides = [int(1.5 * n) + N_CLASSES for n in (76, 77)]
    seconds = [6 * 5e-9 * side * side * N_FEATURES * N_CLASSES for side in sides]
    assert seconds[0] < 0.05 < seconds[1]
    state, many = partial(state_of, 0.051, n_used=5, n_coef=2), {"n_steps": 10**9}
    n_bytes = 60 * sides[0] * N_FEATURES * N_CLASSES
    assert chosen(state(), n_bytes, n_rows=76, **many).linear
    assert not chosen(state(), n_bytes - 1, n_rows=76, **many).linear
    assert not chosen(state(), n_rows=77, **many).linear
    assert chosen(state_of(0.049, falls=1e-9), **many).linear


@pytest.mark.parametrize("setbacks", [0, 2])
def test_a_program_is_tried_where_steps_are_expected_to_take_longer(setbacks):
    """It is solved six times, and each setback doubles what is expected."""
    gap, falls = 0.04, 0.5
    programs = 6 * 2**setbacks * 5e-9 * (2 / 3) * (1.5 * N_ROWS + N_CLASSES) * N_FEATURES**2
    n_steps = programs / expected_steps(gap, falls, 1)
    assert programs > 0.05
    assert not chosen(state_of(gap, falls=falls, setbacks=setbacks), n_steps=0.99 * n_steps).linear
    state = chosen(state_of(gap, falls=falls, setbacks=setbacks), n_steps=1.01 * n_steps)
    assert state.linear
    assert (state.spent, state.allowance) == (0.0, pytest.approx(max(2 * programs, 2.0)))


def test_a_gap_that_hardly_falls_counts_as_falling_by_a_hundredth():
    programs = 6 * 5e-9 * (2 / 3) * (1.5 * N_ROWS + N_CLASSES) * N_FEATURES**2
    n_steps = programs / expected_steps(0.04, 0.01, 1)
    assert not chosen(state_of(0.04, falls=1e-6), n_steps=0.99 * n_steps).linear
    assert chosen(state_of(0.04, falls=1e-6), n_steps=1.01 * n_steps).linear


def test_steps_are_judged_after_eight_falls():
    state = state_of(0.04, falls=1e-6)
    state.history = state.history[1:]
    assert not chosen(state, n_steps=10**9).linear


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"spent": 3.0}, True),
        ({"spent": 3.1}, False),
        ({"outgrown": True}, False),
    ],
)
def test_a_program_that_takes_too_long_or_too_much_gives_way_to_steps(change, stays):
    state = state_of(0.01)
    vars(state).update({"linear": True, "spent": 1.0, "allowance": 3.0, **change})
    sets = state.sets
    chosen(state)
    assert state.linear is stays
    assert state.setbacks == int(not stays)
    assert (state.sets is sets) is stays
    assert not state.outgrown


def test_a_program_larger_than_its_memory_gives_way_to_steps():
    for more, stays in ((0, True), (-1, False)):
        state = state_of(0.01)
        vars(state).update({"linear": True, "spent": 1.0, "allowance": 3.0})
        state.sets.add_components(np.arange(5))
        state.sets.add_constraints(np.arange(4), np.full((4, 1), 3, np.uint8))
        assert chosen(state, state.sets.nbytes() + more).linear is stays
