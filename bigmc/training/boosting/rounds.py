"""Rounds of boosting: the quality of one sequence of models after more and more of them, on held-out rows.

One training gives the models of all rounds, so comparing them costs little more than scoring the rows.
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
from bigmc.solvers.boosting import LOG_LOSS
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.store.files.work_file import made_once
from bigmc.training.search.folds import FOLDS
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Candidate, Trial
from bigmc.training.search.validation import EVERY_FOLD, FIRST_FOLD

ROUNDS, MORE_ROUNDS = (6, 12, 25), (50, 100, 200)
"""Numbers of rounds to try; if the last is the best, further ones while they gain."""
COLUMN_SHARE = 0.5
"""Usual share of the columns in a round, where models are averaged."""
LEAST_NOISE = 0.05
"""Share of labels drawn at random, by the calibration of a trial, from which it becomes part of the loss; and
difference from the share in the loss from which it is tried with the new one."""
WORTH_MORE = 0.01
"""Relative decrease of the log loss that makes twice the rounds worthwhile; cross-validated rows are first
tested on one fold."""
TOO_LONG = 2.0
"""Ratio of the time of a fold's training to its share of the time that is left above which no other fold is
trained: a single round on many columns or classes may take longer than all folds should."""


@dataclass(frozen=True)
class Boosting:
    """Settings of boosting, and their quality.

    Attributes
    ----------
    options : BoostOptions
        Options of the learner.
    trial : Trial
        Result on the held-out rows.
    ladder : Ladder
        The sequence of rounds it belongs to.
    """

    options: BoostOptions
    trial: Trial
    ladder: Ladder = field(compare=False, repr=False)

    def scores(self) -> NDArray[np.float64]:
        """Return the scores of the held-out rows, from models trained on the others."""
        return self.ladder.scores(self.n_rounds)

    @property
    def n_rounds(self) -> int:
        """Rounds."""
        return self.options.n_rounds


class TakesTooLong(Exception):
    """A training on many rows or columns takes far longer than there is time."""


class Ladder:
    """Increasing numbers of rounds; later models continue earlier ones.

    Parameters
    ----------
    search : Search
        The search with the training and held-out rows.
    folder : Path
        Folder for finished trials, which a resumed run does not repeat.
    options : BoostOptions
        Options of the learner, whatever their number of rounds; `max_depth` is given.
    """

    def __init__(self, search: Search, folder: Path, options: BoostOptions) -> None:
        self.options = options
        self._search, self._folder = search, folder
        self._states: list[MemoryCheckpoint] = []

    def with_changes(self, **changes: str | float | None) -> Ladder:
        """Return the ladder of other options."""
        return Ladder(self._search, self._folder, replace(self.options, **changes))  # type: ignore[arg-type]

    def with_noise(self, **changes: int) -> Ladder:
        """Return the ladder with the log loss and the label noise of the best of the first rounds."""
        noise = self.label_noise if changes.get("max_depth", self.depth) > 1 else 0.0
        return self.with_changes(loss=LOG_LOSS, label_noise=noise, **changes)

    @property
    def depth(self) -> int:
        """Depth of the trees."""
        return cast(int, self.options.max_depth)

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

    def better(self, other: Ladder) -> Ladder:
        """Return the better of two by their first rounds."""
        one, two = self.first.trial, other.first.trial
        return other if self._search.better(one, two) is two else self

    def or_better(self, other: Ladder | None, rounds: Sequence[int]) -> Ladder:
        """Return the better of two; of cross-validated rows, one fold is asked first, after some rounds."""
        if other is None or not other.may_try(ROUNDS[:2]):
            return self
        if self.cross_validates and other.probe(rounds) >= self.probe(self.first_rounds):
            return self
        return self.better(other)

    def unless_behind(self, other: Ladder | None) -> Ladder | None:
        """Return another ladder, of options that fit rows closer, unless it is behind after few rounds.

        Such options are ahead early, if ever. Cross-validated rows have a cheaper test, `or_better`.
        """
        if other is None or self.cross_validates or not other.may_try(ROUNDS[:2]):
            return other
        ahead = other._started[-1].trial.log_loss < self._started[-1].trial.log_loss
        return other if ahead else None

    def probe(self, rounds: Sequence[int]) -> float:
        """Return the least log loss of some numbers of rounds on the rows of the first fold."""
        return min(tried.trial.log_loss for tried in self._tried(rounds, FIRST_FOLD))

    @property
    def glimpse(self) -> Boosting:
        """The fewest rounds."""
        return self._tried(ROUNDS[:1])[0]

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
        options = replace(self.options, n_rounds=n_rounds)
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
        own = self.options
        parts = [str(own.max_depth), f"{float(own.C):g}", *map(str, rounds)]
        if own.loss != BoostOptions().loss:
            parts.append(own.loss)
        if own.label_noise:
            parts.append(f"noise-{own.label_noise:g}")
        if own.learning_rate is not None:
            parts.append(f"rate-{own.learning_rate:g}")
        if own.n_models > 1:  # a fit that was started before models were averaged can resume
            parts.append(f"mean-{own.n_models}")
        if own.column_share < (1.0 if own.n_models == 1 else COLUMN_SHARE):
            parts.append(f"share-{own.column_share:.4g}")
        if own.best_cuts is not None:
            parts.append(f"cuts-{own.best_cuts}")
        name = f"boosting-{'-'.join(parts)}"
        return self._folder / f"{name}{'' if folds == EVERY_FOLD else '-probe'}.json"

    def _tried(self, rounds: Sequence[int], folds: slice = EVERY_FOLD) -> list[Boosting]:
        judged = made_once(self._file(rounds, folds), lambda: self._judged(rounds, folds), self._folder)
        asked = [replace(self.options, n_rounds=n) for n in rounds]
        trials = [Trial.from_dict(fields) for fields in judged]
        return [Boosting(*pair, self) for pair in zip(asked, trials, strict=True)]

    def _judged(self, rounds: Sequence[int], folds: slice) -> list[Mapping[str, Any]]:
        """Return the fields of the trials of some numbers of rounds."""
        n_folds = len(range(*folds.indices(FOLDS))) if self.cross_validates else 1
        stages = _StagesInTime(rounds, n_folds, self._search.trial_seconds / n_folds)
        options = replace(self.options, n_rounds=rounds[-1], time_limit=stages.time_limit)
        entered = Candidate(None, "boosting", 1.0 / float(options.C))
        trials = self._search.validation.judge(options, entered, stages, self._states, folds=folds)
        return [trial.to_dict() for trial in trials]


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
