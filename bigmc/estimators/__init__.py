"""The scikit-learn face of the learners: arrays and datasets in, labels and scores out."""

from bigmc.estimators.sparse import SparseClassifier

__all__ = ["SparseClassifier"]
