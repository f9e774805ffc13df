"""Rounds of block coordinate descent over data in memory: passes over all of it, sweeps over a working set.

Blondel, Seki, Uehara (2013). A pass computes the gradient of all features at fixed scores, which gives a
certificate and the working set (features that have weights or violate the optimality conditions). Sweeps
over the working set, and Newton steps over the features with weights, follow until its violation is a
fraction of that of the pass. Later passes leave out the features that a pass proves to have no weights at the
optimum.

The solver starts with the penalty at which all weights are zero and goes down to the requested one, each
optimum the start for the next: the features stay few all the way, where updating all at once would give
weights to many that lose them again.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.errors import DataError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Limits, Packed, pass_progress
from bigmc.solvers.sparse.bounds import lower_bound
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.margins import PairMargins
from bigmc.solvers.sparse.memory_plan import SolverPlan
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.state import State
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.sweeps import Course, Sweeper
from bigmc.solvers.sparse.working_set.gradient import GradientPass, gradient_pass
from bigmc.solvers.sparse.working_set.projection import Proof, projected_bound
from bigmc.solvers.sparse.working_set.state import MemoryState

#: Sweeps stop when the violation makes a gap of this fraction of the tolerance, so that the next pass is
#: mostly the last; but between the other two fractions of the violation of the last pass, since the working
#: set may miss features.
_TOLERATED = 0.3
_SMALLEST_FRACTION, _LARGEST_FRACTION = 0.01, 0.2
#: A violation of alpha makes a gap of the penalty's share in the objective; the minimum assumed for it.
_SMALLEST_SHARE = 0.1
#: With fewer entries a pass costs little: the first penalty is the requested one.
_FEW_ENTRIES = 10_000
#: Sweeps between two passes, at most, and Newton steps.
_INNER_SWEEPS = 1000
_INNER_STEPS = 2
#: The penalty goes down by about this factor from stage to stage, each solved to this fraction of it.
_STAGE_FACTOR = 5.0
_STAGE_FRACTION = 0.5
#: Largest gradient, in alpha, for which a better dual point is searched; and the gap, as a share of the
#: tolerance, that violations may make when this search ends.
_NEARLY_FEASIBLE, _ALLOWED = 3.0, 0.1
#: Newton steps of the intercept before a certificate.
_INTERCEPT_STEPS = 20


class Rounds:
    """Passes and sweeps in turn: a `bigmc.solvers.loop.Method`.

    Parameters
    ----------
    progress : callable, optional
        Called after Newton steps too, between two passes.
    start : State, optional
        Where a new run starts; by default from no weights.

    Attributes
    ----------
    state : MemoryState
    """

    def __init__(
        self,
        problem: Problem,
        source: BlockSource,
        plan: SolverPlan,
        sweeper: Sweeper,
        limits: Limits,
        progress: ProgressCallback = silent,
        start: State | None = None,
    ) -> None:
        self._limits = limits
        self._problem = problem
        self._source = source
        self._plan = plan
        self._sweeper = sweeper
        self._progress = progress
        self._start = start
        self._total_nnz = max(source.dataset.nnz, 1)
        self._gradual = source.dataset.nnz >= _FEW_ENTRIES
        self._held: list[Columns] = []
        self._share = 1.0
        self._set_state(MemoryState.zeros(problem.width, problem.n_classes))

    @property
    def history(self) -> list[Figures]:
        """Figures of every certificate."""
        return self.state.history

    def start(self) -> None:
        """Start from the weights there are."""
        if self._start is not None:
            self._set_state(MemoryState.of(self._start))
            self.state.top = self._problem.alpha  # without larger penalties on the way
        if self.state.norms is not None:
            self._rebuild()
            self._improve(self._expected(self.state.norms), None)

    def resume(self, saved: Packed) -> None:
        """Resume from a saved state."""
        self._set_state(MemoryState.unpack(saved, self._problem.width))

    def _set_state(self, state: MemoryState) -> None:
        self.state = state
        self._read_before = state.bytes_read - self._source.bytes_read
        self._screening = Screening(self._source.dataset.column_nnz(), state.coef.features)
        if state.screened is not None:
            self._screening.restore(state.screened)

    def pack(self) -> Packed:
        """Return the state, and which features are left out."""
        self.state.screened = self._screening.saved()
        return self.state.pack()

    def certify(self) -> tuple[Certificate, Figures]:
        """Make a pass over all features that are not screened out."""
        self._rebuild()
        self._gradients, certificate = self._evaluate()
        self._count_bytes()
        gradients, passes = self._gradients, self.state.nnz_read / self._total_nnz
        n_screened = float(self._screening.n_screened)
        figures = self.state.figures(
            certificate, passes, gradients.violation, gradients.largest_norm, n_screened=n_screened
        )
        return certificate, figures

    def message(self, figures: Figures) -> Progress:
        """Return the passes made so far, and the figures."""
        return pass_progress(figures, self._limits.max_passes)

    def reason_to_stop(self, certificate: Certificate) -> str | None:
        """Stop at the tolerance, or after the number of passes."""
        passes = self.state.nnz_read / self._total_nnz
        if certificate.gap > self._limits.tol and passes < self._limits.max_passes:
            return None
        self.state.norms = self._screening.norms
        return "tol" if certificate.gap <= self._limits.tol else "max_passes"

    def improve(self) -> None:
        """Sweep over the working set of the last pass, and take Newton steps."""
        self._improve(self._gradients, _INNER_STEPS if self._gradual else None)
        self._count_bytes()

    def _count_bytes(self) -> None:
        self.state.bytes_read = self._read_before + self._source.bytes_read

    def _expected(self, norms: NDArray[np.float32]) -> GradientPass:
        """Return what a pass would find, from the norms at the optimum of a larger penalty.

        Which features will have weights follows by the sequential strong rule (Tibshirani et al., "Strong
        rules for discarding predictors in lasso-type problems", JRSS B 74, 2012): gradients change less
        than the penalty does. The certificate of the next pass says whether they did.
        """
        state, source, alpha = self.state, self._source, self._problem.alpha
        before = float(norms.max(initial=0.0))
        weighted = np.zeros(len(norms), bool)
        weighted[state.coef.features] = True
        features = np.flatnonzero(weighted | (norms > min(2.0 * alpha - before, alpha)))
        violations = np.maximum(norms[features] - (alpha - max(before - alpha, 0.0)), 0.0).astype(np.float64)
        columns = list(source.columns_of(features))
        state.norms = None
        # so small that the sweeps end at the tolerance
        return GradientPass(before, 0.0, self._limits.tol * alpha, features, violations, columns, 0)

    def _set_coef(self, coef: Coefficients) -> None:
        """Take new weights; raise an error if they are not finite, or larger than planned."""
        if not np.isfinite(coef.rows).all():
            raise DataError(
                "the weights are no longer finite", "look for huge or non-finite values in the data"
            )
        allowed = next(item.n_bytes for item in self._plan.memory.items if item.name == "weights")
        needed = 2 * (coef.rows.nbytes + coef.features.nbytes)
        if needed > allowed:
            raise MemoryLimitError(
                f"{len(coef.features)} features have weights, which take {format_bytes(needed)} where the "
                f"memory limit leaves {format_bytes(allowed)}",
                f"give a memory limit of {format_bytes(4 * needed)} or a larger alpha",
            )
        self.state.coef = coef

    def _rebuild(self) -> None:
        """Compute the scores afresh from the weights."""
        state = self.state
        held = self._held or self._source.columns_of(state.coef.features)
        self._problem.rebuild_scores(state.coef, state.intercept, held)
        self._held = []  # its memory is for the columns the coming pass chooses

    def _evaluate(self) -> tuple[GradientPass, Certificate]:
        """Make a pass over the features left by screening; update intercept, lower bound and screening."""
        problem, state = self._problem, self.state
        objective = problem.objective
        factor: NDArray[np.float64] | None = np.empty((0, problem.n_classes))
        if self._sweeper.fit_intercept:
            margins = improve_intercept(problem, state.intercept, _INTERCEPT_STEPS)
            pairs = margins if isinstance(margins, PairMargins) else problem.pair_margins()
            margins, factor = pairs, objective.loss.balance(pairs.residuals)
        else:
            margins = problem.margins()
        upper = problem.value([state.coef.rows], margins)
        if not np.isfinite(upper):
            raise DataError("the objective is not finite", "look for huge or non-finite values in the data")
        penalty = objective.regulariser(problem.alpha, state.coef.rows)
        self._share = max(penalty, _SMALLEST_SHARE * upper) / upper if upper > 0.0 else 1.0
        used = np.empty((0, problem.n_classes)) if factor is None else factor
        self._screening.gap = state.history[-1]["gap"] if state.history else np.inf
        gradients = gradient_pass(problem, self._source, state.coef, used, self._screening)
        state.nnz_read += gradients.nnz
        bound = None
        if factor is not None:
            entropy = partial(problem.entropy, factor)
            bound = lower_bound(problem, problem.dtype, margins, gradients, entropy, factor)
            state.lower = max(state.lower, bound.value)
        if self._lags(gradients, Certificate.of(state.lower, upper)):
            proof = self._projected_bound()
            state.lower = max(state.lower, proof.lower)
            state.nnz_read += proof.nnz
        scale, lower = 1.0, state.lower
        if bound and len(used):  # the gradients are those of the dual point, not of the weights
            scale, lower = bound
        self._screening.update(
            state.coef.features,
            problem.alpha,
            objective.penalty.dual_conversion(problem.n_classes),
            scale,
            upper,
            lower,
            problem.scores.dtype,
        )
        return gradients, Certificate.of(state.lower, upper)

    def _lags(self, gradients: GradientPass, certificate: Certificate) -> bool:
        """Return whether a better dual point alone may close the gap."""
        alpha, norm = self._problem.alpha, gradients.largest_norm
        return certificate.gap > self._limits.tol and alpha < norm <= _NEARLY_FEASIBLE * alpha

    def _projected_bound(self) -> Proof:
        """Return the bound of a dual point that is nearly feasible."""
        problem, allowed = self._problem, _ALLOWED * self._limits.tol * self._problem.alpha / self._share
        most = self._plan.working_columns
        sweeper = self._sweeper
        proof = projected_bound(
            problem, self._source, self.state, self._screening, sweeper.descent, allowed, most
        )
        self._rebuild()
        return proof

    def _improve(self, gradients: GradientPass, most_steps: int | None) -> None:
        """Sweep over the working set."""
        state = self.state
        alpha, violation = self._problem.alpha, gradients.violation
        target = min(_LARGEST_FRACTION * violation, _TOLERATED * self._limits.tol * alpha / self._share)
        target = max(_SMALLEST_FRACTION * violation, target)
        if self._total_nnz < _FEW_ENTRIES:
            target = _LARGEST_FRACTION * violation
        held = gradients.columns
        if self._gradual:
            alpha = self._next_alpha(gradients.largest_norm)
            if alpha > self._problem.alpha:
                target = _STAGE_FRACTION * alpha
            held = self._above(gradients, held, alpha)

        def watch(n_sweeps: int, objective: float, n_nonzero: int) -> None:
            seen = {"n_iter": state.n_iter + n_sweeps, "objective": objective, "n_nonzero": n_nonzero}
            seen["gap"] = Certificate.of(state.lower, objective).gap
            self._progress(self.message(state.history[-1] | seen))

        changes, n_sweeps = self._sweeper.sweep_until(
            held,
            state.coef,
            state.intercept,
            Course(alpha, target, _INNER_SWEEPS, state.n_iter, most_steps, state.damping),
            watch=watch if self._progress is not silent and state.history else None,
        )
        state.n_iter += n_sweeps
        state.damping = self._sweeper.damping
        self._set_coef(state.coef.updated(changes))
        self._held = held

    def _next_alpha(self, largest_norm: float) -> float:
        """Return the weight of the penalty of this round: it falls geometrically to the requested one."""
        state, alpha, max_passes = self.state, self._problem.alpha, self._limits.max_passes
        if alpha == 0.0:
            return alpha
        state.top = state.top or max(largest_norm, alpha)
        n_stages = math.ceil(math.log(state.top / alpha) / math.log(_STAGE_FACTOR))
        n_stages = min(n_stages, max(0, math.ceil(max_passes) - 2) if np.isfinite(max_passes) else n_stages)
        state.stage += 1
        left = max(0, n_stages - state.stage)
        return alpha * (state.top / alpha) ** (left / n_stages) if left else alpha

    def _above(self, gradients: GradientPass, held: list[Columns], alpha: float) -> list[Columns]:
        """Return the columns of a pass that have weights or get some at `alpha`, if all fit."""
        weighted = self.state.coef.slots(gradients.features) >= 0
        excess = np.where(weighted, np.inf, gradients.violations - (alpha - self._problem.alpha))
        wanted = excess > 0
        if np.count_nonzero(wanted) > self._plan.working_columns:
            wanted[np.argsort(-excess, kind="stable")[self._plan.working_columns :]] = False
            wanted |= weighted
        chosen = []
        for columns in held:
            start = int(np.searchsorted(gradients.features, columns.features[0]))
            places = np.flatnonzero(wanted[start : start + len(columns.features)])
            if len(places):
                chosen.append(columns.choose(places))
        return chosen
