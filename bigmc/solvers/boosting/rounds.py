"""The loop: rebuild the dual weights, price, certify, generate columns and descend; and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.progress import Progress, ProgressCallback
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.memory_plan import BoostingPlan
from bigmc.solvers.boosting.pricing import Duals, Found, Oracle
from bigmc.solvers.boosting.restricted_master import Master, Point
from bigmc.solvers.boosting.state import Stages, State
from bigmc.solvers.certificate import Certificate

#: The descent between two passes goes on until the violation is this part of the one the pass found.
_INNER_FRACTION = 0.1


@dataclass(frozen=True)
class Stop:
    """When to end; see `bigmc.solvers.boosting.solve`."""

    n_rounds: int
    tol: float
    patience: int
    time_limit: float | None

    def before_search(self, history: list[dict[str, float]], error: float) -> bool:
        """Return whether the samples held out have not been better served for some rounds."""
        errors = [entry["held_error"] for entry in history] + [error]
        return not math.isnan(error) and len(errors) - 1 - int(np.argmin(errors)) >= self.patience


class Rounds:
    """Passes and descents in turn.

    Parameters
    ----------
    oracle : Oracle
    master : Master
    plan : BoostingPlan
    engine : Engine
        Threads of this process.
    depth : int
        Of the learners.
    shared : bool
        Learners that one class finds are offered to all.

    Attributes
    ----------
    state : State
        What a checkpoint holds.
    memory_is_full : bool
        The rounds ended because the answers of the learners with weight fill the memory limit.
    """

    def __init__(
        self,
        oracle: Oracle,
        master: Master,
        plan: BoostingPlan,
        engine: Engine,
        depth: int,
        shared: bool,
    ) -> None:
        self._oracle, self._master = oracle, master
        self._plan, self._engine, self._shared = plan, engine, shared
        self._learners: dict[bytes, tuple[Learners, int]] = {}
        self._read_before = 0
        self.memory_is_full = False
        self.state = State(Stages(depth))

    def resume(self, state: State | None) -> None:
        """Go on from a saved state: one more pass finds the answers of its learners."""
        if state is None:
            return
        self.state = state
        stages = state.stages
        members, weights = stages.stage(len(stages) - 1)
        learners = stages.learners.take(members)
        slots = self._slots(learners, self._oracle.answers(learners))
        for c, own in enumerate(self._master.classes):
            mine = stages.classes[members] == c
            own.add(slots[mine], stages.signs[members][mine], weights[mine])
        self._master.n_sweeps = state.n_sweeps
        self._read_before = state.bytes_read - self._oracle.bytes_read

    def run(
        self,
        stop: Stop,
        pool: int,
        inner_rounds: int,
        max_sweeps: int,
        save: Callable[[], None],
        progress: ProgressCallback,
    ) -> Certificate:
        """Go on until something says stop; return the certificate of the last stage."""
        master, state = self._master, self.state
        started = time.monotonic()
        if not len(state.stages):
            self._append_stage()
        while True:
            point = master.rebuild(self._engine)
            if not np.isfinite(point.objective):
                raise DataError("the objective is not finite", "give a smaller C")
            n_done = len(state.stages) - 1
            late = stop.time_limit is not None and time.monotonic() - started >= stop.time_limit
            over = n_done >= stop.n_rounds or late
            over = over or stop.before_search(state.history[:n_done], point.held_error)
            n_best = self._plan.pool(pool, master.n_classes, master.responses.nbytes)
            self.memory_is_full = not over and n_best == 0
            if n_best == 0 or (over and not self._oracle.exact):
                return self._record(point, None, stop, progress)
            found = self._oracle.price(Duals(master.u, master.r), n_best)
            state.n_passes += self._oracle.n_passes
            state.bytes_read = self._read_before + self._oracle.bytes_read
            certificate = self._record(point, found, stop, progress)
            # Of what a greedy search finds there is no gap: it is enough that nothing found is worth more.
            done = certificate.gap <= stop.tol if self._oracle.exact else found.sigma <= 1.0 + stop.tol
            if over or done:
                return certificate
            self._take(found.shared(master.n_classes, n_best) if self._shared else found)
            violation = max(found.sigma - 1.0, 0.0)
            del found  # the answers are kept now; these are free for those of the next pass
            master.improve(_INNER_FRACTION * violation, inner_rounds, max_sweeps, self._engine)
            state.n_sweeps = master.n_sweeps
            master.prune()
            self._append_stage()
            save()

    def thresholds(self) -> NDArray[np.float64]:
        """Return where the nodes of all learners cut; infinity above all values that are not missing."""
        learners = self.state.stages.learners
        values = np.zeros(learners.feature.shape)
        for place in np.argwhere(learners.feature >= 0):
            edges = self._oracle.edges_of(int(learners.feature[tuple(place)]))
            cut = int(learners.cut[tuple(place)])
            values[tuple(place)] = edges[cut] if cut < len(edges) else np.inf
        return values

    def _record(
        self, point: Point, found: Found | None, stop: Stop, progress: ProgressCallback
    ) -> Certificate:
        """Note the figures of a round."""
        state = self.state
        if self._oracle.exact:
            if found is not None:
                state.lower = max(state.lower, point.lower_bound(found.sigma))
            certificate = Certificate.of(state.lower, point.objective)
        else:
            certificate = Certificate(-math.inf, point.objective, math.inf)
        entry = {
            "n_passes": float(state.n_passes),
            "n_iter": float(len(state.stages) - 1),
            "objective": point.objective,
            "lower": certificate.lower,
            "gap": certificate.gap,
            "sigma": math.nan if found is None else found.sigma,
            "n_learners": float(self._master.n_learners),
            "bytes_read": float(state.bytes_read),
            "held_loss": point.held_loss,
            "held_error": point.held_error,
        }
        if not self._oracle.exact:
            restricted = Certificate.of(
                point.lower_bound(self._master.largest_score()), point.objective
            )  # fmt: skip
            entry |= {"restricted_lower": restricted.lower, "restricted_gap": restricted.gap}
        # A resumed run looks once more at the stage it was saved with.
        state.history[len(state.stages) - 1 :] = [entry]
        facts = {name: value for name, value in entry.items() if math.isfinite(value)}
        progress(Progress("train", int(entry["n_iter"]), stop.n_rounds, "rounds", facts))
        return certificate

    def _take(self, found: Found) -> None:
        """Put the learners found into the pools of their classes, those in use again."""
        slots = self._slots(found.learners, found.answers)
        for c, own in enumerate(self._master.classes):
            here = zip(own.slots.tolist(), own.signs.tolist(), strict=True)
            place = {name: k for k, name in enumerate(here)}
            mine = found.classes == c
            names = zip(slots[found.places[mine]].tolist(), found.signs[mine].tolist(), strict=True)
            new = []
            for name in dict.fromkeys(names):
                if name in place:
                    own.pooled[place[name]] = True
                else:
                    new.append(name)
            own.add([slot for slot, _ in new], [sign for _, sign in new])

    def _slots(self, learners: Learners, answers: list[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the slots of learners, where needed new ones."""
        responses = self._master.responses
        slots = np.empty(len(answers), np.int64)
        for k, (key, answer) in enumerate(zip(learners.keys(), answers, strict=True)):
            known = responses.find(key)
            slots[k] = responses.add(key, answer) if known is None else known
            self._learners[key] = learners, k
        return slots

    def _append_stage(self) -> None:
        """Keep the weights as they are as a stage, and of the learners only those in it."""
        slots, signs, classes, weights = self._master.weighted()
        keys = self._master.responses.keys_of(slots)
        for key in set(keys):
            table, k = self._learners[key]
            if len(table.feature) > 1:  # found in this round
                self._learners[key] = table.take([k]), 0
        self._learners = {key: self._learners[key] for key in keys}
        learners = {key: learner for key, (learner, _) in self._learners.items()}
        self.state.stages.append(keys, learners, classes, signs, weights)
