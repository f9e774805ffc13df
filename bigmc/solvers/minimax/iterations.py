"""The iterations of constraint and column generation: first-order steps, then the linear program."""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.progress import Progress
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Packed
from bigmc.solvers.minimax.bounds import lower_bound, upper_bound, violations
from bigmc.solvers.minimax.expectations import Expectations
from bigmc.solvers.minimax.memory_plan import MinimaxPlan
from bigmc.solvers.minimax.method_choice import MethodChoice, program_seconds
from bigmc.solvers.minimax.parameters import MinimaxParameters
from bigmc.solvers.minimax.pdhg import Candidate, Iterate, SaddleProblem, SaddleSolver
from bigmc.solvers.minimax.pricing import SCALES, Priced, Weights, price_constraints
from bigmc.solvers.minimax.restricted import WorkingSets
from bigmc.solvers.minimax.rows import WorkingRows
from bigmc.solvers.minimax.state import State
from bigmc.store import row_hash
from bigmc.store.dataset import Dataset

#: Minimum and maximum of first-order steps between two scans; more if scans are expensive.
_STEPS, _MOST_STEPS = 200, 1000
#: Maximum samples of the first working set, and components of its features; all features if they are few.
_FIRST_ROWS, _FIRST_COMPONENTS = 4000, 100_000
#: Rows of the working set besides those with mass: this part of them plus a number.
_SPARE, _SPARE_ROWS = 0.5, 200
#: Part of the working set that is kept free for new rows if its size is at the limit.
_RENEWED = 0.25
#: Below this tolerance single precision is too coarse for the first-order steps.
_SINGLE_PRECISION_TOL = 1e-5
#: From this share of the expected lower bound on, every iteration searches for a balanced distribution.
_PROMISING = 0.01
#: Thresholds are divided by this when no violation exceeds them and the bounds have not met.
_TIGHTEN = 10.0
#: Below these thresholds no violation is worth adding.
_LEAST_THRESHOLD = 1e-10


Stop = Literal["tol", "k_max", "time_limit", "rounding"]
"""Why the iterations stopped: the bounds met, a limit, or the accuracy of double precision."""


