"""Passes and descents in turn: rebuild the dual weights, price, certify; add learners and descend."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.progress import Progress
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.memory_plan import BoostingPlan
from bigmc.solvers.boosting.options import BoostingOptions
from bigmc.solvers.boosting.oracle import Candidates, Duals, Oracle
from bigmc.solvers.boosting.restricted_master import Master, Point
from bigmc.solvers.boosting.state import Stages, State
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Packed

#: The descent between two passes stops at this part of the largest violation of the pass.
_INNER_FRACTION = 0.1
#: Where the columns drawn for a round are worth nothing, it searches more until it has searched so many. All
#: 10,000 columns of 80 rows took ten seconds, to find at last that nothing more is worth adding.
_ENOUGH_COLUMNS = 1000
#: The reason to stop if the answers of the learners with weight fill the memory limit.
FULL = "memory"


class Rounds:
    """Column generation: a `bigmc.solvers.loop.Method`.

    Learners may use the given columns, a bool array of shape (n_features,); by default all. A checkpoint
    holds `state`.
    """

    def __init__(
        self,
        oracle: Oracle,
        master: Master,
        plan: BoostingPlan,
        engine: Engine,
        options: BoostingOptions,
        columns: NDArray[np.bool_] | None = None,
    ) -> None:
        self._oracle, self._master, self._columns = oracle, master, columns
        self._usable = np.ones(plan.n_features, np.bool_) if columns is None else columns
        self._plan, self._engine, self._options = plan, engine, options
        self._found: tuple[Learners, dict[bytes, int]] = Learners.empty(options.max_depth), {}
        self._read_before = 0
        self._started = time.monotonic()
        self._n_best = 0
        self._candidates: Candidates | None = None
        self._reason: str | None = None
        self._point: Point
        self.state = State(Stages(options.max_depth))
        if options.best_cuts is not None:
            self._choose_columns(options.best_cuts)

    def _choose_columns(self, n_best: int) -> None:
        """Let trees use only the columns of the best cuts of each class, before there is any learner."""
        assert isinstance(self._oracle, TreeOracle)
        self._master.rebuild(self._engine)
        duals = Duals(self._master.u, self._master.r)
        self._columns = self._usable = self._oracle.columns_of_roots(duals, n_best, self._usable)

    @property
    def history(self) -> list[Figures]:
        """Figures of every round."""
        return self.state.history

    def start(self) -> None:
        """Begin without any learner."""
        self._append_stage()

    def resume(self, saved: Packed) -> None:
        """Continue from a saved state: one more pass finds the answers of its learners."""
        self.state = state = State.unpack(saved, self._options.max_depth)
        stages = state.stages
        members, weights = stages.stage(len(stages) - 1)
        learners = stages.learners.take(members)
        slots = self._slots(learners, self._oracle.answers(learners))
        for c, own in enumerate(self._master.classes):
            mine = stages.classes[members] == c
            own.add(slots[mine], stages.signs[members][mine], weights[mine], members[mine])
        self._master.n_sweeps = state.n_sweeps
        self._read_before = state.bytes_read - self._oracle.bytes_read

    def pack(self) -> Packed:
        """Return the contents of a checkpoint."""
        return self.state.pack()

    def certify(self) -> tuple[Certificate, Figures]:
        """Rebuild the dual weights and price: the largest score bounds the optimum."""
        master, state = self._master, self.state
        point = master.rebuild(self._engine)
        if not np.isfinite(point.objective):
            raise DataError("the objective is not finite", "give a smaller C")
        self._reason = self._reason_before_search(point)
        wanted, in_use = self._options.pool, master.responses.nbytes
        self._n_best = n_best = self._plan.pool(wanted, master.n_classes, in_use)
        if self._reason is None and n_best == 0:
            self._reason = FULL
        self._candidates = None
        if n_best and (self._reason is None or self._oracle.exact):
            self._candidates = self._price(n_best)
            state.bytes_read = self._read_before + self._oracle.bytes_read
        return self._certified(point)

    def _price(self, n_best: int) -> Candidates:
        """Return the best learners of the columns drawn, or of more if those are not worth adding."""
        duals, options = Duals(self._master.u, self._master.r), self._options
        number, times = len(self.state.stages) - 1, 1
        while True:
            drawn = options.drawn_columns(self._usable, number, times)
            candidates = self._oracle.price(duals, n_best, self._columns if drawn is None else drawn)
            self.state.n_passes += self._oracle.n_passes
            if drawn is None or candidates.sigma > 1.0 + options.tol:
                return candidates
            if number > 0 and np.count_nonzero(drawn) >= _ENOUGH_COLUMNS:
                return candidates
            times *= 2

    def reason_to_stop(self, certificate: Certificate) -> str | None:
        """Return why the run stops after this round, or None."""
        if self._reason is None and self._candidates is not None:
            # A greedy search proves no gap: it stops when no candidate is worth more.
            tol = self._options.tol
            done = certificate.gap <= tol if self._oracle.exact else self._candidates.sigma <= 1.0 + tol
            self._reason = "tol" if done else None
        return self._reason

    def improve(self) -> None:
        """Add the candidates to the pools of their classes, and descend."""
        master, options, candidates = self._master, self._options, self._candidates
        assert candidates is not None
        if options.learners == "shared":
            candidates = candidates.shared(master.n_classes, self._n_best)
        self._take(candidates)
        violation = max(candidates.sigma - 1.0, 0.0)
        # The answers are kept now; this frees their memory for those of the next pass.
        self._candidates = candidates = None
        tolerance = _INNER_FRACTION * violation
        master.improve(tolerance, options.inner_rounds, options.max_sweeps, self._engine)
        self.state.n_sweeps = master.n_sweeps
        master.prune()
        self._append_stage()

    def message(self, figures: Figures) -> Progress:
        """Return the progress message of a round."""
        facts = {name: value for name, value in figures.items() if math.isfinite(value)}
        return Progress("train", int(figures["n_iter"]), self._options.n_rounds, "rounds", facts)

    def thresholds(self) -> NDArray[np.float64]:
        """Return the thresholds of the nodes of all learners; infinity is above all values but NaN."""
        learners = self.state.stages.learners
        features, cuts = learners.feature.ravel(), learners.cut.ravel()
        values = np.zeros(features.shape)
        asking = np.flatnonzero(features >= 0)
        asking = asking[np.argsort(features[asking], kind="stable")]
        different, firsts = np.unique(features[asking], return_index=True)
        for feature, nodes in zip(different.tolist(), np.split(asking, firsts[1:]), strict=False):
            edges = np.append(self._oracle.edges_of(feature), np.inf)
            values[nodes] = edges[np.minimum(cuts[nodes], len(edges) - 1)]
        return values.reshape(learners.feature.shape)

    def _reason_before_search(self, point: Point) -> str | None:
        """Return why no further round is begun, whatever a search would find."""
        options = self._options
        if len(self.state.stages) - 1 >= options.n_rounds:
            return "n_rounds"
        if options.time_limit is not None and time.monotonic() - self._started >= options.time_limit:
            return "time_limit"
        errors = [entry["held_error"] for entry in self.history] + [point.held_error]
        if not math.isnan(point.held_error) and len(errors) - 1 - int(np.argmin(errors)) >= options.patience:
            return "patience"
        return None

    def _certified(self, point: Point) -> tuple[Certificate, Figures]:
        """Return the certificate of a round and its figures."""
        state, candidates = self.state, self._candidates
        certificate = Certificate(-math.inf, point.objective, math.inf)
        if self._oracle.exact:
            if candidates is not None:
                state.lower = max(state.lower, point.lower_bound(candidates.sigma))
            certificate = Certificate.of(state.lower, point.objective)
        figures = {
            "n_passes": float(state.n_passes),
            "n_iter": float(len(state.stages) - 1),
            "objective": point.objective,
            "lower": certificate.lower,
            "gap": certificate.gap,
            "sigma": math.nan if candidates is None else candidates.sigma,
            "n_learners": float(self._master.n_learners),
            "bytes_read": float(state.bytes_read),
            "held_loss": point.held_loss,
            "held_error": point.held_error,
        }
        self._point = point
        return certificate, figures

    def bound_known(self) -> None:
        """If the search is not exact, add the certificate over the learners in use to the last figures.

        It takes time for each of them, so that not every round has it.
        """
        if not self._oracle.exact:
            point = self._point
            restricted = Certificate.of(point.lower_bound(self._master.largest_score()), point.objective)
            self.history[-1] |= {"restricted_lower": restricted.lower, "restricted_gap": restricted.gap}

    def _take(self, candidates: Candidates) -> None:
        """Add the candidates to the pools of their classes; those in use are pooled again."""
        slots = self._slots(candidates.learners, candidates.answers)
        for c, own in enumerate(self._master.classes):
            mine = candidates.classes == c
            own.pool(slots[candidates.places[mine]], candidates.signs[mine])

    def _slots(self, learners: Learners, answers: list[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the slots of learners, new ones if needed."""
        responses, keys = self._master.responses, learners.keys()
        self._found = learners, {key: k for k, key in enumerate(keys)}
        slots = np.empty(len(answers), np.int64)
        for k, (key, answer) in enumerate(zip(keys, answers, strict=True)):
            known = responses.find(key)
            slots[k] = responses.add(key, answer) if known is None else known
        return slots

    def _append_stage(self) -> None:
        """Store the current weights as a stage; all learners have weight."""
        stages, responses = self.state.stages, self._master.responses
        table, place = self._found
        for c, own in enumerate(self._master.classes):
            new = np.flatnonzero(own.stored < 0)  # each was found in this round
            if len(new):
                rows = [place[key] for key in responses.keys_of(own.slots[new])]
                own.stored[new] = stages.places(table.take(rows), np.full(len(new), c), own.signs[new])
        weighted = self._master.weighted()
        stages.append(np.concatenate([own.stored for own in self._master.classes]), weighted.weights)
