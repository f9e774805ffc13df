"""Texts in memory: scikit-learn's hashing vectoriser, faster, and a classifier that needs no choices."""

from bigmc.text.classifier import TextClassifier
from bigmc.text.vectorizer import HashingVectorizer

__all__ = ["HashingVectorizer", "TextClassifier"]
