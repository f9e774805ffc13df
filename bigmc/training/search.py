"""The search for the settings of a linear model: weighting, loss, ridge and penalty, by rows held out.

It runs on a sample of the rows in memory, however large the data is: the best ridge times the number of rows
hardly depends on that number. One setting is changed at a time, in the direction that helps, until none
does; a grid therefore has no edge to stop at. Every trial is written down when it is done, so that a killed
search goes through the same trials again without training them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, Resources
from bigmc.errors import DataError
from bigmc.learners import learner_of
from bigmc.model import Model
from bigmc.options.learners import LearnerOptions, SparseOptions
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_groups, draw_rows
from bigmc.store.weighting import Weighting
from bigmc.store.work_file import read_work_file, write_work_file
from bigmc.training.folds import FEW_ROWS, FEW_ROWS_OF_TABLES, Fold, cross_validated
from bigmc.training.label_thresholds import Thresholds
from bigmc.training.ridges import Ridges
from bigmc.training.sizes import Duals, HeldOutRows, size_curve
from bigmc.training.trials import (
    Candidate,
    Course,
    Size,
    Trial,
    Truth,
    better,
    is_table,
    weighted,
    weightings_of,
)

SAMPLE_ROWS = 40_000
"""Rows that the search reads, at most: a fifth of them tells models apart that differ by half a point."""
SAMPLE_WORK = 200_000_000
"""Non-zeros of these rows times classes, at most."""
FEWEST_ROWS = 5_000
"""Rows that the search reads in any case."""
HELD_OUT, HELD_OUT_ROWS = 0.2, 8_000
"""Share of the sample that validates, and the most rows."""
FEW_VALUES = 500_000
"""Values of the sample up to which one thread does everything: two took a fifth more processor time for a
thousand rows of a table, and hardly less of the clock."""
SCORE_ENTRIES = 16_000_000
"""Scores of the rows that validate, at most."""
STEP = 10**0.5
"""From one ridge, or penalty, to the next."""
FAR_BEHIND = 1.5
"""Times the errors of boosting from which on linear models are given up: on tables, logistic regression and
other ridges take a quarter of the errors of the first one away."""
MOST_SPREAD = 1e4
"""Times the smallest deviation of a column that the largest may be for a table to be tried as it is: beyond,
a ridge binds small columns, leaves large ones free, and takes a hundred times as long."""
MOST_STEPS = 6
"""Steps in one direction: a thousandfold."""
LOGISTIC_RIDGE = 0.1
"""The first ridge of logistic regression, times the number of rows."""
FIRST_PENALTY = 0.1
"""The first penalty tried, times the number of rows: features that weigh less than this are dropped."""
_MANY_FEATURES = 1000
"""Features from which on a trial takes the dual descent and nothing else is tried: logistic regression and a
penalty cost some ten to forty times as much there, and gained nothing on packages, strings and questions."""
EVERY_FOLD, FIRST_FOLD = slice(None), slice(1)
"""Folds that a trial holds out."""
_SAMPLE_SEED, _VALID_SEED = 0x5EA2C4, 0x7A11D


Versions = Callable[[Model], Sequence[Model]]
"""From a trained model to those that are judged."""


class Limits(NamedTuple):
    """What a search may use.

    Attributes
    ----------
    memory : int
        Bytes.
    seconds : float
        No trial begins later; infinite: until validation has turned.
    max_features : int or None
        Features that the model may have.
    work : int
        Non-zeros of the rows it reads times classes, at most, which is what a trial costs.
    few_rows : int or None
        Up to so many rows are cross-validated; by default `FEW_ROWS`, or `FEW_ROWS_OF_TABLES`.
    """

    memory: int
    seconds: float = math.inf
    max_features: int | None = None
    work: int = SAMPLE_WORK
    few_rows: int | None = None

    def cross_validates(self, dataset: Dataset, n_rows: int) -> bool:
        """Return whether a search on so many rows of a dataset holds out every row in its turn."""
        by_default = FEW_ROWS_OF_TABLES if is_table(dataset) else FEW_ROWS
        return n_rows <= (by_default if self.few_rows is None else self.few_rows)


def first_candidate(dataset: Dataset) -> Candidate:
    """Return what is tried first: a ridge alone, on texts by tf-idf, on tables in units of deviation."""
    choices = weightings_of(dataset)
    return Candidate(next(iter(choices), None))


class Search:
    """One search, from the best candidate known to a better one.

    Parameters
    ----------
    dataset : Dataset
        The rows to learn from.
    engine : Engine
    limits : Limits
    folder : Path, optional
        Where trials are written down; by default nowhere.
    progress : callable
    thresholds : Thresholds, optional
        What models of sets of labels are judged by.
    """

    def __init__(
        self,
        dataset: Dataset,
        engine: Engine,
        limits: Limits,
        folder: Path | None = None,
        progress: ProgressCallback = silent,
        thresholds: Thresholds = Thresholds.SHARED,
    ) -> None:
        self._limits, self._folder, self._progress = limits, folder, progress
        self._weightings, self._stored = weightings_of(dataset), dataset.weighting
        base = dataset.with_weighting(next(iter(self._weightings.values()), dataset.weighting))
        work = max(dataset.nnz, 1) * max(dataset.n_classes, 1)
        share = min(1.0, SAMPLE_ROWS / dataset.n_samples, limits.work / work)
        share = min(1.0, max(share, FEWEST_ROWS / dataset.n_samples))
        self._sample, self._positions = draw_rows(base, share, _SAMPLE_SEED, engine)
        # Threads that take turns at small parts cost more than they bring.
        few = self._sample.nnz <= FEW_VALUES and engine.shares_memory
        self._engine = engine = engine.at_most(1) if few else engine
        n, rows = self._sample.n_samples, min(HELD_OUT_ROWS, SCORE_ENTRIES // max(dataset.n_classes, 1))
        self._held_out = min(HELD_OUT, max(rows, 1) / n)
        valid, places = self._draw_valid()
        self._folds = [Fold.of(self._sample, places, engine)]
        if limits.cross_validates(dataset, n) and (
            folds := cross_validated(self._sample, engine, _VALID_SEED)
        ):
            self._folds, valid = folds, self._sample
        self._truth = Truth.of(valid, thresholds)
        self._places = np.concatenate([fold.places for fold in self._folds])
        self._trials: list[Trial] = []
        self._ends = time.monotonic() + limits.seconds

    @property
    def n_rows(self) -> int:
        """Rows of the sample."""
        return self._sample.n_samples

    @property
    def n_held_out(self) -> int:
        """Rows of the sample that validate."""
        return len(self._places)

    @property
    def n_learned(self) -> int:
        """Rows of the sample that a model of a trial learns from."""
        return self.n_rows - len(self._folds[0].places)

    @property
    def cross_validates(self) -> bool:
        """Whether every row is held out in its turn."""
        return len(self._folds) > 1

    @property
    def first(self) -> Candidate:
        """What is tried first."""
        return Candidate(next(iter(self._weightings), None))

    def run(self, rival: float | None = None) -> Course:
        """Try candidates until none is better, or time is over.

        Parameters
        ----------
        rival : float, optional
            Quality of a learner of another kind. Where it errs `FAR_BEHIND` times as seldom as the first
            linear model, no other is tried.
        """
        ended = "no change of a setting helped any more"
        try:
            best = self.trial_of(self.first)
            if rival is not None and 1.0 - best.quality >= FAR_BEHIND * (1.0 - rival):
                return self._course(best, "no linear model comes near to boosting")
            for stage in (self._weighting, self._ridge, self._loss, self._penalty):
                best = stage(best)
        except _TimeIsOver:
            best, ended = self._best(), "its time was over"
        return self._course(best, ended)

    def _course(self, best: Trial, ended: str) -> Course:
        return Course(tuple(self._trials), best, self.n_rows, self.n_held_out, ended)

    def sizes(self, candidate: Candidate) -> tuple[Size, ...]:
        """Return what fewer features reach, all first; nothing where dual coordinates do not apply."""
        if not self._solves_by_duals(candidate):
            return ()
        file = None if self._folder is None else self._folder / "sizes.json"
        if file is not None and file.exists():
            return tuple(Size.from_dict(fields) for fields in read_work_file(file, self._folder))
        fold = self._folds[0]
        start = Duals(fold.ridges.duals(candidate))
        for each in self._folds:
            each.ridges.release()
        truth = self._truth.of_rows(fold.places) if self.cross_validates else self._truth
        rows = HeldOutRows(weighted(self._sample, candidate), fold.weights, fold.places, truth)
        found = size_curve(rows, candidate, self._limits.max_features, self._engine, start)
        if self.cross_validates:  # all rows say more about the probabilities than those of one fold
            calibration = self.trial_of(candidate).calibration
            found = tuple(replace(size, calibration=calibration) for size in found)
        if file is not None:
            write_work_file(file, [asdict(size) for size in found])
        return found

    def duals(self, candidate: Candidate) -> Duals:
        """Return the dual variables of a candidate; their places are among all rows to learn from."""
        return Duals(self._folds[0].ridges.duals(candidate), self._positions)

    def _weighting(self, best: Trial) -> Trial:
        scale = self._sample.column_scale() if best.candidate.weighting == "scaled" else None
        if scale is not None and scale.max() > MOST_SPREAD * scale.min():
            return best
        for name in list(self._weightings)[1:]:
            best = self.better(best, self.trial_of(replace(best.candidate, weighting=name), best))
        return best

    def _ridge(self, best: Trial) -> Trial:
        for factor in (STEP, 1 / STEP):
            improved = self._climb(best, lambda c, f=factor: replace(c, ridge=c.ridge * f))  # type: ignore[misc]
            if improved is not best:
                return improved
        return best

    def _loss(self, best: Trial) -> Trial:
        if self._sample.has_sets or self._descends_duals():
            return best
        start = self.trial_of(replace(best.candidate, loss="log_loss", ridge=LOGISTIC_RIDGE))
        return self.better(best, self._ridge(start))

    def _penalty(self, best: Trial) -> Trial:
        if self._descends_duals():
            return best
        start = self.trial_of(replace(best.candidate, alpha=FIRST_PENALTY))
        if self.better(best, start) is best:
            return best
        return self._climb(start, lambda c: replace(c, alpha=c.alpha * STEP))

    def _climb(self, best: Trial, change: Callable[[Candidate], Candidate]) -> Trial:
        """Change a setting again and again while that helps."""
        for _ in range(MOST_STEPS):
            trial = self.trial_of(change(best.candidate), best)
            if self.better(best, trial) is best:
                break
            best = trial
        return best

    def better(self, one: Trial, other: Trial) -> Trial:
        """Return the better of two by quality and log loss; the first unless the other is worth it."""
        return better(one, other, self.n_held_out)

    def _best(self) -> Trial:
        if not self._trials:
            raise DataError("there was no time for a single trial", "give --time more, or leave it out")
        best = self._trials[0]
        for trial in self._trials[1:]:
            best = self.better(best, trial)
        return best

    def trial_of(self, candidate: Candidate, origin: Trial | None = None) -> Trial:
        """Return the trial of a candidate, which changes one setting of `origin`."""
        for fold in self._folds:
            fold.ridges.enter(candidate, None if origin is None else origin.candidate)
        for trial in self._trials:
            if trial.candidate == candidate:
                return trial
        file = None if self._folder is None else self._folder / f"trial-{len(self._trials):03d}.json"
        if file is not None and file.exists():
            trial = Trial.from_dict(read_work_file(file, self._folder))
            if trial.candidate == candidate:
                self._trials.append(trial)
                return trial
        if self._trials and time.monotonic() > self._ends:
            raise _TimeIsOver
        trial = self.attempt(candidate)
        if file is not None:
            write_work_file(file, asdict(trial))
        self._trials.append(trial)
        facts = {"quality": trial.quality, "log loss": trial.log_loss}
        self._progress(Progress("search", len(self._trials), 0, "trials", facts))
        return trial

    def attempt(self, candidate: Candidate) -> Trial:
        """Train on the rows of the sample that are not held out, and judge on the others."""
        started = time.monotonic()
        if self._solves_by_duals(candidate):
            scores, n_used = self._dual_scores(candidate)
            return Trial.of(candidate, self._truth.judge(scores), n_used, time.monotonic() - started)
        weighting = weighted(self._sample, candidate).weighting
        options = SparseOptions(**candidate.options(float(self._folds[0].weights.sum())))
        return self._judged(options, candidate, weighting, lambda model: [model])[0]

    def quality(self, candidate: Candidate) -> float:
        """Return the quality alone of `attempt`, for a fraction of the time where classes are many."""
        if self._solves_by_duals(candidate) and not self._sample.has_sets:
            return self._truth.share_right(self._dual_scores(candidate)[0])
        return self.attempt(candidate).quality

    def _dual_scores(self, candidate: Candidate) -> tuple[NDArray[np.float64], int]:
        """Return the scores of the rows held out, and the number of features with weight."""
        scores, n_used = [], 0
        for fold in self._folds:
            duals = fold.ridges.train(candidate)
            scores.append(duals.scores(fold.places))
            n_used = max(n_used, duals.n_used)
        return self._in_order(scores), n_used

    def _in_order(self, scores: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the scores of all folds in the order of the rows that judge."""
        together = np.concatenate(scores)
        return together[np.argsort(self._places)] if self.cross_validates else together

    def _solves_by_duals(self, candidate: Candidate) -> bool:
        return candidate.is_ridge_hinge and self._descends_duals()

    def _descends_duals(self) -> bool:
        if self._limits.max_features is not None:  # `Fit` has seen to it that they fit
            return True
        many = int(np.count_nonzero(self._sample.column_nnz())) >= _MANY_FEATURES
        return many and Ridges.memory(self._sample) <= self._limits.memory

    @cached_property
    def _valid(self) -> Dataset:
        """The rows held out; dual descent scores them without."""
        return self._draw_valid()[0]

    def _draw_valid(self) -> tuple[Dataset, NDArray[np.int64]]:
        return draw_groups(self._sample, self._held_out, _VALID_SEED, self._engine)

    def has_time(self, seconds: float) -> bool:
        """Return whether what takes so many seconds would end in time."""
        return time.monotonic() + seconds <= self._ends

    def judge(
        self,
        options: LearnerOptions,
        candidate: Candidate,
        versions: Versions,
        states: list[MemoryCheckpoint] | None = None,
        *,
        folds: slice = EVERY_FOLD,
    ) -> list[Trial]:
        """Return what versions of the models of another learner reach on the same rows.

        Parameters
        ----------
        options : LearnerOptions
        candidate : Candidate
            What the trials are entered as.
        versions : callable
            Makes the models to judge of one that was trained, as many and in the same order of each.
        states : list of MemoryCheckpoint, optional
            Of each fold; training continues from them. An empty list is filled.
        folds : slice, optional
            Hold out the rows of these alone.
        """
        if states == []:
            states += [MemoryCheckpoint() for _ in self._folds]
        chosen = _Folds(self._folds[folds], [None] * len(self._folds) if states is None else states[folds])
        return self._judged(options, candidate, self._stored, versions, chosen)

    def _judged(
        self,
        options: LearnerOptions,
        candidate: Candidate,
        weighting: Weighting,
        versions: Versions,
        chosen: _Folds | None = None,
    ) -> list[Trial]:
        started = time.monotonic()
        resources = Resources(self._engine, self._limits.memory)
        samples = self._sample.with_weighting(weighting)
        valid = samples if self.cross_validates else self._valid.with_weighting(weighting)
        scores: list[list[NDArray[np.float64]]] = []
        n_used: list[list[int]] = []
        learner = learner_of(options)
        folds, states = chosen or _Folds(self._folds, [None] * len(self._folds))
        for fold, state in zip(folds, states, strict=True):
            trained = learner.train(samples, resources, sample_weight=fold.learns, checkpoint=state)
            models = versions(trained.model)
            scores.append([self._scores(model, valid, fold) for model in models])
            n_used.append([len(model.used_features) for model in models])
        seconds = time.monotonic() - started
        some = len(folds) < len(self._folds)
        truth = self._truth.of_rows(np.concatenate([f.places for f in folds])) if some else self._truth
        joined = np.concatenate if some else self._in_order
        return [
            Trial.of(candidate, truth.judge(joined(found)), max(used), seconds)
            for found, used in zip(zip(*scores, strict=True), zip(*n_used, strict=True), strict=True)
        ]

    def _scores(self, model: Model, valid: Dataset, fold: Fold) -> NDArray[np.float64]:
        found = np.concatenate([model.shard_scores(valid, s) for s in range(valid.n_shards)])
        return found[fold.places] if self.cross_validates else found


class _Folds(NamedTuple):
    """Folds, and from which state the training of each continues."""

    folds: Sequence[Fold]
    states: Sequence[MemoryCheckpoint | None]


class _TimeIsOver(Exception):
    """No trial may begin any more."""
