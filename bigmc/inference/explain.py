"""Why a model answers as it does: what each word of one sample adds to the score of each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.errors import DataError
from bigmc.inference.samples import SampleReader
from bigmc.ingestion.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher, hash_names
from bigmc.model import LinearModel, Model
from bigmc.store.csr import Rows

LEFT_OUT_TOGETHER = 256
"""Copies of a sample, each without one feature, that are scored together."""


class Contribution(NamedTuple):
    """What one word, or other named feature, adds to the score of a class.

    Attributes
    ----------
    word : str
    value : float
    """

    word: str
    value: float


@dataclass(frozen=True)
class ClassExplanation:
    """The score of one class and where it comes from.

    Attributes
    ----------
    label : object
    score : float
    words : tuple of Contribution
        By falling absolute value.
    """

    label: Any
    score: float
    words: tuple[Contribution, ...]


@dataclass(frozen=True)
class Explanation:
    """Which words of a sample speak for which class.

    Attributes
    ----------
    label : object
        The class with the largest score.
    classes : tuple of ClassExplanation
        By falling score.
    """

    label: Any
    classes: tuple[ClassExplanation, ...]

    def __str__(self) -> str:
        lines = []
        for entry in self.classes:
            words = "  ".join(f"{word} {value:+.3f}" for word, value in entry.words)
            lines.append(f"{entry.label!s:<20} {entry.score:+.3f}  {words}")
        return "\n".join(lines)


def explain(model: Model, reader: SampleReader, sample: str | Mapping[str, Any], top: int) -> Explanation:
    """Return the contribution of every word of a sample to every class.

    For a linear model it is the product of the word's weighted value with its weights: contributions and
    intercept add up to the score. For trees it is the score less that of the sample without the word. Words
    that are hashed into one feature share its contribution.

    Raises
    ------
    DataError
        If the model was not trained on columns of named values.
    """
    if not reader.spec.columns:
        raise DataError("the model was trained on arrays, whose features have no words", "look at coef_")
    rows = next(iter(reader.batches([sample])))
    words, places = _words(reader.spec, sample, rows.indices)
    scores = model.scores(rows)[0]
    parts = _linear_parts(model, rows) if isinstance(model, LinearModel) else _differences(model, rows)
    shared = np.bincount(places, minlength=len(rows.indices))
    contributions = parts[places] / shared[places, None]
    classes = []
    for c in np.argsort(-scores, kind="stable").tolist():
        order = np.argsort(-np.abs(contributions[:, c]), kind="stable")[:top]
        strongest = tuple(
            Contribution(words[i], float(contributions[i, c])) for i in order if contributions[i, c] != 0
        )
        classes.append(ClassExplanation(model.classes[c].item(), float(scores[c]), strongest))
    return Explanation(classes[0].label, tuple(classes))


def _linear_parts(model: LinearModel, rows: Rows) -> NDArray[np.float64]:
    """Return the product of each feature of a sample with its weights, shape (n_entries, n_classes)."""
    values = np.ones(len(rows.data)) if model.weighting.binary else np.asarray(rows.data, np.float64)
    if model.column_scale is not None:
        values = values * model.column_scale[rows.indices]
    if model.weighting.l2:
        values = values / max(float(np.linalg.norm(values)), np.finfo(np.float64).tiny)
    places = np.minimum(np.searchsorted(model.features, rows.indices), max(len(model.features) - 1, 0))
    parts = np.zeros((len(values), model.n_classes))
    if len(model.features):
        used = model.features[places] == rows.indices
        parts[used] = values[used, None] * model.coef[places[used]]
    return parts


def _differences(model: Model, rows: Rows) -> NDArray[np.float64]:
    """Return the scores of a sample less those without each feature, shape (n_entries, n_classes)."""
    n = len(rows.indices)
    parts = np.zeros((n, model.n_classes))
    scores = model.scores(rows)[0]
    for lo in range(0, n, LEFT_OUT_TOGETHER):
        out = np.arange(lo, min(lo + LEFT_OUT_TOGETHER, n))
        kept = np.arange(n) != out[:, None]
        indptr = np.arange(len(out) + 1, dtype=np.int64) * (n - 1)
        indices, data = (np.tile(values, (len(out), 1))[kept] for values in (rows.indices, rows.data))
        parts[out] = scores - model.scores(Rows(indptr, indices, data, rows.n_features))
    return parts


def _words(
    spec: FeatureSpec, sample: str | Mapping[str, Any], features: NDArray[np.int32]
) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of a sample's features and the place of each one's feature in `features`."""
    row = {spec.text[0]: sample} if isinstance(sample, str) else sample
    names: list[str] = []
    n_hashed = 0
    if spec.hasher is not None:
        for column in spec.text:
            names += Counter(_ngrams(spec.hasher, row[column]))
        names += [f"{column}={row[column]}" for column in spec.categorical]
        names += spec.numeric
        n_hashed = spec.hasher.n_features
        indices = hash_names(names, spec.hasher.hash_bits)[0].astype(np.int64)
    else:
        indices = np.empty(0, np.int64)
    names += spec.own_names
    indices = np.concatenate([indices, n_hashed + np.arange(len(spec.own_names))])
    stored = np.isin(indices, features)  # zeros are not
    places = np.searchsorted(features, indices[stored])
    return [name for name, here in zip(names, stored, strict=True) if here], places


def _ngrams(hasher: TextHasher, text: str) -> list[str]:
    analyzer = HashingVectorizer(
        analyzer=hasher.analyzer, ngram_range=hasher.ngrams, lowercase=hasher.lowercase
    ).build_analyzer()
    found: list[str] = analyzer(text)
    return found
