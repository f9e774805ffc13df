"""Hold rows out of a sample in memory, and evaluate models trained on the others on them.

Few rows are cross-validated: each is held out once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, Resources
from bigmc.learners import learner_of
from bigmc.model import Model
from bigmc.options.learners import LearnerOptions, SparseOptions
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_groups, holdout_keys, take_rows
from bigmc.store.weighting import Weighting
from bigmc.training.search.folds import Fold, cross_validated, nothing_to_learn
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import SCORE_ENTRIES, Limits, engine_for
from bigmc.training.search.ridges import Ridges
from bigmc.training.search.search_rows import draw_search_rows, has_many_features, keeps_problems
from bigmc.training.search.sizes import Duals, HeldOutRows, scores_of_size, size_curve
from bigmc.training.search.trials import TRIAL_PASSES, Candidate, Size, Trial, Truth, Verdict, weighted

HELD_OUT, HELD_OUT_ROWS = 0.2, 8_000
"""Share of the sample to hold out, and the maximum rows."""
SCORE_SHARE = 64
"""Bytes of the memory limit for each score of the rows that validate: they are copied."""
KEPT_ENTRIES = 60_000
"""Maximum scores of a trial to keep in memory for the sum of models."""
EVERY_FOLD, FIRST_FOLD, OTHER_FOLDS = slice(None), slice(1), slice(1, None)
"""Folds to hold out in a trial."""
PROMISING, FEWEST_PROBED = 0.0025, 200
"""Relative decrease of the log loss on the first fold with which a candidate is tried on the others even if
no more labels are right; and minimum rows of that fold for it to decide. Of the 80 rows of a fold of crx none
tells that another ridge lowers the log loss of all 399 by 1 %."""
SCALED_ROWS, SCALED_FOLDS = 8_000, 3
"""Maximum rows of which more are held out to fit factors and offsets of classes than to choose settings, and
folds of a fifth of them: each takes the time of a trial."""
_VALID_SEED = 0x7A11D

Versions = Callable[[Model], Sequence[Model]]
"""Function from a trained model to the models to judge."""


class Validation:
    """A sample of rows, some of them held out: models learn from the others and are judged on these.

    `DataError` if all rows that are not held out are of one class.

    Parameters
    ----------
    dataset : Dataset
        The training rows.
    thresholds : Thresholds, optional
        Kind of thresholds of models of label sets.

    Attributes
    ----------
    trial_seconds : float
        Seconds after which all trainings of a linear trial together end with their best models so far.
    """

    def __init__(
        self, dataset: Dataset, engine: Engine, limits: Limits, thresholds: Thresholds = Thresholds.SHARED
    ) -> None:
        self._limits, self._stored, self.trial_seconds = limits, dataset.weighting, math.inf
        self.sample, self._positions = draw_search_rows(dataset, engine, limits)
        self._engine = engine = engine_for(self.sample, engine)
        n, rows = self.sample.n_samples, min(HELD_OUT_ROWS, SCORE_ENTRIES // max(dataset.n_classes, 1))
        self._held_out = min(HELD_OUT, max(rows, 1) / n)
        valid, places = self._draw_valid()
        self._folds = [Fold.of(self.sample, places, engine)]
        if limits.cross_validates(dataset, n) and (
            folds := cross_validated(self.sample, engine, _VALID_SEED)
        ):
            self._folds, valid = folds, self.sample
        if not all(fold.can_learn(self.sample) for fold in self._folds):
            raise nothing_to_learn(self.sample)
        self._keeps_problems = keeps_problems(self.sample, limits, len(self._folds))
        self._truth = Truth.of(valid, thresholds)
        self._kept: dict[Candidate, NDArray[np.float64]] = {}
        self._first_verdicts: dict[Candidate, Verdict] = {}
        self._places = np.concatenate([fold.places for fold in self._folds])

    @property
    def n_rows(self) -> int:
        """Rows of the sample."""
        return self.sample.n_samples

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
    def has_groups(self) -> bool:
        """Whether several rows are held out together."""
        return len(np.unique(holdout_keys(self.sample))) < self.n_rows

    @property
    def descends_duals(self) -> bool:
        """Whether ridge models alone are tried, by dual coordinates, because features are many."""
        if self._limits.max_features is not None:  # `Fit` has checked that they fit into memory
            return True
        return has_many_features(self.sample) and Ridges.memory(self.sample) <= self._limits.memory

    def solves_by_duals(self, candidate: Candidate) -> bool:
        """Return whether dual coordinates solve a candidate."""
        return candidate.is_ridge_hinge and self.descends_duals

    def enter(self, candidate: Candidate, origin: Candidate | None) -> None:
        """Record which candidate's model another one starts from, if any."""
        for fold in self._folds:
            fold.ridges.enter(candidate, origin)

    def duals(self, candidate: Candidate) -> Duals:
        """Return the dual variables of a candidate; their places are among all rows to learn from."""
        return Duals(self._folds[0].ridges.duals(candidate, self._fold_seconds), self._positions)

    def sizes(self, candidate: Candidate) -> tuple[Size, ...]:
        """Return the quality by number of features of a candidate solved by dual coordinates, all first."""
        folds = self._held_out_rows(candidate)
        most, ends = self._limits.max_features, time.monotonic() + self.trial_seconds
        return size_curve(
            folds, lambda scores: self.verdict(self._in_order(scores)), candidate, most, self._engine, ends
        )

    def _held_out_rows(self, candidate: Candidate) -> list[HeldOutRows]:
        """Return the rows of each fold with a start from a candidate; what only trials need is freed."""
        starts = [Duals(fold.ridges.duals(candidate, self._fold_seconds)) for fold in self._folds]
        for fold in self._folds:
            fold.ridges.release()
        samples = weighted(self.sample, candidate)
        return [
            HeldOutRows(samples, fold.weights, fold.places, start)
            for fold, start in zip(self._folds, starts, strict=True)
        ]

    def scores_of_size(
        self, candidate: Candidate, size: Size
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return the scores of rows held out, by ridge models of a size, and the classes of these rows.

        Where all rows are at most `SCALED_ROWS`, and not cross-validated, further folds are held out.
        """
        rows = self._held_out_rows(candidate)
        if not self.cross_validates and self.n_rows <= SCALED_ROWS:
            others = cross_validated(self.sample, self._engine, _VALID_SEED)
            new = [f for f in others if not np.intersect1d(f.places, rows[0].places).size]
            rows += [
                HeldOutRows(rows[0].samples, fold.weights, fold.places) for fold in new[: SCALED_FOLDS - 1]
            ]
        scores = scores_of_size(rows, candidate, size, self._limits.max_features, self._engine)
        codes = self.sample.labels()[np.concatenate([fold.places for fold in rows])]
        return np.concatenate(scores), codes

    def attempt(self, candidate: Candidate, rival: Trial | None = None) -> Trial:
        """Train on the rows of the sample that are not held out, and judge on the others.

        Cross-validation ends after the first fold if a candidate promises no gain over its `rival`, another
        trial. Its figures are then those that it would have if it were as good as the rival on the others.
        """
        started = time.monotonic()
        if self.solves_by_duals(candidate):
            scores, n_used = self._dual_scores(candidate)
            return Trial.of(candidate, self._truth.judge(scores), n_used, time.monotonic() - started)
        if not self.cross_validates:
            scores, n_used = self._scored_folds(candidate, EVERY_FOLD)
        else:
            first, n_used = self._scored_folds(candidate, FIRST_FOLD)
            verdict = self._first_verdicts[candidate] = self._first_truth.judge(first)
            decides = len(self._folds[0].places) >= FEWEST_PROBED
            if rival is not None and decides and not self.solves_by_duals(rival.candidate):
                theirs = self._first_verdict(rival.candidate)
                if not _promises(theirs, verdict):
                    mixed = self._mixed(rival, theirs, verdict)
                    return Trial.of(candidate, mixed, n_used, time.monotonic() - started)
            others, n_others = self._scored_folds(candidate, OTHER_FOLDS)
            scores, n_used = self._in_order([first, others]), max(n_used, n_others)
        seconds = time.monotonic() - started
        if scores.size <= KEPT_ENTRIES:
            self._kept[candidate] = scores
        return Trial.of(candidate, self._truth.judge(scores), n_used, seconds)

    def _first_verdict(self, candidate: Candidate) -> Verdict:
        """Return the verdict on the first fold, also of a trial from before a kill."""
        if candidate not in self._first_verdicts:
            scores, _ = self._scored_folds(candidate, FIRST_FOLD)
            self._first_verdicts[candidate] = self._first_truth.judge(scores)
        return self._first_verdicts[candidate]

    def _mixed(self, rival: Trial, theirs: Verdict, first: Verdict) -> Verdict:
        """Return the verdict on a candidate that would be as good as its rival on all folds but the first."""
        share = len(self._folds[0].places) / self.n_held_out
        quality = rival.quality + share * (first.quality - theirs.quality)
        log_loss = rival.log_loss + share * (first.log_loss - theirs.log_loss)
        return first._replace(quality=quality, log_loss=max(log_loss, 0.0))

    @cached_property
    def _first_truth(self) -> Truth:
        return self._truth.of_rows(self._folds[0].places)

    def _scored_folds(self, candidate: Candidate, folds: slice) -> tuple[NDArray[np.float64], int]:
        """Return the scores of the rows of some folds, one fold after another, and the features used."""
        [scored] = self._scored(*self._linear(candidate), lambda model: [model], folds)
        return scored

    @property
    def _memory_of_trials(self) -> int:
        """Bytes for the training of a fold: the rows of the search are in memory besides."""
        memory = self._limits.memory
        return max(memory - self.sample.decoded_bytes, memory // 2)

    @property
    def _fold_seconds(self) -> float:
        """Seconds that the training of a fold may take."""
        return self.trial_seconds / len(self._folds)

    def _dual_scores(self, candidate: Candidate) -> tuple[NDArray[np.float64], int]:
        """Return the scores of the rows held out, and the number of features with weight."""
        scores, n_used = [], 0
        for fold in self._folds:
            duals = fold.ridges.train(candidate, self._fold_seconds)
            scores.append(duals.scores(fold.places))
            n_used = max(n_used, duals.n_used)
            if not self._keeps_problems:
                del duals
                fold.ridges.release()
        return self._in_order(scores), n_used

    def _in_order(self, scores: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the scores of all folds in the order of the rows that judge."""
        together = np.concatenate(scores)
        return together[np.argsort(self._places)] if self.cross_validates else together

    def judge(
        self,
        options: LearnerOptions,
        candidate: Candidate,
        versions: Versions,
        states: list[MemoryCheckpoint] | None = None,
        *,
        folds: slice = EVERY_FOLD,
    ) -> list[Trial]:
        """Return a trial, on the same rows, of each version of the models of another learner.

        Parameters
        ----------
        candidate : Candidate
            Candidate to record the trials as.
        versions : callable
            Returns the models to judge for a trained one: as many for each, in the same order.
        states : list of MemoryCheckpoint, optional
            States of each fold, from which training continues. An empty list is filled.
        folds : slice, optional
            Folds to hold out; by default all.
        """
        if states == []:
            states += [MemoryCheckpoint() for _ in self._folds]
        started = time.monotonic()
        scored = self._scored(options, self._stored, versions, folds, states)
        seconds = time.monotonic() - started
        truth, chosen = self._truth, self._folds[folds]
        if len(chosen) < len(self._folds):
            truth = truth.of_rows(np.concatenate([fold.places for fold in chosen]))
        return [Trial.of(candidate, truth.judge(scores), n_used, seconds) for scores, n_used in scored]

    def scores(self, candidate: Candidate) -> NDArray[np.float64]:
        """Return the scores of the rows held out, by models of a candidate that learn from the others."""
        if self.solves_by_duals(candidate):
            return self._dual_scores(candidate)[0]
        if candidate in self._kept:
            return self._kept[candidate]
        return self._scored_folds(candidate, EVERY_FOLD)[0]

    def scores_of(
        self, options: LearnerOptions, version: Callable[[Model], Model], states: list[MemoryCheckpoint]
    ) -> NDArray[np.float64]:
        """Return the scores of the rows held out by one version of another learner; see `judge`."""
        [(scores, _)] = self._scored(
            options, self._stored, lambda model: [version(model)], EVERY_FOLD, states
        )
        return scores

    def verdict(self, scores: NDArray[np.float64]) -> Verdict:
        """Judge scores of the rows held out, shape (n_held_out, n_classes)."""
        return self._truth.judge(scores)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Classes of the rows held out, where each has one."""
        assert self._truth.codes is not None
        return self._truth.codes

    def _linear(self, candidate: Candidate) -> tuple[SparseOptions, Weighting]:
        """Return the options of the learner for a candidate, and the weighting of the samples."""
        options = candidate.options(float(self._folds[0].weights.sum()), TRIAL_PASSES)
        return options, weighted(self.sample, candidate).weighting

    def _scored(
        self,
        options: LearnerOptions,
        weighting: Weighting,
        versions: Versions,
        folds: slice = EVERY_FOLD,
        states: Sequence[MemoryCheckpoint] | None = None,
    ) -> list[tuple[NDArray[np.float64], int]]:
        """Return the scores that versions of the models give to the rows held out, and their features.

        Training continues from the states of the folds, if there are any.
        """
        seconds = self._fold_seconds if isinstance(options, SparseOptions) else math.inf
        resources = Resources(self._engine, self._memory_of_trials)
        samples = self.sample.with_weighting(weighting)
        scores: list[list[NDArray[np.float64]]] = []
        n_used: list[list[int]] = []
        learner = learner_of(options)
        chosen = self._folds[folds]
        for fold, state in zip(chosen, states[folds] if states else [None] * len(chosen), strict=True):
            timed = replace(resources, ends=time.monotonic() + seconds)
            trained = learner.train(samples, timed, sample_weight=fold.learns, checkpoint=state)
            models = versions(trained.model)
            if self.cross_validates:
                held_out = take_rows(samples, fold.places, self._engine)
            else:
                held_out = self._valid.with_weighting(weighting)
            scores.append([model.dataset_scores(held_out) for model in models])
            n_used.append([len(model.used_features) for model in models])
        joined = np.concatenate if len(chosen) < len(self._folds) else self._in_order
        pairs = zip(zip(*scores, strict=True), zip(*n_used, strict=True), strict=True)
        return [(joined(parts), max(used)) for parts, used in pairs]

    @cached_property
    def _valid(self) -> Dataset:
        """The held-out rows as a dataset, which dual descent does not need."""
        return self._draw_valid()[0]

    def _draw_valid(self) -> tuple[Dataset, NDArray[np.int64]]:
        return draw_groups(self.sample, self._held_out, _VALID_SEED, self._engine)


def _promises(rival: Verdict, other: Verdict) -> bool:
    """Return whether another candidate may be better than its rival, by verdicts on the first fold."""
    return other.quality > rival.quality or other.log_loss < (1.0 - PROMISING) * rival.log_loss
