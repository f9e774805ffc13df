"""scikit-learn estimators of the learners."""

from bigmc.estimators.base import Classifier
from bigmc.estimators.boosting import MultiBoostClassifier
from bigmc.estimators.minimax import MinimaxRiskClassifier
from bigmc.estimators.sparse import SparseClassifier
from bigmc.estimators.summed import SumClassifier
from bigmc.model import Model, SumModel

#: The classifier of each learner by the learner's name (see `bigmc.learners.LEARNERS`).
CLASSIFIERS: dict[str, type[Classifier]] = {
    face.learner_type.kind: face for face in (SparseClassifier, MultiBoostClassifier, MinimaxRiskClassifier)
}


def classifier_of(model: Model) -> Classifier:
    """Return the fitted classifier around a model."""
    face = SumClassifier if isinstance(model, SumModel) else CLASSIFIERS[model.kind]
    return face.from_model(model)


__all__ = [
    "CLASSIFIERS",
    "Classifier",
    "MinimaxRiskClassifier",
    "MultiBoostClassifier",
    "SparseClassifier",
    "SumClassifier",
    "classifier_of",
]
