"""Search for the settings of a linear model on held-out rows: weighting, loss, ridge and penalty.

The search uses a sample of the rows in memory: the best ridge times the number of rows
hardly depends on that number. It changes one setting at a time, in the direction that helps, until no change
does, so there is no grid with edges. Every finished trial is recorded, so that a killed
search repeats its trials without training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.dataset import Dataset
from bigmc.store.files.work_file import made_once, read_work_file, write_work_file
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import FEWEST_SECONDS, Limits
from bigmc.training.search.search_rows import is_small_and_wide
from bigmc.training.search.trials import (
    Candidate,
    SearchResult,
    Size,
    Trial,
    better,
    first_candidate,
    weightings_of,
)
from bigmc.training.search.validation import Validation

STEP = 10**0.5
"""Factor from one ridge or penalty to the next."""
FAR_BEHIND = 1.5
"""Ratio of errors to those of boosting above which linear models are given up: on tables, logistic regression
and other ridges remove a quarter of the errors of the first model."""
MOST_SPREAD = 1e4
"""Maximum ratio of the largest to the smallest deviation of columns for trying a table unscaled: above it, a
ridge shrinks small columns, not large ones, and training takes a hundred times as long."""
LARGE = 10.0
"""Geometric mean of the deviations of columns above which a table is not tried unscaled: a ridge then shrinks
weights a hundredth as much or less. On images of 62 signs, with values up to 255, that trial took four times
as long as the scaled one, and .896 of the held-out rows were right instead of .908."""
HOPELESS = 0.1
"""Relative excess of the log loss of logistic regression over the best hinge above which no other ridge of it
is tried, unless more labels are right by a standard error."""
MOST_STEPS = 6
"""Maximum steps in one direction: a thousandfold."""
RESERVED = 0.6
"""Share of the time, at most, that is kept for the trainings after the search."""
LOGISTIC_RIDGE = 0.1
"""The first ridge of logistic regression, times the number of rows, or a larger one if the hinge needs it
(`_first_logistic_ridge`)."""
FIRST_PENALTY = 0.1
"""The first penalty tried, times the number of rows: features that weigh less than this are dropped."""
STRONG_PENALTY = 10.0
"""A penalty to try where the first ones brought little, times the number of rows: if a few of many columns
matter, the quality rises only after most of the others are dropped."""


class Search:
    """A search, from the best known candidate to better ones.

    Parameters
    ----------
    dataset : Dataset
        The training rows.
    folder : Path, optional
        Folder for finished trials; by default none.
    thresholds : Thresholds, optional
        Kind of thresholds of models of label sets.

    Attributes
    ----------
    validation : Validation
        Training and held-out rows of the trials.
    first : Candidate
        The first to try.
    lacked_time : bool
        Whether there was no time for something that more time might have tried.
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
        self.validation = Validation(dataset, engine, limits, thresholds)
        self._folder, self._progress = folder, progress
        self._weightings, self.first = weightings_of(dataset), first_candidate(dataset)
        self._trials: list[Trial] = []
        self.lacked_time = False
        self._max_features = limits.max_features
        self._seconds, self._ends = limits.seconds, time.monotonic() + limits.seconds
        sampled = self.validation.sample.nnz
        self._n_trials_to_come = limits.trainings * dataset.nnz / max(sampled, 1)

    def run(self, rival: float | None = None) -> SearchResult:
        """Try candidates until none is better, or time is up.

        Parameters
        ----------
        rival : float, optional
            Quality of another kind of learner. If the first linear model has `FAR_BEHIND` times its errors,
            no other is tried.
        """
        ended = "no change of a setting helped any more"
        try:
            best = self.trial_of(self.first)
            if rival is not None and _is_far_behind(best, rival):
                if is_small_and_wide(self.validation.sample):  # a ridge does not tell what few columns do
                    best = self._penalty(best)
                if _is_far_behind(best, rival):
                    return self._result(self._best(), "no linear model comes near to boosting")
            for stage in (self._weighting, self._ridge, self._close_weightings, self._loss, self._penalty):
                best = stage(best)
        except _TimeIsOver:
            best, ended, self.lacked_time = self._best(), "its time was over", True
        return self._result(best, ended)

    def _result(self, best: Trial, ended: str) -> SearchResult:
        return SearchResult(
            tuple(self._trials), best, self.validation.n_rows, self.validation.n_held_out, ended
        )

    def sizes(self, candidate: Candidate) -> tuple[Size, ...]:
        """Return the quality by number of features, all first; empty without dual coordinate descent."""
        if not self.validation.solves_by_duals(candidate):
            return ()
        if self._folder is None:
            return self._sizes(candidate)
        stored = made_once(
            self._folder / "sizes.json",
            lambda: [asdict(size) for size in self._sizes(candidate)],
            self._folder,
        )
        return tuple(Size.from_dict(fields) for fields in stored)

    def _sizes(self, candidate: Candidate) -> tuple[Size, ...]:
        whole = next(trial for trial in self._trials if trial.candidate == candidate)
        if self._max_features is None and not self.has_time(whole.seconds):
            return (Size.whole(whole),)
        self.validation.trial_seconds = self.trial_seconds
        return self.validation.sizes(candidate)

    def _weighting(self, best: Trial) -> Trial:
        scale = self.validation.sample.column_scale() if best.candidate.weighting == "scaled" else None
        if scale is not None and (scale.max() > MOST_SPREAD * scale.min() or _are_large(scale)):
            return best
        for name in list(self._weightings)[1:]:
            best = self.better(best, self.trial_of(replace(best.candidate, weighting=name), best, best))
        return best

    def _ridge(self, best: Trial) -> Trial:
        for factor in (STEP, 1 / STEP):
            improved = self._climb(best, lambda c, f=factor: replace(c, ridge=c.ridge * f))  # type: ignore[misc]
            if improved is not best:
                return improved
        return best

    def _close_weightings(self, best: Trial) -> Trial:
        """Try weightings again, with the best ridge, that chance may have put behind at the first one."""
        at_first = {
            trial.candidate.weighting: trial
            for trial in self._trials
            if trial.candidate == replace(self.first, weighting=trial.candidate.weighting)
        }
        if best.candidate.ridge == self.first.ridge or best.candidate.weighting not in at_first:
            return best
        found, leader = best, at_first.pop(best.candidate.weighting)
        least = leader.quality - self.error(leader)
        for name in (name for name, trial in at_first.items() if trial.quality >= least):
            found = self.better(found, self.trial_of(replace(best.candidate, weighting=name), best))
        return found if found is best else self._ridge(found)

    def error(self, trial: Trial) -> float:
        """Return the standard error of a quality."""
        return math.sqrt(trial.quality * (1.0 - trial.quality) / self.validation.n_held_out)

    def _loss(self, best: Trial) -> Trial:
        if self.validation.sample.has_sets or self.validation.descends_duals:
            return best
        k = self.validation.sample.n_classes
        alpha = best.candidate.alpha * (1.0 - 1.0 / k) / 2.0  # of the derivatives where all weights are 0
        ridge = self._first_logistic_ridge(best)
        start = self.trial_of(replace(best.candidate, loss="log_loss", ridge=ridge, alpha=alpha))
        hopeless = start.log_loss > (1.0 + HOPELESS) * best.log_loss
        if hopeless and start.quality <= best.quality + self.error(best):
            return best
        return self.better(best, self._ridge(start))

    def _first_logistic_ridge(self, best: Trial) -> float:
        """Return the ridge that shrinks the log loss of equally probable classes as the best one the hinge.

        Its second derivative is (1 - 1/k) / k there for each of k classes, that of the squared hinge 2.
        """
        k = self.validation.sample.n_classes
        return max(LOGISTIC_RIDGE, best.candidate.ridge * (1.0 - 1.0 / k) / (2.0 * k))

    def _penalty(self, best: Trial) -> Trial:
        if self.validation.descends_duals:
            return best
        start = self.trial_of(replace(best.candidate, alpha=FIRST_PENALTY), rival=best)
        if self.better(best, start) is start:
            best = self._climb(start, lambda c: replace(c, alpha=c.alpha * STEP))
        if best.candidate.alpha >= STRONG_PENALTY:
            return best
        strong = self.trial_of(replace(best.candidate, alpha=STRONG_PENALTY), rival=best)
        if self.better(best, strong) is best:
            return best
        stronger = self._climb(strong, lambda c: replace(c, alpha=c.alpha * STEP))
        return (
            stronger
            if stronger is not strong
            else self._climb(strong, lambda c: replace(c, alpha=c.alpha / STEP))
        )

    def _climb(self, best: Trial, change: Callable[[Candidate], Candidate]) -> Trial:
        """Change a setting repeatedly while that helps."""
        for _ in range(MOST_STEPS):
            trial = self.trial_of(change(best.candidate), best, best)
            if self.better(best, trial) is best:
                break
            best = trial
        return best

    def better(self, one: Trial, other: Trial) -> Trial:
        """Return the better of two by quality and log loss; the first unless the other is clearly better."""
        return better(one, other, self.validation.n_held_out)

    def _best(self) -> Trial:
        if not self._trials:
            raise DataError("there was no time for a single trial", "give a longer --time, or leave it out")
        best = self._trials[0]
        for trial in self._trials[1:]:
            best = self.better(best, trial)
        return best

    def trial_of(
        self, candidate: Candidate, origin: Trial | None = None, rival: Trial | None = None
    ) -> Trial:
        """Return the trial of a candidate that changes one setting of `origin`.

        Where it promises no gain over `rival`, it may be of one fold alone (`Validation.attempt`).
        """
        self.validation.enter(candidate, None if origin is None else origin.candidate)
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
        self.validation.trial_seconds = self.trial_seconds
        trial = self.validation.attempt(candidate, rival)
        if not self._trials:  # a training takes longer than this trial by the share of the rows it had
            reserved = min(RESERVED * self._seconds, self._n_trials_to_come * trial.seconds)
            self._ends -= reserved if math.isfinite(self._seconds) else 0.0
        if file is not None:
            write_work_file(file, trial.to_dict())
        self._trials.append(trial)
        facts = {"quality": trial.quality, "log loss": trial.log_loss}
        self._progress(Progress("search", len(self._trials), 0, "trials", facts))
        return trial

    @property
    def trial_seconds(self) -> float:
        """Seconds that the trainings of a trial may take: until none may start, but some at least."""
        return max(self._ends - self._reserved - time.monotonic(), FEWEST_SECONDS)

    @property
    def _reserved(self) -> float:
        """Seconds to keep for later trainings before the first trial tells how many they need."""
        needs = math.isfinite(self._seconds) and self._n_trials_to_come and not self._trials
        return RESERVED * self._seconds if needs else 0.0

    def has_time(self, seconds: float) -> bool:
        """Return whether what takes so many seconds would end in time."""
        if not math.isfinite(self._seconds):
            return True
        fits = time.monotonic() + seconds <= self._ends - self._reserved
        self.lacked_time |= not fits
        return fits


def _is_far_behind(best: Trial, rival: float) -> bool:
    """Return whether a trial errs so much more than a rival of this quality that none like it comes near."""
    return 1.0 - best.quality >= FAR_BEHIND * (1.0 - rival)


def _are_large(scale: NDArray[np.float32]) -> bool:
    """Return whether columns are large on average, by one over the deviation of each."""
    return bool(-np.log(scale, dtype=np.float64).mean() > math.log(LARGE))


class _TimeIsOver(Exception):
    """No further trial may start."""
