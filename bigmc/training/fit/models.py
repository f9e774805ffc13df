"""The models of a fit: each is trained once, on the rows it may learn from, and kept in the fit's folder."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bigmc.model import Model, SumModel, load_model
from bigmc.model.archive import QUICK_DEFLATION
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.training.fit.in_time import train_in_time
from bigmc.training.fit.request import FitRequest
from bigmc.training.search.limits import FEWEST_SECONDS, tidy_after
from bigmc.training.search.sizes import Duals, DualsAfter, Trained, descend_all, train_with_size
from bigmc.training.search.trials import Candidate
from bigmc.training.search.winner import Winner

_FEWEST_PASSES = 3.0
"""Minimum passes of a useful training: two that improve the model, and one that certifies it."""


class Deadlines:
    """When each training of a fit must end, so that those after it get equal shares of the time.

    Parameters
    ----------
    seconds : float
        Time for all trainings together, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._pass_seconds = 0.0
        self._n_left = 2

    def next(self, n_after: int) -> float:
        """Return when the next training must end, if `n_after` more than the planned ones follow it."""
        now = time.monotonic()
        n_left = self._n_left + n_after
        self._n_left = max(self._n_left - 1, 1)
        return now + max(self._ends - now, 0.0) / n_left

    def last(self) -> float:
        """Return when the last training must end."""
        self._n_left = max(self._n_left - 1, 1)
        return max(time.monotonic(), self._ends)

    def took(self, began: float, n_passes: float) -> None:
        """Record the passes of the training that began at a time, to know how long one takes."""
        self._pass_seconds = (time.monotonic() - began) / n_passes

    def has_time_for(self, seconds: float) -> bool:
        """Return whether trainings that take so many seconds would end in time."""
        return time.monotonic() + seconds <= self._ends

    @property
    def has_time(self) -> bool:
        """Whether there is time for a useful training, if a pass takes as long as in the last one."""
        return time.monotonic() + _FEWEST_PASSES * self._pass_seconds <= self._ends


