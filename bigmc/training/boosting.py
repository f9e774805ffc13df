"""What boosting is to be like on a table: how deep its trees, how close its fit, how many rounds.

Trees of four levels need many rows, or little noise: on tables of some thousand customers those of two
levels err less, and every further round adds errors. The models of all rounds are versions of one, so that
their number costs little more than scoring the rows held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from bigmc.model import BoostedModel, Model
from bigmc.options.learners import BoostOptions
from bigmc.solvers.boosting import is_sparse
from bigmc.store.dataset import Dataset
from bigmc.store.work_file import read_work_file, write_work_file
from bigmc.training.search import Search
from bigmc.training.trials import Candidate, Trial

DEPTHS = (4, 2)
"""Levels of the trees that are tried; of equal ones the first."""
C, LARGER_C = 1e5, 1e7
"""Strength of the loss, and the one that is tried too where no round was too many."""
ROUNDS, MORE_ROUNDS = (6, 12, 25), (50, 100)
"""Rounds that are tried; more of them where the last were the best."""


@dataclass(frozen=True)
class Boosting:
    """Settings of boosting, and what they reach.

    Attributes
    ----------
    max_depth : int
    C : float
    n_rounds : int
    trial : Trial
        On the rows held out.
    """

    max_depth: int
    C: float
    n_rounds: int
    trial: Trial

    @property
    def options(self) -> BoostOptions:
        """What the learner is asked for."""
        return BoostOptions(max_depth=self.max_depth, C=self.C, n_rounds=self.n_rounds)


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
    best = _better(search, [_best_rounds(search, folder, depth, C, ROUNDS) for depth in _depths(dataset)])
    if best.n_rounds < ROUNDS[-1]:
        return best
    if not search.cross_validates:  # few rows are never fitted too loosely
        best = _better(search, [best, _best_rounds(search, folder, best.max_depth, LARGER_C, ROUNDS)])
    more = _best_rounds(search, folder, best.max_depth, best.C, MORE_ROUNDS)
    return more if more.trial.log_loss < best.trial.log_loss else best


def _depths(dataset: Dataset) -> Sequence[int]:
    """Return the depths to try: of a wide matrix with few values stored, cuts alone are affordable."""
    return (1,) if is_sparse(dataset) and not dataset.features.get("one_hot") else DEPTHS


def _best_rounds(search: Search, folder: Path, depth: int, C: float, rounds: Sequence[int]) -> Boosting:
    """Return the number of rounds with the least log loss, by which few rows tell more than by errors."""
    file = folder / f"boosting-{depth}-{C:g}-{rounds[-1]}.json"
    if file.exists():
        trials = [Trial.from_dict(fields) for fields in read_work_file(file, folder)]
    else:
        options = BoostOptions(max_depth=depth, C=C, n_rounds=rounds[-1])
        entered = Candidate(None, "boosting", 1.0 / C)
        trials = search.judge(options, entered, lambda model: _stages(model, rounds))
        write_work_file(file, [asdict(trial) for trial in trials])
    number, trial = min(zip(rounds, trials, strict=True), key=lambda found: found[1].log_loss)
    return Boosting(depth, C, number, trial)


def _stages(model: Model, rounds: Sequence[int]) -> list[Model]:
    boosted = cast(BoostedModel, model)
    return [replace(boosted, stage=min(n, boosted.n_stages - 1)) for n in rounds]


def _better(search: Search, settings: Sequence[Boosting]) -> Boosting:
    best = settings[0]
    for other in settings[1:]:
        best = other if search.better(best.trial, other.trial) is other.trial else best
    return best
