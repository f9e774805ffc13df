"""The learners: from options and a dataset to a model, for the command line and for classifiers alike."""

from bigmc.learners.base import Learner, Trained
from bigmc.learners.boosting import BoostingLearner
from bigmc.learners.minimax import MinimaxLearner
from bigmc.learners.sparse import SparseLearner
from bigmc.options.learners import LearnerOptions

#: Every learner by its name, which is also the kind of its models (see `bigmc.model.KINDS`).
LEARNERS: dict[str, type[Learner]] = {
    learner.kind: learner for learner in (SparseLearner, BoostingLearner, MinimaxLearner)
}


def learner_of(options: LearnerOptions) -> Learner:
    """Return the learner that options are for, the options checked.

    Raises
    ------
    BigmcError
        Naming the option that cannot be used and what may be given.
    """
    found = LEARNERS[options.learner](options)
    found.check()
    return found


__all__ = [
    "LEARNERS",
    "BoostingLearner",
    "Learner",
    "MinimaxLearner",
    "SparseLearner",
    "Trained",
    "learner_of",
]
