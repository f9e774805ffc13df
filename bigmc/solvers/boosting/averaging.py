"""The mean of boosted models whose trees use different columns: again one sum of weighted trees.

If columns are alike, greedily grown trees differ by chance, and so do their errors; the mean of models with
columns drawn for each has fewer errors (Breiman, "Random forests", Machine Learning 2001, for trees;
Friedman, "Stochastic gradient boosting", 2002, for samples drawn in every round).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.boosting.binning import Bins
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.options import BoostingOptions
from bigmc.solvers.boosting.solve import Solution, solve
from bigmc.solvers.boosting.state import Stages
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint, with_own_lists
from bigmc.solvers.loop import Figures, RunContext
from bigmc.store.dataset import Dataset

_SUMMED = ("n_passes", "n_learners", "bytes_read")
"""Figures of a round that are added up; others are averaged."""


def solve_averaged(
    dataset: Dataset,
    options: BoostingOptions,
    n_models: int,
    memory_limit: int,
    context: RunContext,
    sample_weight: NDArray[np.float64] | None = None,
) -> Solution:
    """Return the mean of models that differ in the columns drawn; arguments as for `solve`.

    They are trained one after another, with the same bins. The checkpoint holds the states of all: a resumed
    run continues the one under way, and a run of more rounds continues each. A time limit is for all
    together.
    """
    if n_models == 1:
        return solve(dataset, options, memory_limit, context, sample_weight)
    kept = None if context.checkpoint is None else _Kept(context.checkpoint)
    end = None if options.time_limit is None else time.monotonic() + options.time_limit
    bins: dict[int, Bins] = {}
    solutions = []
    for number in range(n_models):
        left = None if end is None else max(0.0, (end - time.monotonic()) / (n_models - number))
        own = replace(options, draw=number, time_limit=left)
        checkpoint = None if kept is None else _Member(kept, number)
        member = replace(context, checkpoint=checkpoint)
        solutions.append(solve(dataset, own, memory_limit, member, sample_weight, bins=bins))
    mean = averaged(solutions)
    if options.validation_fraction == 0:
        return mean
    fewest = np.argmin([entry["held_error"] for entry in mean.history])
    return replace(mean, stage=int(fewest))


def averaged(solutions: Sequence[Solution]) -> Solution:
    """Return the mean of solutions, stage by stage; of those that ended earlier the last stage counts.

    Their learners cut at edges of the same bins. The objective is convex, so the mean of the values
    bounds its value at the mean from above; the certificates over the known trees do not carry over.
    """
    n_stages = max(len(solution.stages) for solution in solutions)
    history = [_mean_figures([_at(solution.history, s) for solution in solutions]) for s in range(n_stages)]
    stages, thresholds = _mean_stages(solutions, n_stages)
    upper = float(np.mean([solution.objective for solution in solutions]))
    limits = [s.limit_for_more for s in solutions if s.limit_for_more is not None]
    return Solution(
        stages=stages,
        stage=n_stages - 1,
        thresholds=thresholds,
        objective=upper,
        certificate=Certificate(-math.inf, upper, math.inf),
        n_iter=n_stages - 1,
        n_passes=sum(solution.n_passes for solution in solutions),
        history=history,
        bytes_read=sum(solution.bytes_read for solution in solutions),
        limit_for_more=max(limits, default=None),
    )


def _mean_stages(solutions: Sequence[Solution], n_stages: int) -> tuple[Stages, NDArray[np.float64]]:
    """Return the stages of the mean, equal learners as one, and the thresholds of its learners."""
    place: dict[tuple[int, int, bytes], int] = {}
    places, first = [], []
    for number, solution in enumerate(solutions):
        own = solution.stages
        names = zip(own.classes.tolist(), own.signs.tolist(), own.learners.keys(), strict=True)
        own_places = np.empty(len(own.classes), np.int64)
        for k, name in enumerate(names):
            if name not in place:
                place[name] = len(place)
                first.append((number, k))
            own_places[k] = place[name]
        places.append(own_places)
    order = np.array(first, np.int64).reshape(-1, 2)
    chosen = [order[order[:, 0] == number, 1] for number in range(len(solutions))]
    taken = list(zip(solutions, chosen, strict=True))
    stages = Stages(1)
    stages.learners = Learners.joined([s.stages.learners.take(k) for s, k in taken])
    stages.classes = np.concatenate([s.stages.classes[k] for s, k in taken])
    stages.signs = np.concatenate([s.stages.signs[k] for s, k in taken])
    members, weights = [], []
    for number in range(n_stages):
        total = np.zeros(len(place))
        for solution, own_places in zip(solutions, places, strict=True):
            own_members, own_weights = solution.stages.stage(min(number, len(solution.stages) - 1))
            total[own_places[own_members]] += own_weights / len(solutions)
        members.append(np.flatnonzero(total))
        weights.append(total[members[-1]])
    stages.ends = np.cumsum([len(own) for own in members]).tolist()
    stages.members, stages.weights = np.concatenate(members), np.concatenate(weights)
    return stages, np.concatenate([s.thresholds[k] for s, k in taken])


def _at(history: Sequence[Figures], number: int) -> Figures:
    return history[min(number, len(history) - 1)]


def _mean_figures(rows: Sequence[Figures]) -> Figures:
    """Return figures of one round of all models, without those of certificates over their own trees."""
    names = [name for name in rows[0] if not name.startswith("restricted_")]
    sums = {name: sum(row[name] for row in rows) for name in names}
    figures = {name: sums[name] if name in _SUMMED else sums[name] / len(rows) for name in names}
    return {**figures, "n_iter": max(row["n_iter"] for row in rows)}


class _Kept:
    """The states of several runs, in one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.states: dict[str, tuple[Mapping[str, Any], dict[str, NDArray[Any]]]] = {}
        saved = checkpoint.load()
        if saved is not None and "models" in saved[0]:
            meta, arrays = saved
            for key, own in meta["models"].items():
                prefix = f"{key}."
                mine = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
                self.states[key] = own, mine

    def save(self) -> None:
        """Replace the saved states."""
        arrays = {
            f"{key}.{name}": array for key, (_, own) in self.states.items() for name, array in own.items()
        }
        self._checkpoint.save({"models": {key: meta for key, (meta, _) in self.states.items()}}, arrays)


class _Member:
    """The checkpoint of one of several runs."""

    def __init__(self, kept: _Kept, number: int) -> None:
        self._kept, self._key = kept, str(number)

    def save(self, meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the state."""
        self._kept.states[self._key] = with_own_lists(meta), arrays
        self._kept.save()

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return the state, if there is one."""
        saved = self._kept.states.get(self._key)
        return None if saved is None else (with_own_lists(saved[0]), saved[1])
