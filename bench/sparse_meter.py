"""What a run of ``bench/sparse_race.py`` measures: a clock that stops while the weights are looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sparse_problems
from sparse_problems import Problem

from bigmc.budget import current_memory, peak_memory, reset_peak

#: A look is due when this much more time has passed than at the last one.
_LOOKS = 1.05


class Meter:
    """Clock, peak memory and trace of one run.

    Parameters
    ----------
    problem : Problem
    folder : Path
        Where its arrays are.
    alpha : float
    optimum : float or None
        Objective that errors are relative to; None if the method is to end by its own criterion.
    time_limit : float
        CPU seconds after which the method is asked to stop.
    """

    def __init__(
        self, problem: Problem, folder: Path, alpha: float, optimum: float | None, time_limit: float
    ) -> None:
        self.trace: list[dict[str, Any]] = []
        self.seconds = self.cpu_seconds = 0.0
        self.peak = 0
        self.finished = False
        self._problem, self._folder, self._alpha = problem, folder, alpha
        self._optimum, self._time_limit = optimum, time_limit
        self._next_look = 0.0
        self._started: tuple[float, float] | None = None
        # Imports and compiled kernels are in memory by now, data are not.
        self.bare = current_memory()

    def start(self) -> None:
        """Let the clock run: the data are as the method wants them."""
        reset_peak()
        self._started = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Let the clock stand still, if it runs; what is in memory from now on is the bench's."""
        if self._started is None:
            return
        self.seconds += time.perf_counter() - self._started[0]
        self.cpu_seconds += time.process_time() - self._started[1]
        self.peak = max(self.peak, peak_memory())
        self.finished |= self.cpu_seconds > self._time_limit
        self._started = None

    def look(self, weights: Callable[[], Any], *, last: bool = False, **facts: Any) -> bool:
        """Record objective, accuracy and size of the weights; return whether the method may stop.

        Without an optimum only the last look counts.

        Parameters
        ----------
        weights : callable
            Returns the weights, of shape (n_features, n_classes).
        last : bool
            The method has ended.
        **facts
            What else is worth recording.
        """
        self.stop()
        if last or (self._optimum is not None and self.seconds >= self._next_look):
            seen = figures(self._problem, self._folder, self._alpha, weights(), bound=last)
            self._record({**facts, **seen})
            self._next_look = _LOOKS * self.seconds
        if not last:
            self.start()
        return self.finished

    def note(self, **facts: Any) -> None:
        """Record what the method itself says, its objective among it, or what is known of a stopped one."""
        running = self._started is not None
        self.stop()
        self._record(facts)
        if running:
            self.start()

    def _record(self, facts: dict[str, Any]) -> None:
        point = {"seconds": round(self.seconds, 4), "cpu_seconds": round(self.cpu_seconds, 4), **facts}
        if self._optimum is not None and "objective" in facts:
            point["relative"] = facts["objective"] / self._optimum - 1
            self.finished |= point["relative"] <= self._problem.tolerances[-1]
        self.trace.append(point)

    def report(self) -> dict[str, Any]:
        """Return the figures of the run: the first time within each tolerance, and the last ones."""
        reached = {}
        for tolerance in self._problem.tolerances if self._optimum is not None else ():
            point = next((p for p in self.trace if p["relative"] <= tolerance), None)
            reached[f"{tolerance:g}"] = point and {
                key: point[key] for key in ("seconds", "cpu_seconds", "passes", "bytes_read") if key in point
            }
        memory = {"peak_bytes": self.peak, "added_bytes": self.peak - self.bare}
        return {**({"to": reached} if reached else {}), **self.trace[-1], **memory, "trace": self.trace}


def figures(problem: Problem, folder: Path, alpha: float, weights: Any, bound: bool) -> dict[str, Any]:
    """Return the objective of weights on the training rows, their accuracy on the others, and their size.

    With ``bound`` also a lower bound on every objective: the dual objective Σ(β - n β²/4) of the dual point
    β = 2 max(A, 0) / n, scaled by the best factor that keeps ‖G_j(β)‖ ≤ alpha. It owes nothing to the method,
    so that a certificate can be checked against it.
    """
    X, y, _ = sparse_problems.load(problem, folder, "train")
    n, rows = len(y), np.arange(len(y))
    scores = X @ weights
    margins = 1 - (scores[rows, y][:, None] - scores)
    margins[rows, y] = 0
    np.maximum(margins, 0, out=margins)
    norms = np.sqrt((weights * weights).sum(axis=1))
    squares = float((margins * margins).sum())
    found = {
        "objective": squares / n + alpha * float(norms.sum()),
        "accuracy": accuracy(problem, folder, weights),
        "nonzero_rows": int((norms > 0).sum()),
    }
    if bound:
        total, beta = 2 * float(margins.sum()) / n, 2 * margins / n
        beta[rows, y] = -beta.sum(axis=1)
        largest = np.sqrt(((X.T @ beta) ** 2).sum(axis=1).max())
        scale = min(alpha / max(largest, 1e-300), total * n / (2 * max(squares, 1e-300)))
        found["lower"] = scale * total - scale * scale * squares / n
    return found


def accuracy(problem: Problem, folder: Path, weights: Any, intercept: Any = 0.0) -> float:
    """Return the accuracy on the test rows."""
    X, y, _ = sparse_problems.load(problem, folder, "test")
    return float((np.argmax(X @ weights + intercept, axis=1) == y).mean())
