"""Options that determine the result of a run of the boosted learner."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import BigmcError
from bigmc.solvers.loop import Fingerprint
from bigmc.store.chosen_columns import AnyColumns
from bigmc.store.dataset import Dataset

FAMILIES = ("auto", "stump", "ray")
LEARNERS = ("class", "shared")
EXPONENTIAL, LOG_LOSS = LOSSES = ("exponential", "log_loss")
#: Deepest trees, and those of dense columns unless another depth is asked for.
MAX_DEPTH, DEFAULT_DEPTH = 6, 4
#: Share of entries below which rays are used instead of stumps.
_SPARSE = 0.1
#: Options of when a run stops: a saved run may be resumed with others.
_WHEN_TO_END = ("n_rounds", "tol", "time_limit")


class CutKind(Enum):
    """Answers of a learner of one cut: +1 and -1 on its sides, or 1 on one side and 0 on the other."""

    STUMP = "stump"
    RAY = "ray"


def is_sparse(dataset: AnyColumns) -> bool:
    """Return whether so few values are stored that learners of one cut should be rays."""
    return dataset.nnz < _SPARSE * dataset.n_samples * dataset.n_features


@dataclass(frozen=True)
class BoostingOptions:
    """Parameters of column generation, as of `bigmc.MultiBoostClassifier`.

    All have values here, also those that the classifier chooses, such as C; the learner has checked each.
    `BigmcError` if those given do not go with the chosen depth. From a depth of 2 on, learners
    are grown greedily and nothing is certified: training then stops when the largest violation of a round's
    candidates is at most `tol`. Learners "shared" by all classes are those of MultiBoost (Shen and Hao, "A
    direct formulation for totally-corrective multi-class boosting", CVPR 2011), with which the paper
    compares; the problem and its optimum are the same. With label noise, the loss is nonconvex. `max_sweeps`
    is the paper's τ_max, of which 1 is the stage-wise variant, and a pool of 1 is its algorithm.

    If none of the trees of a round is worth adding, it searches twice as many columns, and so on until it has
    searched 1,000 or all, the first round all. With `best_cuts`, trees use only the columns of so many best
    roots of each class, before there is any learner. `draw` selects the columns drawn, together with the
    seed: models that are averaged differ in it. Samples are held out by a hash of their ids.
    """

    C: float
    n_rounds: int = 100
    max_depth: int = 1
    family: str = "auto"
    learners: str = "class"
    loss: str = EXPONENTIAL
    label_noise: float = 0.0
    pool: int = 40
    max_sweeps: int = 3
    learning_rate: float = 1.0
    inner_rounds: int = 30
    max_bins: int = 255
    column_share: float = 1.0
    best_cuts: int | None = None
    draw: int = 0
    min_frequency: float = 0.0
    tol: float = 1e-3
    validation_fraction: float = 0.0
    patience: int = 10
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.label_noise > 0.0 and (self.loss != LOG_LOSS or not self.grows_trees):
            cure = "give the loss log_loss, and a max_depth of 2 or more"
            raise BigmcError("label noise is for trees with the log loss", cure)
        chooses = self.column_share < 1.0 or self.min_frequency > 0.0 or self.best_cuts is not None
        if chooses and not self.grows_trees:
            raise BigmcError("learners of one cut look at all columns", "give a max_depth of 2 or more")

    @property
    def grows_trees(self) -> bool:
        """Whether learners have more than one level."""
        return self.max_depth > 1

    def cut_kind(self, dataset: AnyColumns) -> CutKind:
        """Return the kind of learners of one cut on this dataset."""
        ray = self.family == "ray" or (self.family == "auto" and is_sparse(dataset))
        return CutKind.RAY if ray and not self.grows_trees else CutKind.STUMP

    def frequent_columns(self, dataset: Dataset) -> NDArray[np.bool_] | None:
        """Return which columns trees may use; None for all."""
        if self.min_frequency == 0.0:
            return None
        return dataset.column_nnz() >= self.min_frequency * dataset.n_samples

    def drawn_columns(
        self, usable: NDArray[np.bool_], number: int, times: int = 1
    ) -> NDArray[np.bool_] | None:
        """Return which columns the trees of a round may use; None for all that are usable.

        The share is multiplied by `times`; the columns drawn with a smaller one are among those with a larger
        one.
        """
        if self.column_share == 1.0:
            return None
        places = np.flatnonzero(usable)
        n_drawn = min(math.ceil(times * self.column_share * len(places)), len(places))
        if n_drawn == len(places):
            return None
        generator = np.random.default_rng([self.seed, self.draw, number])
        drawn = np.zeros(len(usable), np.bool_)
        drawn[places[generator.permutation(len(places))[:n_drawn]]] = True
        return drawn

    def fingerprint(self) -> Fingerprint:
        """Return the options that determine the state after every round."""
        options = {name: value for name, value in asdict(self).items() if name not in _WHEN_TO_END}
        options["edges"] = "round numbers"  # a state saved when they were not is not continued
        if self.loss == EXPONENTIAL:  # as before there was a choice
            del options["loss"]
        if self.label_noise == 0.0:
            del options["label_noise"]
        if self.best_cuts is None:
            del options["best_cuts"]
        return options
