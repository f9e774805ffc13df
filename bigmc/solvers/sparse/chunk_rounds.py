"""Training on data larger than memory: chunks of samples in turn, each corrected by the gradient of all.

The features that may get weights, the candidates, are written once into a compressed scratch file, cut into
chunks of randomly drawn samples that fit into memory (`bigmc.solvers.sparse.spill`). With the gradient G of
all samples at weights W known, a round goes through the chunks c and takes a few sweeps each over

    f_c(V) + <G - G_c(W), V> + sum_j a_j / 2 ||V_j - V'_j||² + penalty(V)

from the weights V' that the chunk before left: a minibatch-prox method with variance reduction (Wang, Wang,
Srebro, "Memory and communication efficient distributed stochastic optimization with minibatch-prox", COLT
2017; Johnson, Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NIPS
2013). The damping ``a_j = max(h_j - h_cj, 0) + d h_j sqrt(50 / n_cj)``, with the largest curvature h_j of a
feature over the classes, falls with the entries n_cj the chunk has of it: where these are few the Hessian
of a chunk is wrong. A round that makes the objective larger is undone, and d grows; after others it
shrinks. With one chunk a round is a descent to the optimum of the candidates.

Passes over all entries, which give the certificate and name new candidates, come in when rounds gain little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import DataError
from bigmc.kernels.linear.arguments import GradientSums, Measures
from bigmc.objectives import Curvature, Objective
from bigmc.progress import Progress, ProgressCallback
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.sparse.bounds import lower_bound
from bigmc.solvers.sparse.certifying_pass import PassRequest, PassSums, certifying_pass
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.memory_plan import ChunkPlan
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.proximal_terms import Terms
from bigmc.solvers.sparse.spill import Chunk, Spill
from bigmc.solvers.sparse.state import Evaluated, State
from bigmc.solvers.sparse.sweeps import Sweeper
from bigmc.store.dataset import Dataset

#: Features are candidates whose gradient is above this share of alpha, or that have weights.
_CANDIDATE = 0.6
#: Sweeps over a chunk in a round; more were measured to gain little.
_SWEEPS = 3
#: Columns that violate by less than this share of the largest violation, and of alpha, are left alone.
_NEGLIGIBLE = 0.1
#: Entries of a feature in a chunk with which it is damped by d times its curvature.
_ENTRIES = 50.0
#: The first damping for every chunk, the least, and its factors after bad and good rounds.
_DAMPING, _LEAST_DAMPING, _GROWTH, _DECAY = 0.3, 0.02, 3.0, 0.7
#: Rounds end when the last gained less than this share of the objective: first, every next time by this
#: factor less, and at last in units of the tolerance.
_FIRST_GAIN, _GAIN_FACTOR, _TOLERATED = 5e-3, 0.1, 0.03
_MOST_ROUNDS = 12
#: Passes of which that is all; later ones are made when the violation, in units of alpha, is this part of
#: the tolerance, or of this part of the gap.
_FOR_CANDIDATES, _VIOLATION, _GAP_FACTOR = 2, 0.5, 0.2
#: Layers of the scratch file; one more, and it is written anew without those no longer wanted.
_MOST_LAYERS = 4
#: Features in the file keep their gradients in every pass while they are at most this share of all that do.
_KEPT = 0.7
#: With one chunk: sweeps at most, and the violation to reach in units of what a pass found, and of alpha.
_MOST_SWEEPS, _FRACTION, _FINEST = 300, 0.02, 1e-4
#: Parts the columns are cut into for the workers, whatever their number.
_PARTS = 16
#: An objective is larger only if by more than rounding, in units of the scores' precision.
_ROUNDING = 4.0
#: Scales of the dual point in units of the last, at which entropies are computed (log loss).
_SCALES = (0.5, 0.8, 0.95, 1.0, 1.02, 1.1, 1.5)


@dataclass(frozen=True)
class ChunkTask:
    """What is minimised over which samples.

    Attributes
    ----------
    dataset : Dataset
    sample_weight : float64 array of shape (n_samples,) or None
    objective : Objective
    alpha, tol : float
    dtype : numpy.dtype
        Of the scores.
    seed : int
    engine : Engine
        Threads of this process.
    scratch : Path or None
        Folder of the scratch file.
    """

    dataset: Dataset
    sample_weight: NDArray[np.float64] | None
    objective: Objective
    alpha: float
    tol: float
    dtype: np.dtype[Any]
    seed: int
    engine: Engine
    scratch: Path | None

    @property
    def weight_sum(self) -> float:
        """Sum of the sample weights, n of the objective."""
        return float(self.dataset.n_samples if self.sample_weight is None else self.sample_weight.sum())

    @property
    def width(self) -> int:
        """Padded number of classes."""
        lanes = self.objective.loss.lanes
        return -(-self.dataset.n_classes // lanes) * lanes

    def problem(self, chunk: Chunk, engine: Engine) -> Problem:
        """Return the problem of some samples."""
        return Problem(chunk.samples, self.objective, self.alpha, chunk.samples.weights, self.dtype, engine)


@dataclass(frozen=True)
class Measured:
    """Gradients of a pass as the conditions of optimality see them.

    Attributes
    ----------
    largest_norm, distance, violation : float
        See `bigmc.solvers.sparse.gradient.GradientPass`.
    norms : float64 array of shape (n_chosen,)
        Dual norms of the gradients that are known.
    """

    largest_norm: float
    distance: float
    violation: float
    norms: NDArray[np.float64]


class ChunkRounds:
    """Rounds over chunks, and passes over everything, in turn; `state` is what a checkpoint holds."""

    def __init__(self, task: ChunkTask, plan: ChunkPlan) -> None:
        self._task, self._plan = task, plan
        self._spill: Spill | None = None
        self._engine = task.engine.at_most(plan.n_workers)
        self._column_nnz = task.dataset.column_nnz()
        self._scale = 1.0
        self._max_passes = math.inf
        self.state = State(Coefficients.zeros(task.width), np.zeros(task.dataset.n_classes))

    def run(
        self,
        state: State,
        max_passes: float,
        checkpoint: Checkpoint | None,
        run: dict[str, Any],
        progress: ProgressCallback,
    ) -> Certificate:
        """Go on from `state` until the gap or the number of passes is reached."""
        self.state = state
        self._max_passes = max_passes
        try:
            if state.rounds:
                self._restore()
            elif state.norms is not None and len(state.coef.features) and not state.history:
                self._begin()
            while True:
                if not state.rounds:
                    certificate = self._certify(max_passes, progress)
                    if certificate.gap <= self._task.tol or self._passes >= max_passes:
                        return certificate
                    self._save(checkpoint, run)
                while state.rounds <= _MOST_ROUNDS and not self._enough():
                    self._round(max_passes, progress)
                    self._save(checkpoint, run)
                assert state.anchor is not None
                state.coef, state.rounds = state.anchor.coef, 0
        finally:
            if self._spill is not None:
                self._spill.close()

    def _enough(self) -> bool:
        """Return whether a pass over everything is worth more than another round.

        First it is for the candidates that are missing, later for the gap, which the violations make.
        """
        state, tol = self.state, self._task.tol
        n_passes = max(1, len(state.history))
        assert state.anchor is not None
        if state.gain > max(_FIRST_GAIN * _GAIN_FACTOR ** (n_passes - 1), _TOLERATED * tol):
            return False
        if n_passes <= _FOR_CANDIDATES or self._passes >= self._max_passes:
            return True
        wanted = max(tol, _GAP_FACTOR * state.history[-1]["gap"]) * self._task.alpha
        return self._violation(state.anchor) <= _VIOLATION * wanted or state.gain <= 0.0

    @property
    def _passes(self) -> float:
        return self.state.nnz_read / max(self._task.dataset.nnz, 1)

    def _save(self, checkpoint: Checkpoint | None, run: dict[str, Any]) -> None:
        if checkpoint is not None:
            self.state.save(checkpoint, run)

    def _count(self, n_bytes: int) -> None:
        """Count bytes as read; passes are in units of all decoded bytes."""
        self.state.bytes_read += n_bytes
        entry_bytes = 2 + self._task.dataset.dtype.itemsize
        self.state.nnz_read = -(-self.state.bytes_read // entry_bytes)

    def _certify(self, max_passes: float, progress: ProgressCallback) -> Certificate:
        """Make a pass, and choose the candidates of the rounds that follow."""
        task, state = self._task, self.state
        chosen = self._known_features()
        scales: tuple[float, ...] = ()
        if task.objective.loss.name == "log_loss":
            scales = tuple(sorted({min(1.0, self._scale * scale) for scale in _SCALES}))
        request = PassRequest(
            task.objective, chosen, task.weight_sum, task.width, scales, self._plan.block_bytes,
            self._plan.block_columns,
        )  # fmt: skip
        found = certifying_pass(task.dataset, request, self._shard_problem, self._engine)
        self._count(found.n_bytes)
        upper = self._upper(found.totals.squares, state.coef)
        measured = self._measure(found, chosen, state.coef)
        state.norms = found.norms
        state.lower = max(state.lower, self._lower(found, measured, scales))
        self._record(upper, measured, max_passes, progress)
        certificate = Certificate.of(state.lower, upper)
        if certificate.gap > task.tol and self._passes < max_passes:
            state.layers = self._candidates(chosen, measured.norms)
            self._write()
            at = np.searchsorted(chosen, np.concatenate(state.layers))
            state.anchor = Evaluated(
                state.coef, state.intercept, upper, found.gradient[at].astype(task.dtype),
                found.curvature[at].astype(task.dtype), np.zeros(0), 0.0,
            )  # fmt: skip
            state.rounds, state.gain = 1, math.inf
        return certificate

    def _begin(self) -> None:
        """Choose candidates by the norms of the gradients of a sample."""
        state = self.state
        assert state.norms is not None
        chosen = np.flatnonzero(self._column_nnz)
        state.layers = self._candidates(chosen, state.norms[chosen].astype(np.float64))
        self._write()
        assert self._spill is not None
        state.anchor = self._evaluate(state.coef)
        self._count(self._spill.n_bytes)
        self._spill.n_bytes = 0
        state.rounds, state.gain = 1, math.inf

    def _known_features(self) -> NDArray[np.int64]:
        """Return the features whose gradients the next pass keeps."""
        state = self.state
        last = self._column_nnz if state.norms is None else state.norms
        wanted = last.astype(np.float64)
        wanted[self._column_nnz == 0] = -1.0
        for layer in state.layers if self._keeps_layers else []:
            wanted[layer] = np.inf
        wanted[state.coef.features] = np.inf
        most = min(self._plan.most_gradients, int(np.count_nonzero(wanted >= 0)))
        return np.sort(np.argpartition(-wanted, most - 1)[:most]) if most else np.empty(0, np.int64)

    @property
    def _keeps_layers(self) -> bool:
        """Whether what is in the scratch file leaves others a chance of a gradient."""
        return sum(map(len, self.state.layers)) <= _KEPT * self._plan.most_gradients

    def _shard_problem(self, s: int) -> tuple[Problem | None, int]:
        """Return a shard with its scores."""
        state, task = self.state, self._task
        engine = ThreadEngine(1)
        if self._spill is None:
            return self._problem_without_spill(s)
        samples = self._spill.samples_of_shard(s)
        if samples.weightless:
            return None, 0
        problem = Problem(samples, task.objective, task.alpha, samples.weights, task.dtype, engine)
        n_bytes = 0
        for chunk in self._spill.pieces_of_shard(s):
            part = Problem(chunk.samples, task.objective, task.alpha, None, task.dtype, engine)
            part.rebuild_scores(state.coef, state.intercept, chunk.held)
            problem.scores[chunk.positions[0]] = part.scores
            n_bytes += chunk.n_bytes
        return problem, n_bytes

    def _problem_without_spill(self, s: int) -> tuple[Problem | None, int]:
        task, state = self._task, self.state
        shard = task.dataset.subset([s], keep_scale=True)
        weights = task.sample_weight
        if weights is not None:
            weights = weights[task.dataset.base[s] : task.dataset.base[s + 1]]
            if not weights.any():
                return None, 0
        problem = Problem(shard, task.objective, task.alpha, weights, task.dtype, ThreadEngine(1))
        entry_bytes = 2 + task.dataset.dtype.itemsize
        n_bytes = shard.nnz * entry_bytes if task.dataset.weighting.idf and task.dataset.weighting.l2 else 0
        if len(state.coef.features):
            spill = Spill(shard, None, 1, 0, task.scratch)
            try:
                spill.add(state.coef.features)
                problem.rebuild_scores(state.coef, state.intercept, spill.chunk(0).held)
                n_bytes += spill.n_bytes
            finally:
                spill.close()
        else:
            problem.rebuild_scores(state.coef, state.intercept, [])
        return problem, n_bytes

    def _upper(self, squares: NDArray[np.float64], coef: Coefficients) -> float:
        task = self._task
        upper = task.objective.loss.value(squares, task.weight_sum)
        upper += task.objective.regulariser(task.alpha, coef.rows)
        if not np.isfinite(upper):
            raise DataError("the objective is not finite", "look for huge or non-finite values in the data")
        return upper

    def _measure(self, found: PassSums, chosen: NDArray[np.int64], coef: Coefficients) -> Measured:
        """Measure the gradients of a pass, and put the norms of those that are known into its bounds."""
        task = self._task
        out = Measures(*np.empty((3, len(chosen))))
        norms, violations, distances = out
        task.objective.measure_gradients(
            task.alpha, found.gradient, coef.take(chosen), task.dataset.n_classes, out
        )
        found.norms[chosen] = norms
        others = found.norms.astype(np.float64)
        others[chosen] = 0.0
        excess = np.maximum(others - task.alpha, 0.0)
        # no gradient is further from the ball than by what scales it into it
        conversion = math.sqrt(task.dataset.n_classes) if task.objective.penalty.l1_ratio > 0 else 1.0
        distance = float(distances.sum()) + conversion**2 * float((excess * excess).sum())
        largest = max(float(norms.max(initial=0.0)), float(others.max(initial=0.0)))
        violation = max(float(violations.max(initial=0.0)), float(excess.max(initial=0.0)))
        return Measured(largest, distance, violation, norms)

    def _lower(self, found: PassSums, measured: Measured, scales: tuple[float, ...]) -> float:
        task = self._task

        def entropy(factor: NDArray[np.float64], scale: float) -> float:
            # concave in the scale and 0 at 0: what lies between two points is at least the chord
            return float(np.interp(scale, (0.0, *scales), (0.0, *found.entropies)))

        bound = lower_bound(
            task.objective, task.alpha, task.weight_sum, task.dtype, found.totals,
            np.empty((0, task.dataset.n_classes)), measured, entropy,
        )  # fmt: skip
        self._scale = min(1.0, max(bound.scale, 1e-3))
        return bound.value

    def _record(
        self, upper: float, measured: Measured, max_passes: float, progress: ProgressCallback
    ) -> None:
        state = self.state
        entry = {
            "n_passes": self._passes,
            "n_iter": float(state.n_iter),
            "objective": upper,
            "lower": state.lower,
            "gap": Certificate.of(state.lower, upper).gap,
            "violation": measured.violation,
            "largest_norm": measured.largest_norm,
            "n_nonzero": float(len(state.coef.features)),
            "bytes_read": float(state.bytes_read),
        }
        state.history.append(entry)
        progress(_message(entry, max_passes))

    def _candidates(self, chosen: NDArray[np.int64], norms: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Return the layers of the scratch file: those there are, and what is new, if all that fits."""
        state, most = self.state, self._plan.most_candidates
        rank = np.where(state.coef.slots(chosen) >= 0, np.inf, norms)
        wanted = rank > _CANDIDATE * self._task.alpha
        if np.count_nonzero(wanted) > most:
            wanted[np.argsort(-rank, kind="stable")[most:]] = False
        candidates = chosen[wanted]
        new = np.setdiff1d(candidates, np.concatenate([np.empty(0, np.int64), *state.layers]))
        full = sum(map(len, state.layers)) + len(new) > most
        if full or len(state.layers) >= _MOST_LAYERS or not self._keeps_layers:
            return [candidates]
        return [*state.layers, new] if len(new) else state.layers

    def _write(self) -> None:
        """Bring the scratch file up to the layers of the state."""
        state, task = self.state, self._task
        features = np.concatenate(state.layers)
        n_chunks = self._plan.n_chunks(int(self._column_nnz[features].sum()), len(features))
        written = self._spill.layers if self._spill is not None else []
        kept = all(old.features is new for old, new in zip(written, state.layers, strict=False))
        if self._spill is None or n_chunks > self._spill.n_chunks or not kept:
            if self._spill is not None:
                self._spill.close()
            state.layers = [np.sort(features)]
            self._spill = Spill(task.dataset, task.sample_weight, n_chunks, task.seed, task.scratch)
        before = len(self._spill.layers)
        for layer in state.layers[before:]:
            self._spill.add(layer)
        state.n_chunks = self._spill.n_chunks
        self._count(self._spill.n_bytes)
        self._spill.n_bytes = 0

    def _restore(self) -> None:
        """Write the scratch file of an interrupted run anew, which counts as read once already."""
        state, task = self.state, self._task
        self._spill = Spill(task.dataset, task.sample_weight, state.n_chunks, task.seed, task.scratch)
        for layer in state.layers:
            self._spill.add(layer)
        self._spill.n_bytes = 0

    def _round(self, max_passes: float, progress: ProgressCallback) -> None:
        """Go through the chunks, and keep the weights if the objective has become smaller."""
        state, spill, anchor = self.state, self._spill, self.state.anchor
        assert spill is not None
        assert anchor is not None
        single = spill.n_chunks == 1
        if state.damping == 0.0:
            state.damping = max(1.0, _DAMPING * spill.n_chunks)
        rows = [anchor.coef.take(layer) for layer in state.layers]
        generator = np.random.default_rng(np.random.SeedSequence([self._task.seed, state.n_iter]))
        for number in generator.permutation(spill.n_chunks):
            chunk = spill.chunk(int(number))
            if not chunk.samples.weightless:
                rows = self._descend(chunk, rows) if single else self._improve(chunk, rows, anchor)
        coef = Coefficients.zeros(self._task.width).updated(list(zip(state.layers, rows, strict=True)))
        reached = self._evaluate(coef) if np.isfinite(coef.rows).all() else None
        self._count(spill.n_bytes)
        spill.n_bytes = 0
        state.rounds += 1
        rounding = _ROUNDING * float(np.finfo(self._task.dtype).eps)
        if reached is None or not reached.objective <= anchor.objective * (1.0 + rounding):
            state.damping *= _GROWTH
            if single:
                state.gain = 0.0
            return
        state.gain = 0.0 if single else 1.0 - reached.objective / anchor.objective
        state.damping = max(_LEAST_DAMPING, _DECAY * state.damping)
        state.anchor = reached
        entry = {"n_iter": float(state.n_iter), "objective": reached.objective}
        entry |= {"n_passes": self._passes, "n_nonzero": float(len(coef.features))}
        entry["gap"] = Certificate.of(state.lower, reached.objective).gap
        progress(_message((state.history or [{}])[-1] | entry, max_passes))

    def _descend(self, chunk: Chunk, rows: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Return the weights of the candidates at which they are optimal, of all samples."""
        state, task = self.state, self._task
        problem = task.problem(chunk, task.engine)
        coef = Coefficients.zeros(task.width).updated(list(zip(state.layers, rows, strict=True)))
        problem.rebuild_scores(coef, state.intercept, chunk.held)
        nnz = sum(columns.nnz for columns in chunk.held)
        sweeper = Sweeper(problem, True, task.seed, False, 100 * max(nnz, 10**6), self._plan.newton_bytes)
        assert state.anchor is not None
        target = max(_FRACTION * self._violation(state.anchor), _FINEST * task.alpha)
        target = min(target, 0.05 * task.alpha)
        changes, n_sweeps = sweeper.sweep_until(
            chunk.held, coef, state.intercept.copy(), task.alpha, target, _MOST_SWEEPS, state.n_iter
        )
        state.n_iter += n_sweeps
        return [moved for _, moved in changes]

    def _improve(
        self, chunk: Chunk, rows: list[NDArray[np.float64]], anchor: Evaluated
    ) -> list[NDArray[np.float64]]:
        """Return the weights after a few sweeps over the corrected loss of a chunk."""
        state, task = self.state, self._task
        problem = task.problem(chunk, task.engine)
        problem.rebuild_scores(anchor.coef, state.intercept, chunk.held)
        terms, start = [], 0
        for columns, before, counts in zip(chunk.held, rows, chunk.counts(), strict=True):
            gradient, curvature = _gradients(problem, columns)
            here = slice(start, start + len(before))
            start += len(before)
            whole = anchor.curvature[here].astype(np.float64)
            added = np.maximum(whole - curvature, 0.0)
            added += state.damping * whole * np.sqrt(_ENTRIES / np.maximum(counts, 1))
            tilt = anchor.gradient[here] - gradient - added[:, None] * before
            terms.append(Terms(tilt, task.objective.ridge + added))
        coef = Coefficients.zeros(task.width).updated(list(zip(state.layers, rows, strict=True)))
        problem.rebuild_scores(coef, state.intercept, chunk.held)
        negligible = _NEGLIGIBLE * min(task.alpha, self._violation(anchor))
        sweeper = Sweeper(problem, True, task.seed, False, 0, 0)
        violations = [np.zeros(len(r)) for r in rows]
        active = [np.arange(len(r)) for r in rows]
        for _ in range(_SWEEPS):
            for b in sweeper.shuffled(range(len(rows)), state.n_iter):
                sweeper.sweep(
                    chunk.held[b], rows[b], violations[b], active[b], state.n_iter, task.alpha,
                    negligible, terms[b],
                )  # fmt: skip
            state.n_iter += 1
            active = [np.flatnonzero(r.any(axis=1) | (v > 0)) for r, v in zip(rows, violations, strict=True)]
        return rows

    def _violation(self, anchor: Evaluated) -> float:
        """Return the largest violation of the candidates."""
        task, largest = self._task, 0.0
        start = 0
        for layer in self.state.layers:
            out = Measures(*np.empty((3, len(layer))))
            gradient = anchor.gradient[start : start + len(layer)]
            task.objective.measure_gradients(
                task.alpha, gradient, anchor.coef.take(layer), task.dataset.n_classes, out
            )
            start += len(layer)
            largest = max(largest, float(out.violations.max(initial=0.0)))
        return largest

    def _evaluate(self, coef: Coefficients) -> Evaluated:
        """Return objective and gradient of the candidates at some weights; one reading of the file."""
        state, spill, task = self.state, self._spill, self._task
        assert spill is not None
        squares = np.zeros((task.dataset.n_classes, task.dataset.n_classes))
        gradients = [np.zeros((len(layer), task.width)) for layer in state.layers]
        curvatures = [np.zeros(len(layer)) for layer in state.layers]
        for number in range(spill.n_chunks):
            chunk = spill.chunk(number)
            if chunk.samples.weightless:
                continue
            problem = task.problem(chunk, task.engine)
            problem.rebuild_scores(coef, state.intercept, chunk.held)
            squares += problem.margins().squares
            share = problem.weight_sum / task.weight_sum
            for columns, gradient, curvature in zip(chunk.held, gradients, curvatures, strict=True):
                part = _gradients(problem, columns)
                gradient += share * part[0]
                curvature += share * part[1]
        return Evaluated(
            coef, state.intercept, self._upper(squares, coef),
            np.concatenate(gradients).astype(task.dtype), np.concatenate(curvatures).astype(task.dtype),
            np.zeros(0), 0.0,
        )  # fmt: skip


def _gradients(problem: Problem, columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gradient and largest curvature of columns at the present scores."""
    n = len(columns.positions)
    sums = GradientSums(np.zeros((n, problem.width)), np.zeros(n))

    def add(part: NDArray[np.int64]) -> None:
        places = np.full(columns.indptr.shape[1] - 1, -1)
        places[columns.positions[part]] = part
        problem.objective.add_gradients(
            places, columns.entries, problem.samples, problem.n_classes, sums, Curvature.LARGEST
        )

    for _ in problem.engine.map(add, np.array_split(np.arange(n), min(_PARTS, max(n, 1)))):
        pass
    scale = problem.two_over_n * problem.scale_of(columns.features)
    return sums.gradients * scale[:, None], sums.curvatures * scale * problem.scale_of(columns.features)


def _message(entry: dict[str, float], max_passes: float) -> Progress:
    total = int(max_passes) if np.isfinite(max_passes) else 0
    return Progress("train", int(entry["n_passes"]), total, "passes", entry)