class FitModels:
    """Trains the models of a fit, or loads those that a killed run finished.

    Attributes
    ----------
    duals_of_search : Duals or None
        Dual variables of the search's best model, to start the first training from.
    settings_of_search : Candidate or None
        The settings of that model.
    n_rows : int or None
        Number of rows that the last training had time for; None if it learned from all.
    """

    def __init__(self, request: FitRequest) -> None:
        self._request, self._folder = request, request.folder
        self._deadlines = Deadlines(request.limits.seconds)
        self._tested: Duals | None = None
        self.duals_of_search: Duals | None = None
        self.settings_of_search: Candidate | None = None
        self.n_rows: int | None = None

    @property
    def has_time(self) -> bool:
        """Whether there is time for one more useful training."""
        return self._deadlines.has_time

    def has_time_for(self, seconds: float) -> bool:
        """Return whether trainings that take so many seconds would end in time."""
        return self._deadlines.has_time_for(seconds)

    def tested(self, winner: Winner) -> Model:
        """Return the winner trained on all but the test rows."""
        if winner.parts:
            parts = [self.tested(part) for part in winner.parts]
            return SumModel.of(parts, np.array(winner.part_weights))
        if winner.size is not None:
            return self._sized("measured", winner, self._request.train, self.duals_of_search, DualsAfter.KEPT)
        return self._trained("measured", winner, self._request.train)

    def tested_on_all(self, winner: Winner) -> Model | None:
        """Return the same; None, as if there were no such model, if it had time for some of the rows only."""
        model = self.tested(winner)
        if self.n_rows is None:
            return model
        self.n_rows = None
        return None

    def whole(self, winner: Winner) -> Model:
        """Return the winner trained on all rows."""
        if winner.parts:
            return SumModel.of([self.whole(part) for part in winner.parts], np.array(winner.part_weights))
        if winner.size is not None:
            # those of other settings are not kept, and a killed run must start from the same
            searched = winner.candidate == self.settings_of_search
            duals, self._tested = self._placed(self._duals(winner)) if searched else None, None
            return self._sized("whole", winner, self._request.data, duals)
        warm = winner.candidate is not None and not winner.candidate.is_ridge_hinge
        start = self.tested(winner) if warm else None
        return self._trained("whole", winner, self._request.data, start)

    def beside(self, other: Winner, winner: Winner) -> Model:
        """Return a ridge model of other settings, for the same rows as the winner, which was trained before.

        `tested` returns it from then on.
        """
        n_rows = self.n_rows
        if other.size is None:
            model = self._trained("measured", other, self._request.train)
        else:
            start = self.duals_of_search if winner.size is None else self._duals(winner)
            model = self._sized("measured", other, self._request.train, start)
        self.n_rows = n_rows  # that of the winner
        return model

    def _duals(self, winner: Winner) -> Duals:
        """Return the dual variables of the tested model, to start similar models from."""
        if self._tested is None:  # after a kill the stored model is without them
            assert winner.candidate is not None
            rows, start = winner.samples(self._request.train), self.duals_of_search
            self._tested = Duals(descend_all(rows, winner.candidate, self._request.engine, start).duals())
        return self._tested

    def _placed(self, duals: Duals) -> Duals:
        """Return dual variables of the training rows as those of a subset of all rows."""
        data, train = self._request.data, self._request.splits.train
        spans = zip(data.shards, pairwise(data.base), strict=True)
        places = [np.arange(*span) for shard, span in spans if shard.split == train]
        return Duals(duals.values, np.concatenate(places), used_once=True)

    def _sized(
        self,
        name: str,
        winner: Winner,
        samples: Dataset,
        start: Duals | None,
        after: DualsAfter = DualsAfter.DROPPED,
    ) -> Model:
        """Train a ridge model of a size, or find it in the folder."""
        file = self._folder / f"{_named(name, winner)}.model"
        if not file.exists():
            trained = self._train_sized(winner, samples, start, after)
            if after is DualsAfter.KEPT:
                self._tested, self.duals_of_search = trained.duals, None
            trained.model.save(file, deflation=QUICK_DEFLATION)
            del trained  # frees it before the model is read from the file
        model = load_model(file)
        self.n_rows = model.params.get("n_rows", self.n_rows)
        return model

    def _train_sized(
        self,
        winner: Winner,
        samples: Dataset,
        start: Duals | None,
        after: DualsAfter,
    ) -> Trained:
        tidy_after(self._request.data)  # frees what measuring the previous model needed
        began = time.monotonic()
        # a training cut off early would choose other features than those that the search judged
        ends = max(self._next_end(samples), began + FEWEST_SECONDS)
        trained = train_with_size(samples, winner, self._request.engine, start, ends, after)
        self._deadlines.took(began, trained.model.n_iter + 1)
        return trained

    def _trained(self, name: str, winner: Winner, samples: Dataset, start: Model | None = None) -> Model:
        """Train, resume a training, or load the finished model from the folder."""
        name = _named(name, winner)
        rounds = f"-{winner.boosting.n_rounds}" if winner.boosting else ""
        file, work = self._folder / f"{name}{rounds}.model", self._folder / f"{name}.wip"
        if not file.exists():
            disk.make_folder(work)
            tidy_after(self._request.data)
            began = time.monotonic()
            resources = replace(self._request.resources, ends=self._next_end(samples))
            model = train_in_time(winner, samples, resources, work, start)
            self._deadlines.took(began, max(model.n_passes, 1.0))
            model.save(file)
            del model  # the one from the file lacks what is not saved, as after a kill
            if not winner.boosting:  # more rounds continue from there
                disk.try_clear(work)
        model = load_model(file)
        self.n_rows = model.params.get("n_rows", self.n_rows)
        return model

    def _next_end(self, samples: Dataset) -> float:
        if samples is self._request.data or self._request.test is None:
            return self._deadlines.last()
        return self._deadlines.next(int(self._request.splits.refit))


def _named(step: str, winner: Winner) -> str:
    """Return a name for the files of a training, which tells the models of a fit apart."""
    if winner.candidate is None:
        return f"{step}-{winner.kind}"
    settings = repr((winner.candidate, winner.size and winner.size.share, winner.max_features))
    return f"{step}-{winner.kind}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
