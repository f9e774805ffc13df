"""Training on data larger than memory: chunks of samples in turn, each corrected by the gradient of all.

The columns of the candidates, features that may get weights, are compressed in memory or in a scratch file,
cut into chunks of randomly drawn samples (`..scratch.spill`). In a round, each chunk lowers the corrected
loss of its samples (`corrected_loss`), by the gradient at the best weights so far, and adds up objective and
gradient at the trial, a mean of what the last rounds came to (`anderson`), kept if its objective is lower;
else the best weights on the way to it are the next trial (`acceptance`).
With one chunk a round finds the optimum; with more candidates than sweeps can hold it takes stochastic steps.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import give_back_free_pages
from bigmc.progress import Progress
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Fingerprint, pass_progress, save
from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.chunks.acceptance import accept, accept_or_retreat
from bigmc.solvers.sparse.chunks.anderson import past_rounds, take_next
from bigmc.solvers.sparse.chunks.candidate_columns import CandidateColumns
from bigmc.solvers.sparse.chunks.certificate import Certified, Certifier, Further, with_gradients_of_written
from bigmc.solvers.sparse.chunks.conditions import Conditions
from bigmc.solvers.sparse.chunks.corrected_loss import Weights, descend, improve, violation_to_reach
from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.evaluation import Evaluation, dual_norms
from bigmc.solvers.sparse.chunks.figures import figures_of_pass, figures_of_round
from bigmc.solvers.sparse.chunks.pass_rule import pass_is_due
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.state import ChunkState, joined
from bigmc.solvers.sparse.chunks.stochastic_read import first_weights, follow_chunks
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point, follow_rows
from bigmc.solvers.sparse.chunks.task import ChunkTask, ConstantScores
from bigmc.solvers.sparse.feature_sets import union
from bigmc.solvers.sparse.scratch.row_scales import Norms, RowsOf, exact_rows, norms_take_a_pass, rough_rows
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.intercept import improve_intercept

#: Newton steps of the intercept where no feature has weights, at most.
_INTERCEPT_STEPS = 20


class ChunkRounds:
    """Rounds over chunks, and passes over everything, in turn; `state` is what a checkpoint holds."""

    def __init__(self, task: ChunkTask, plan: ChunkPlan) -> None:
        self._task, self._plan = task, plan
        self._columns = CandidateColumns(task, plan)
        self._certifier = Certifier(task, plan)
        self._max_passes, self._norms = math.inf, Norms.EXACT
        self._fingerprint: Fingerprint = {}
        self.state = ChunkState.zeros(task.width, task.n_classes)

    def run(self, state: ChunkState, max_passes: float, fingerprint: Fingerprint) -> Certificate:
        """Continue from `state` until the gap or the number of passes is reached."""
        self.state, self._max_passes, self._fingerprint = state, max_passes, fingerprint
        try:
            if state.rounds:
                self._restore()
            else:
                self._begin(Norms.ROUGH if norms_take_a_pass(self._task.dataset) else Norms.EXACT)
                if not state.layers:
                    self._first_layer()
            while True:
                if not state.rounds:
                    self._drop_candidates()
                    give_back_free_pages()  # rounds and passes keep arrays of other sizes
                    certificate = self._certify()
                    give_back_free_pages()
                    over = self._passes >= max_passes or (self._task.is_late and len(state.history) > 1)
                    if certificate.gap <= self._task.tol or over:
                        return certificate
                    self._save()
                waiting = self._columns.waiting(state)
                due = partial(pass_is_due, self._task, state, max_passes, len(waiting))
                while not (due() or self._task.is_late):
                    self._round()
                    self._save()
                self._settle()
        finally:
            self._columns.close()

    def largest_norm(self) -> float:
        """Return the largest dual norm of a gradient where no feature has weights.

        Passes keep gradients of some features and bounds of others; they continue until the largest is known.
        """
        state = self.state
        try:
            self._begin(Norms.EXACT)
            while True:
                certified = self._pass(self._columns.known_features(state))
                state.norms = certified.sums.norms
                known = float(certified.measured.norms.max(initial=0.0))
                if certified.measured.largest_norm <= known:
                    return known
        finally:
            self._columns.close()

    @property
    def _passes(self) -> float:
        return self.state.nnz_read / max(self._task.dataset.nnz, 1)

    def _save(self) -> None:
        save(self.state, self._task.context, self._fingerprint)

    def _count(self, n_bytes: int) -> None:
        """Count bytes as read; passes are in units of all decoded bytes."""
        self.state.bytes_read += n_bytes
        self.state.nnz_read = -(-self.state.bytes_read // self._task.dataset.entry_bytes)

    def _count_spill(self) -> None:
        self._count(self._columns.spill.n_bytes)
        self._columns.spill.n_bytes = 0

    def _begin(self, norms: Norms) -> None:
        """Write the scratch file for the weights there are, and evaluate them.

        Where norms of gradients are known, they name the first candidates. Rough scales of the rows become
        exact while columns are written, or in the first pass: scores without weights do not need them.
        """
        state, task = self.state, self._task
        self._norms = norms
        features = state.coef.features
        if state.norms is not None and len(features):
            state.layers = self._columns.choose(state, union(np.flatnonzero(state.norms), features))
            state.rounds, state.gain = 1, math.inf
        else:
            state.layers = [features[: self._plan.most_candidates]] if len(features) else []
        self._write()
        if state.layers:
            self._norms = Norms.EXACT
        if task.fit_intercept and not state.layers:
            scores = ConstantScores(task, self._columns.spill, state.intercept)
            improve_intercept(scores, state.intercept, _INTERCEPT_STEPS)
        state.coef = state.coef.among(joined(state))
        self._evaluate(state.anchor)

    def _first_layer(self) -> None:
        """Choose the first candidates where there are no weights, by gradients of some shards.

        Where their columns do not fit, a read along all samples gives weights and fewer of them.
        """
        state, norms = self.state, self._norms
        assert state.anchor is not None
        state.norms = self._certifier.estimate(self._columns.spill, state.anchor)
        largest = self._columns.known_features(state)
        state.layers = self._columns.choose(state, largest)
        self._count_spill()
        if not state.layers:
            return
        if first_weights(self._task, self._plan, self._columns, state):
            self._count_spill()
            self._columns.close()
            give_back_free_pages()
            self._save()
            self._begin(norms)
            self._tell()
        else:
            self._write()
            self._norms = Norms.EXACT
            self._first_steps()
            state.rounds, state.gain = 1, math.inf

    def _first_steps(self) -> None:
        """Evaluate the weights after stochastic steps along the chunks, if there are several."""
        state, spill, row_bytes = self.state, self._columns.spill, self._plan.row_bytes
        if spill.n_chunks > 1:
            state.coef, state.intercept = follow_chunks(self._task, spill, state.intercept, row_bytes)
        self._evaluate(state.anchor)

    def _evaluate(self, before: Evaluated | None = None) -> None:
        """Measure objective and gradient of the candidates at the weights, or at better ones before."""
        state = self.state
        state.anchor = self._columns.evaluate(Point(state.coef, state.intercept))
        self._count_spill()
        if before and not state.anchor.objective <= before.objective:
            state.coef, state.intercept = before.coef, before.intercept.copy()
            self._evaluate()

    def _drop_candidates(self) -> None:
        """Write the columns anew without those of no use, where that pays."""
        state = self.state
        kept = self._columns.worth_keeping(state)
        if kept is None or state.anchor is None:
            return
        before, n_chunks = joined(state), state.n_chunks
        # the next pass keeps gradients of those dropped: bounds of frequent ones may be far above them
        state.doubted = union(state.doubted, np.setdiff1d(before, kept))
        if state.history and state.norms is not None:  # those of the last pass: they violate no more
            state.norms[before] = dual_norms(self._task, state.anchor, state.layers)
        if self._take([kept]):
            return self._evaluate()
        state.anchor = state.anchor.of_features(before, kept)
        state.damping *= state.n_chunks / n_chunks

    def _take(self, layers: list[NDArray[np.int64]]) -> bool:
        """Take other candidates, and write their columns; return whether the kind of rounds changes."""
        state, before, kind = self.state, joined(self.state), self._columns.round_kind(self.state)
        state.layers = layers
        self._write()
        state.own_damping = damping.carried_over(before, state.own_damping, joined(state))
        if another := self._columns.round_kind(state) is not kind:
            state.damping = 0.0
        return another

    def _certify(self) -> Certificate:
        """Make a pass, and choose the candidates of the rounds that follow."""
        task, state = self._task, self.state
        assert state.anchor is not None
        norms, further = self._norms, self._columns.further(state)
        certified = self._pass(self._columns.known_features(state), further)
        state.norms = certified.sums.norms
        state.lower = max(state.lower, certified.lower)
        self._record(certified.measured)
        certificate = Certificate.of(state.lower, state.anchor.objective)
        if certificate.gap > task.tol and self._passes < self._max_passes:
            before, spill = joined(state), self._columns.spill
            if len(certified.written):
                state.layers = [*state.layers, certified.written]
                state.own_damping = damping.carried_over(before, state.own_damping, joined(state))
            # what was written on the way is named by estimates, or did not fit: the rest decides the bound
            known = self._columns.known_after(certified)
            wanted = self._columns.with_doubted(state, union(known, before))
            if self._columns.missing(state, known if len(certified.written) else wanted, certified):
                self._take(self._columns.choose(state, wanted))
            elif len(few := self._columns.few_waiting(state)):
                self._take([*state.layers, few])
            new, rewritten = np.setdiff1d(joined(state), before), self._columns.spill is not spill
            state.past = past_rounds(state, len(new))
            if norms is Norms.ROUGH or rewritten or not np.isin(new, certified.chosen).all():
                self._evaluate()
            elif len(new):
                state.anchor = with_gradients_of_written(task, spill, state.anchor, before, certified)
                self._count_spill()
            state.rounds, state.gain = 1, math.inf
        return certificate

    def _pass(self, chosen: NDArray[np.int64], further: Further = None) -> Certified:
        """Make a pass that keeps the gradients of `chosen`, and writes what is likely to need weights."""
        state, columns = self.state, self._columns
        assert state.anchor is not None
        state.norms = None  # there are others after it
        certified = self._certifier.certify(
            columns.spill, state.anchor, chosen, self._norms, state.scale, further, columns.rereading(state)
        )
        self._norms, state.scale, state.doubted = Norms.EXACT, certified.scale, certified.measured.doubted
        self._count_spill()
        return certified

    def _record(self, measured: Conditions) -> None:
        figures = figures_of_pass(self._task, self.state, measured, self._passes)
        self.state.history.append(figures)
        self._task.context.progress(pass_progress(figures, self._max_passes))

    def _write(self) -> None:
        """Bring the columns up to the layers of the state, which counts as read and written."""
        self._columns.write(self.state, self._rows_of, self._norms)
        self._count_spill()

    def _rows_of(self) -> RowsOf:
        """Return where labels and scales of the samples come from before there is a scratch file."""
        dataset = self._task.dataset
        if self._norms is Norms.ROUGH:
            return rough_rows(dataset)
        if norms_take_a_pass(dataset):
            self._count(dataset.decoded_bytes)
        return exact_rows(dataset)

    def _restore(self) -> None:
        """Write the scratch file of an interrupted run anew, which counts as read once already."""
        self._columns.restore(self.state, exact_rows(self._task.dataset))
        self._columns.spill.n_bytes = 0

    def _round(self) -> None:
        """Go through the chunks once."""
        state, n_chunks = self.state, self._columns.spill.n_chunks
        before, by_rows = state.bytes_read, self._columns.by_rows(state)
        if state.damping == 0.0:
            damping.begin(state, self._columns.round_kind(state), n_chunks, self._task.dataset.n_samples)
        state.rounds += 1
        if by_rows:
            self._follow()
        elif n_chunks == 1:
            self._descend()
        else:
            self._improve()
        self._count_spill()
        state.round_bytes = state.bytes_read - before

    def _descend(self) -> None:
        """Move to the optimum of the candidates: the one chunk has all samples."""
        state, task, anchor = self.state, self._task, self.state.anchor
        assert anchor is not None
        weights = Weights.of(anchor.coef, anchor.intercept, state.layers)
        chunk = self._columns.spill.chunk(0)
        target, newton_bytes = violation_to_reach(task, anchor, state.layers), self._plan.newton_bytes
        state.n_iter += descend(task, chunk, weights, target, state.n_iter, newton_bytes)
        reached = None
        if weights.finite:
            evaluation = Evaluation(task, state.layers, weights.coef(task.width), weights.intercept)
            evaluation.add(chunk)
            reached = evaluation.result()
        if not self._accept(reached):
            state.gain = 0.0

    def _improve(self) -> None:
        """Let every chunk improve the trial, and evaluate the result."""
        state, task, anchor = self.state, self._task, self.state.anchor
        spill = self._columns.spill
        assert anchor is not None
        evaluation = Evaluation(task, state.layers, state.coef, state.intercept) if state.trial else None
        damped = damping.of_steps(state, len(joined(state)))
        start = (state.coef, state.intercept) if state.trial else (anchor.coef, anchor.intercept)
        weights = Weights.of(*start, state.layers)
        generator = np.random.default_rng([task.seed, state.n_iter])
        for done, chunk in enumerate(spill.chunks(generator.permutation(spill.n_chunks).tolist())):
            task.context.progress(Progress("round", done, spill.n_chunks, "chunks"))
            if evaluation:
                evaluation.add(chunk)
            if weights.finite:
                state.n_iter += improve(task, chunk, weights, anchor, damped._replace(n_iter=state.n_iter))
        if evaluation and not accept_or_retreat(task, state, evaluation.result()):
            return
        if evaluation:
            self._tell()
        state.trial = weights.finite
        if not state.trial:
            return damping.grow(state, RoundKind.SWEEPS)
        take_next(task, state, joined(state), start[0], (weights.coef(task.width), weights.intercept))

    def _follow(self) -> None:
        """Evaluate the trial, and let stochastic steps follow all samples from the best weights."""
        state, task, spill = self.state, self._task, self._columns.spill
        if state.trial:
            reached = self._columns.evaluate_trial(Point(state.coef, state.intercept))
            damping.adapt(task, state, RoundKind.STOCHASTIC, reached, spill.features)
            self._accept(reached)
        assert state.anchor is not None
        state.coef, state.intercept = state.anchor.coef, state.anchor.intercept  # what was given up goes
        damped = damping.of_steps(state, len(spill.features))
        state.n_iter += 1
        coef, intercept = follow_rows(task, spill, state.anchor, damped, self._plan.row_bytes)
        state.trial = bool(np.isfinite(coef.rows).all() and np.isfinite(intercept).all())
        if not state.trial:
            return damping.grow(state, RoundKind.STOCHASTIC)
        state.coef, state.intercept = coef, intercept

    def _accept(self, reached: Evaluated | None) -> bool:
        accepted = accept(self._task, self.state, self._columns.round_kind(self.state), reached)
        if accepted:
            self._tell()
        return accepted

    def _tell(self) -> None:
        figures = figures_of_round(self.state, self._passes)
        self._task.context.progress(pass_progress(figures, self._max_passes))

    def _settle(self) -> None:
        """Evaluate the last trial, solve for groups of rare features, and end with the best weights."""
        state = self.state
        assert state.anchor is not None
        start = state if state.trial else state.anchor
        coef, intercept, moved = start.coef, start.intercept, state.trial
        groups, solved = self._columns.rare_groups(state), np.empty(0, np.int64)
        while True:
            rare = self._columns.rare(state, solved) if groups else None
            if not (rare or moved):
                break
            reached = self._columns.evaluate_trial(Point(coef, intercept), rare)
            if self._accept(reached):
                state.trial = moved = False
                if rare:
                    coef, solved = rare.solve(coef, state.n_iter), np.append(solved, rare.features)
                    groups, moved = groups - 1, True
            elif state.trial:
                coef, intercept, state.trial, moved = state.anchor.coef, state.anchor.intercept, False, False
            else:
                break
        self._count_spill()
        state.coef, state.intercept = state.anchor.coef, state.anchor.intercept
        state.trial, state.rounds = False, 0
