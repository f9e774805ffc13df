"""The learners: train a model from options and a dataset, for commands and classifiers."""

from pkgutil import resolve_name

from bigmc.learners.base import Learner, Trained
from bigmc.options.learners import LearnerOptions

#: Class of every learner by its name, which is also the kind of its models (see `bigmc.model.KINDS`). Only
#: the requested one is imported: each has a solver of its own, and one imports scipy and HiGHS.
LEARNERS: dict[str, str] = {
    "sparse": "bigmc.learners.sparse:SparseLearner",
    "boost": "bigmc.learners.boosting:BoostingLearner",
    "mrc": "bigmc.learners.minimax:MinimaxLearner",
}


def learner_of(options: LearnerOptions) -> Learner:
    """Return the learner for some options, after checking them; `BigmcError` names an invalid one."""
    learner: Learner = resolve_name(LEARNERS[options.learner])(options)
    learner.check()
    return learner


__all__ = ["LEARNERS", "Learner", "Trained", "learner_of"]
