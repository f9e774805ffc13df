"""The scikit-learn face of the learners: arrays and datasets in, labels and scores out."""

from bigmc.estimators.sparse import SparseClassifier, load_estimator

__all__ = ["SparseClassifier", "load_estimator"]
