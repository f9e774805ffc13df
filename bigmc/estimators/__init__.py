"""The scikit-learn face of the learners: arrays and datasets in, labels and scores out."""

from bigmc.estimators.base import Classifier
from bigmc.estimators.boosting import MultiBoostClassifier
from bigmc.estimators.minimax import MinimaxRiskClassifier
from bigmc.estimators.sparse import SparseClassifier

#: Every learner by its name, which is also the kind of its models (see `bigmc.model.KINDS`).
LEARNERS: dict[str, type[Classifier]] = {
    learner.kind: learner for learner in (SparseClassifier, MultiBoostClassifier, MinimaxRiskClassifier)
}

__all__ = ["LEARNERS", "Classifier", "MinimaxRiskClassifier", "MultiBoostClassifier", "SparseClassifier"]
