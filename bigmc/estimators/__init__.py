"""The scikit-learn face of the learners: arrays and datasets in, labels and scores out."""

from bigmc.estimators.base import Classifier
from bigmc.estimators.boosting import MultiBoostClassifier
from bigmc.estimators.minimax import MinimaxRiskClassifier
from bigmc.estimators.sparse import SparseClassifier

#: The classifier of each learner by the learner's name (see `bigmc.learners.LEARNERS`).
CLASSIFIERS: dict[str, type[Classifier]] = {
    face.learner_type.kind: face for face in (SparseClassifier, MultiBoostClassifier, MinimaxRiskClassifier)
}

__all__ = ["CLASSIFIERS", "Classifier", "MinimaxRiskClassifier", "MultiBoostClassifier", "SparseClassifier"]
