"""Texts in memory: a faster HashingVectorizer, and a classifier that searches for its settings."""

from bigmc.text.classifier import TextClassifier
from bigmc.text.vectorizer import HashingVectorizer

__all__ = ["HashingVectorizer", "TextClassifier"]