class Iterations:
    """Constraint and column generation: a `bigmc.solvers.loop.Method`.

    `end` is the deadline on the clock of `time.monotonic`. `lam`, of shape (n_psi, n_classes), is λ of
    each component. A checkpoint holds `state`.
    """

    state: State

    def __init__(
        self,
        dataset: Dataset,
        expected: Expectations,
        plan: MinimaxPlan,
        engine: Engine,
        parameters: MinimaxParameters,
        end: float,
    ) -> None:
        self.lam = parameters.lambda0 * expected.deviation
        self._dataset = dataset
        self._expected = expected
        self._plan = plan
        self._engine = engine
        self._parameters = parameters
        self._end = end
        self._n_classes = len(expected.shares)
        self._absent = expected.absent
        self._saddle = SaddleProblem.of(expected, self.lam)
        row_scale = dataset.row_scale(dataset.column_scale())
        self._rows = WorkingRows(dataset, expected, row_scale, plan.scratch_bytes, engine, plan.max_rows)
        self._dtype = step_type(parameters.tol)
        n_psi, n_classes = expected.tau.shape
        self._choice = MethodChoice(plan.program_bytes, n_psi, n_classes, parameters.tol)

    @property
    def history(self) -> list[Figures]:
        """Figures of every iteration."""
        return self.state.history

    def start(self) -> None:
        """Begin with μ = 0, and the share of each class on its centroid."""
        # An optimal basis has no more constraints than components, and mostly far fewer.
        wanted = min(self._expected.tau.size // 2 + 1000, _FIRST_ROWS)
        count = min(wanted, self._plan.max_rows - self._n_classes, self._dataset.n_samples)
        parameters = self._parameters
        self._rows.set(sample_by_hash(self._dataset.n_samples, count, parameters.seed))
        dual = np.zeros((len(self._rows), self._n_classes))
        dual[: self._n_classes] = np.diag(self._expected.shares)
        coef = np.zeros(self._expected.tau.shape)
        features = self._first_features()
        iterate = Iterate.start(dual, np.zeros((len(features), self._n_classes)))
        sets = WorkingSets(self._n_classes)
        self.state = State(
            self._rows.samples, features, iterate, sets, coef, parameters.eps1, parameters.eps2
        )
        self.state.upper = upper_bound(self._expected, self.lam, coef, -1.0 / self._n_classes)
        self._first_scan()

    def resume(self, saved: Packed) -> None:
        """Continue from a saved state: the rows of its working set are read again."""
        self.state = State.unpack(saved, self._n_classes)
        self._rows.set(self.state.samples[self.state.samples >= 0])

    def pack(self) -> Packed:
        """Return the contents of a checkpoint."""
        return self.state.pack()

    def certify(self) -> tuple[Certificate, Figures | None]:
        """Return the bounds, which every scan improves; before the first iteration there are no figures."""
        state = self.state
        certificate = Certificate(state.lower, state.upper, max(0.0, state.upper - state.lower))
        if state.n_iter == 0:
            return certificate, None
        return certificate, {
            "n_iter": float(state.n_iter),
            "n_scans": float(state.n_scans),
            "upper": state.upper,
            "lower": state.lower,
            "gap": state.upper - state.lower,
            "n_rows": float(len(self._rows)),
            "n_constraints": float(len(state.sets)),
            "n_components": float(len(state.sets.components)),
        }

    def message(self, figures: Figures) -> Progress:
        """Return the progress message of an iteration."""
        number = int(figures["n_iter"])
        return Progress(f"iteration {number}", number, 0, "iterations", figures)

    def reason_to_stop(self, certificate: Certificate) -> Stop | None:
        """Return why the run stops: the bounds met, rounding hides the rest, or a limit is reached."""
        if certificate.gap <= self._parameters.tol:
            return "tol"
        if self.state.exact:
            return "rounding"
        if self.state.n_iter >= self._parameters.k_max:
            return "k_max"
        return "time_limit" if time.monotonic() >= self._end else None

    def improve(self) -> None:
        """Solve the restricted problem, by the linear program or by first-order steps, and price."""
        state = self.state
        if state.n_iter > 0:
            self._choice.choose(state, self._rows, self._n_steps())
        state.exact = state.linear and not self._linear_iteration()
        if not state.linear:
            self._first_order_iteration()
        state.n_iter += 1

    def _first_scan(self) -> None:
        """Price the differences of the class means, to get a bound below that of guessing."""
        expected = self._expected
        apart = expected.tau - expected.tau.sum(axis=1, keepdims=True) * expected.shares
        direction = np.sign(apart) * np.maximum(np.abs(apart) - self.lam, 0.0)
        direction /= expected.rms[:, np.newaxis] ** 2
        largest = np.abs(direction).max()
        if largest > 0:
            priced = self._scan(direction / largest, 1)
            # In these units the best point of the ray is of the order of 1.
            self._scan(direction / (largest * max(float(priced.values[0]) + 1.0, 1e-9)), 1)

    def _first_features(self) -> NDArray[np.int64]:
        """Return all features if they are few, else those whose means differ most between classes."""
        n_psi, n_classes = self._expected.tau.shape
        count = max(1, _FIRST_COMPONENTS // n_classes)
        if n_psi <= count:
            return np.arange(n_psi)
        # The expectations if classes did not depend on features.
        alike = self._expected.tau.sum(axis=1, keepdims=True) * self._expected.shares
        return np.sort(self._most_violated(alike, count))

    def _most_violated(self, moments: NDArray[np.float64], count: int) -> NDArray[np.int64]:
        """Return the features with the largest violations, at least eps2, and the constant."""
        excess = violations(self._expected, self.lam, moments).max(axis=1)
        if self._expected.intercept:
            excess[-1] = np.inf
        order = np.argsort(-excess, kind="stable")[:count]
        violated: NDArray[np.int64] = order[excess[order] >= self._parameters.eps2]
        return violated

    def _first_order_iteration(self) -> None:
        """Make first-order steps on the working sets, then price all constraints and components."""
        state, rows = self.state, self._rows
        everything = len(state.features) == len(self._expected.tau)
        matrix = rows.matrix if everything else rows.matrix[:, state.features]
        solver = SaddleSolver(
            self._saddle.of_features(state.features), matrix.astype(self._dtype, copy=False)
        )
        last, average = solver.run(state.iterate, self._n_steps(), self._end)
        del solver, matrix  # their memory is for new rows
        for candidate in sorted((last, average), key=lambda c: c.lower):
            moments = self._bound_below(candidate.dual, candidate.lower)
        chosen: Candidate = min((last, average), key=lambda c: c.upper)
        most = self._plan.max_rows - self._n_classes
        mass = np.maximum(last.dual, average.dual).sum(axis=1)
        heaviest = np.argsort(-mass, kind="stable")[: int((1 - _RENEWED) * most)]
        kept = np.sort(rows.samples[heaviest[(mass[heaviest] > 0) & (rows.samples[heaviest] >= 0)]])
        n_active = int(np.count_nonzero(mass))
        priced = self._scan(self._coef(chosen.coef), min(int((1 + _SPARE) * n_active) + _SPARE_ROWS, most))
        new = priced.samples[~np.isin(priced.samples, kept)]
        places = rows.set(np.union1d(kept, new[: most - len(kept)]))
        state.iterate.move_rows(places, len(rows))
        state.samples = rows.samples
        if not everything:
            features = np.union1d(state.features, self._most_violated(moments, self._parameters.m_max))
            state.iterate.move_features(np.searchsorted(features, state.features), len(features))
            state.features = features

    def _coef(self, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return μ of all features from its scaled form on the working features."""
        whole = np.zeros(self._expected.tau.shape)
        whole[self.state.features] = self._saddle.scale[self.state.features] * coef
        return whole

    def _linear_iteration(self) -> bool:
        """Solve the linear program, then price constraints and components; False if there are no more."""
        state, rows, sets = self.state, self._rows, self.state.sets
        if not len(sets):
            self._seed()
        tol = min(1e-7, 1e-2 * self._parameters.tol)
        solution = sets.solve(rows, self._expected, self.lam, max(tol, 1e-10), self._end - time.monotonic())
        if solution is None:  # the time is over
            return True
        state.spent += program_seconds(len(sets), len(sets.components), sets.share())
        moments = self._bound_below(solution.dual)
        priced = self._scan(solution.coef, self._parameters.n_max)
        excess = violations(self._expected, self.lam, moments).ravel()
        order = np.argsort(-excess, kind="stable")[: self._parameters.m_max]
        violation = priced.values - (solution.nu - 1.0)
        while True:
            violated = violation >= state.eps1
            state.outgrown = not self._take_rows(priced.samples[violated])
            if state.outgrown:
                return True
            n_new = sets.add_constraints(priced.samples[violated], priced.masks[violated])
            n_new += sets.add_components(order[excess[order] >= state.eps2])
            if n_new:
                return True
            if max(state.eps1, state.eps2) < _LEAST_THRESHOLD:
                return False
            state.eps1, state.eps2 = state.eps1 / _TIGHTEN, state.eps2 / _TIGHTEN

    def _take_rows(self, new: NDArray[np.int64]) -> bool:
        """Add samples to the working set, if they fit; samples without a constraint may be dropped."""
        state, rows = self.state, self._rows
        wanted = np.union1d(rows.samples, new)
        if len(wanted) > self._plan.max_rows:
            wanted = np.union1d(state.sets.samples, new)
        if len(np.union1d(wanted, rows.samples[: self._n_classes])) > self._plan.max_rows:
            return False
        state.iterate.move_rows(rows.set(wanted), len(rows))
        state.samples = rows.samples
        return True

    def _seed(self) -> None:
        """Make the working sets from the current point of the first-order steps."""
        state, sets = self.state, self.state.sets
        iterate = state.iterate
        n_classes = self._n_classes
        dual, coef = iterate.dual, self._coef(iterate.coef)
        alone = np.packbits(np.eye(n_classes, dtype=np.uint8), axis=1, bitorder="little")
        sets.add_constraints(np.arange(-n_classes, 0), alone)
        sets.seed_constraints(self._rows, dual)
        components = np.flatnonzero(coef.ravel())
        if self._expected.tau.size <= self._parameters.m_max:
            components = np.arange(self._expected.tau.size)
        sets.add_components(components)

    def _bound_below(self, dual: NDArray[np.float64], promise: float = np.inf) -> NDArray[np.float64]:
        """Improve the lower bound by a distribution over the working rows, and return Fᵀα.

        With a feature that no sample of a class has, a balanced distribution is searched for as well
        if `promise`, the bound of the restricted problem, is above the lower bound.
        """
        moments = self._rows.moments(dual)
        lower = lower_bound(self._expected, self.lam, dual, moments)
        if self._absent.any() and promise > self.state.lower and self._worth_balancing(promise):
            # A feature that no sample of a class has leaves no slack: however little is wrong there after the
            # first-order steps, it would take the whole bound.
            rest = self._rows.balanced(dual, self._absent)
            lower = max(lower, lower_bound(self._expected, self.lam, rest, self._rows.moments(rest)))
        self.state.lower = max(self.state.lower, lower)
        return moments

    def _worth_balancing(self, promise: float) -> bool:
        """Return whether to search for a distribution without mass on absent components.

        If nearly all are absent, as in hashed text, there is none, and the search costs more than the
        steps: until the lower bound nears the promised one, only iterations 2, 3, 5, 9, ... search.
        """
        return self.state.lower > _PROMISING * promise or self.state.n_iter.bit_count() == 1

    def _scan(self, coef: NDArray[np.float64], n_best: int) -> Priced:
        """Price all samples at μ, which gives upper bounds along its ray, and keep the best point."""
        state = self.state
        weights = Weights.of(self._expected, coef)
        priced = price_constraints(self._dataset, weights, n_best, self._plan.scratch_bytes, self._engine)
        state.n_scans += 1
        linear = upper_bound(self._expected, self.lam, coef, 0.0) - 1.0
        uppers = 1.0 + SCALES * linear + priced.phi
        best = int(np.argmin(uppers))
        if uppers[best] < state.upper:
            state.upper, state.coef = float(uppers[best]), SCALES[best] * coef
        return priced

    def _n_steps(self) -> int:
        """Return how many first-order steps cost as much as a scan."""
        size = self._dataset.nnz / max(1, 2 * self._rows.matrix.size)
        return int(np.clip(size, _STEPS, _MOST_STEPS))


def step_type(tol: float) -> np.dtype[Any]:
    """Return the precision of the first-order steps."""
    return np.dtype(np.float32 if tol >= _SINGLE_PRECISION_TOL else np.float64)


def sample_by_hash(n_samples: int, count: int, seed: int) -> NDArray[np.int64]:
    """Choose samples by a hash of seed and number, increasing; with `count` of n or more, all of them."""
    if count >= n_samples:
        return np.arange(n_samples)
    states = np.arange(n_samples, dtype=np.uint64) + np.uint64(seed * row_hash.GAMMA % 2**64)
    return np.sort(np.argsort(row_hash.mix(states), kind="stable")[:count])
