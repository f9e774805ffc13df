"""When the linear program replaces the first-order steps, and when they return: by expected costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigmc.solvers.minimax.linear_program import ENTRY_BYTES
from bigmc.solvers.minimax.restricted import WorkingSets
from bigmc.solvers.minimax.rows import WorkingRows
from bigmc.solvers.minimax.state import State

#: Iterations over which the speed of the first-order steps is measured, and the least decrease of the
#: logarithm of the gap assumed per iteration: it decreases in steps.
_JUDGE, _LEAST_FALL = 8, 0.01
#: Gap at which the working sets are good enough to start a linear program.
_SEED_GAP = 0.05
#: Seconds of the interior point method for every entry and smaller number of constraints and components, and
#: of a first-order step for every value of its rows and class: measured, only their ratio matters.
PROGRAM_COST, _STEP_COST, _STEP_OVERHEAD = 5e-9, 6e-11, 2e-4
#: Linear programs that are usually solved before the bounds meet, in units of the first one.
_PROGRAMS = 6.0
#: A linear program of at most this many seconds is tried without waiting for good working sets.
_QUICK = 0.05
#: The linear programs may take this multiple of their expected time, and at least this many seconds;
#: then the first-order steps continue, and the expected time is doubled.
_PATIENCE, _LEAST_ALLOWANCE = 2.0, 2.0


@dataclass(frozen=True)
class MethodChoice:
    """Chooses the method of an iteration, for μ of shape (n_features, n_classes) and a gap of `tol`.

    A linear program may take `program_bytes`.
    """

    program_bytes: int
    n_features: int
    n_classes: int
    tol: float

    def choose(self, state: State, rows: WorkingRows, n_steps: int) -> None:
        """Switch to the linear program if it is expected to be cheaper, and back if it is not.

        `state.linear` is the choice; an iteration makes `n_steps` first-order steps. Each switch back
        doubles the expected cost of the program, so that of two methods of which one does not finish
        the other gets its turn.
        """
        if state.linear:
            too_large = state.outgrown or state.sets.nbytes() > self.program_bytes
            if too_large or state.spent > state.allowance:
                state.outgrown = False
                state.linear, state.sets = False, WorkingSets(self.n_classes)
                state.setbacks += 1
            return
        ready = state.upper - state.lower <= _SEED_GAP
        # Before that gap, the working sets of the steps do not show how large the program will be.
        dual, coef = state.iterate.dual, state.iterate.coef
        n_rows = int(np.count_nonzero(dual.any(axis=1))) if ready else len(rows)
        n_components = int(np.count_nonzero(coef)) if ready else self.n_features * self.n_classes
        share = np.count_nonzero(dual) / (max(n_rows, 1) * self.n_classes) if ready else 1.0
        n_constraints, n_components = int(1.5 * n_rows) + self.n_classes, max(n_components, 1)
        if ENTRY_BYTES * share * n_constraints * n_components > self.program_bytes:
            return
        programs = _PROGRAMS * 2.0**state.setbacks * program_seconds(n_constraints, n_components, share)
        if programs <= _QUICK or (ready and self._steps_seconds(state, rows, n_steps) > programs):
            state.linear, state.spent = True, 0.0
            state.allowance = max(_PATIENCE * programs, _LEAST_ALLOWANCE)

    def _steps_seconds(self, state: State, rows: WorkingRows, n_steps: int) -> float:
        """Return the expected seconds of the first-order steps until the bounds meet."""
        history = state.history
        if len(history) <= _JUDGE:
            return 0.0
        fall = np.log(history[-1 - _JUDGE]["gap"] / history[-1]["gap"]) / _JUDGE
        missing = np.log(history[-1]["gap"] / self.tol) / max(fall, _LEAST_FALL)
        step = _STEP_COST * 2 * rows.matrix.size * self.n_classes + _STEP_OVERHEAD
        return float(missing * n_steps * step)


def program_seconds(n_constraints: int, n_components: int, share: float) -> float:
    """Return the expected seconds of a linear program with this share of non-zero entries."""
    return PROGRAM_COST * share * n_constraints * n_components * min(n_constraints, n_components)
