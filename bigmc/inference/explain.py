"""Explain a prediction: the contribution of each word of a sample to the score of each class."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.errors import DataError
from bigmc.inference.samples import SampleReader, by_name
from bigmc.inference.text_scores import is_one_text
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher, features_of, hash_names, hash_strings
from bigmc.model import LinearModel, Model, SumModel
from bigmc.options.declare import check_count
from bigmc.printable import listed
from bigmc.store.shards.csr import Rows

_SPACES, _WORD = re.compile(r"\s\s+"), re.compile(r"\S+")
LEFT_OUT_TOGETHER = 256
"""Copies of a sample, each without one feature, that are scored together."""


class Contribution(NamedTuple):
    """What one word, or other named feature, adds to the score of a class.

    Where a model looks at characters, it is what all of them in a word add, or, of those across words, in
    these words.
    """

    word: str
    value: float


@dataclass(frozen=True)
class ClassExplanation:
    """The score of one class and where it comes from: words by falling absolute contribution."""

    label: Any
    score: float
    words: tuple[Contribution, ...]
    probability: float | None = None


@dataclass(frozen=True)
class Explanation:
    """Which words of a sample speak for which class.

    Attributes
    ----------
    label : object
        The class with the largest score.
    classes : tuple of ClassExplanation
        By decreasing score.
    """

    label: Any
    classes: tuple[ClassExplanation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON data, with ``probability`` if the model has it."""
        classes = []
        for entry in self.classes:
            known = {} if entry.probability is None else {"probability": entry.probability}
            words = [contribution._asdict() for contribution in entry.words]
            classes.append({"label": entry.label, "score": entry.score, **known, "words": words})
        return {"label": self.label, "classes": classes}

    def __str__(self) -> str:
        lines = []
        for entry in self.classes:
            words = "  ".join(f"{word} {value:+.3f}" for word, value in entry.words)
            lines.append(f"{entry.label!s:<20} {entry.score:+.3f}  {words}")
        return "\n".join(lines)


def explain(model: Model, reader: SampleReader, sample: str | Mapping[str, Any], top: int) -> Explanation:
    """Return the contribution of every word of a sample to every class.

    For a linear model it is the word's weighted value times its weights: contributions and intercept add
    up to the score. For trees it is the score minus that of the sample without the word. Words in the
    same feature share its contribution in proportion to their counts. `DataError` if `top` is no
    count, or the model was not trained on named columns, or on Fourier features of them.
    """
    check_count("top", top)
    if not reader.spec.columns:
        said = "the model was trained on arrays, whose features have no words"
        raise DataError(said, "bigmc.inspect lists the strongest features of each class")
    if reader.spec.map is not None and reader.spec.map.fourier:
        raise DataError(
            "the features of the model are Fourier features of all columns, so no column has a share",
            "compare predictions of changed rows",
        )
    rows = next(iter(reader.batches([sample])))
    scores = model.scores(rows)
    parts = _parts(model, rows)
    words, contributions = _by_word(_occurrences(reader.spec, sample), rows.indices, parts)
    probabilities = model.probabilities(scores)[0] if model.has_probabilities else None
    classes = []
    for c in np.argsort(-scores[0], kind="stable").tolist():
        order = np.argsort(-np.abs(contributions[:, c]), kind="stable")[:top]
        strongest = tuple(
            Contribution(words[i], float(contributions[i, c])) for i in order if contributions[i, c] != 0
        )
        probability = None if probabilities is None else float(probabilities[c])
        label = model.classes[c].item()
        classes.append(ClassExplanation(label, float(scores[0, c]), strongest, probability))
    return Explanation(classes[0].label, tuple(classes))


def parsed(sample: str | Mapping[str, Any], spec: FeatureSpec) -> str | Mapping[str, Any]:
    """Return a sample; for a model of several columns, parse a text as a JSON object or raise `DataError`."""
    if not isinstance(sample, str) or is_one_text(spec) or not spec.columns:
        return sample
    cure = f"give a JSON object with the columns {listed(spec.columns)}"
    try:
        row = json.loads(sample)
    except ValueError:
        raise DataError("the sample is a text, but the model was trained on several columns", cure) from None
    if not isinstance(row, dict):
        raise DataError("the sample is JSON but not an object", cure)
    return row


def _by_word(
    occurrences: Counter[tuple[str, int]], features: NDArray[np.int32], parts: NDArray[np.float64]
) -> tuple[list[str], NDArray[np.float64]]:
    """Return the words of a sample and their contributions to every class, shape (n_words, n_classes).

    `occurrences` counts pairs of word and feature; `features` are the non-zero features of the sample,
    and `parts` their contributions, of shape (n_entries, n_classes).
    """
    pairs = list(occurrences)
    counts = np.array([occurrences[pair] for pair in pairs], np.float64)
    occurring = np.array([feature for _, feature in pairs], np.int64)
    stored = np.isin(occurring, features)
    names = [word for (word, _), is_stored in zip(pairs, stored, strict=True) if is_stored]
    places, counts = np.searchsorted(features, occurring[stored]), counts[stored]
    share = counts / np.bincount(places, counts, minlength=len(features))[places]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    contributions = np.zeros((len(number), parts.shape[1]))
    np.add.at(contributions, [number[name] for name in names], parts[places] * share[:, None])
    return list(number), contributions


def _parts(model: Model, rows: Rows) -> NDArray[np.float64]:
    """Return the contributions of the features of a sample to the scores, shape (n_entries, n_classes)."""
    if isinstance(model, SumModel):
        own = zip(model.parts, model.part_weights.tolist(), strict=True)
        total: NDArray[np.float64] = sum(weight * _parts(part, rows) for part, weight in own)
        return total
    return _linear_parts(model, rows) if isinstance(model, LinearModel) else _differences(model, rows)


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
        with np.errstate(over="ignore"):  # infinite, as the score is
            parts[used] = values[used, None] * model.coef[places[used]]
    return parts


def _differences(model: Model, rows: Rows) -> NDArray[np.float64]:
    """Return the scores of a sample minus those without each feature, shape (n_entries, n_classes)."""
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


def _occurrences(spec: FeatureSpec, sample: str | Mapping[str, Any]) -> Counter[tuple[str, int]]:
    """Return the counts of words, or other named features, of a sample in each feature."""
    row = {spec.text[0]: sample} if isinstance(sample, str) else by_name(sample, spec.columns)
    missing = (name for name, value in row.items() if value is None or _is_nan(value))
    row = {**row, **dict.fromkeys(missing, "")}
    occurrences: Counter[tuple[str, int]] = Counter()
    n_hashed = 0
    if spec.hasher is not None:
        n_hashed = spec.hasher.n_features
        for column in spec.text:
            occurrences.update(_text_features(spec.hasher, column, str(row[column])))
        names = [*(f"{column}={row[column]}" for column in spec.categorical), *spec.numeric]
        indices = hash_names(names, spec.hasher.hash_bits)[0].tolist()
        occurrences.update(zip(names, indices, strict=True))
    occurrences.update((name, n_hashed + i) for i, name in enumerate(spec.own_names))
    return occurrences


def _is_nan(value: Any) -> bool:
    return np.ndim(value) == 0 and bool(value != value)


def _text_features(hasher: TextHasher, column: str, text: str) -> list[tuple[str, int]]:
    """Return pairs of a word, as :func:`_ngrams` shows it, and the feature of its n-gram."""
    pairs = list(_ngrams(hasher, text))
    ngrams = pa.array([ngram for _, ngram in pairs], pa.large_string())
    indices, _ = features_of(hash_strings(ngrams) ^ hasher.mark_of(column), hasher.hash_bits)
    prefix = f"{column}=" if hasher.by_column else ""
    return [(prefix + word, index) for (word, _), index in zip(pairs, indices.tolist(), strict=True)]


def _ngrams(hasher: TextHasher, text: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of display text and n-gram: words as they are, characters as the words they are of."""
    analyzer = HashingVectorizer(
        analyzer=hasher.analyzer, ngram_range=hasher.ngrams, lowercase=hasher.lowercase
    ).build_analyzer()
    if hasher.analyzer == "word":
        yield from ((ngram, ngram) for ngram in analyzer(text))
        return
    text = text.lower() if hasher.lowercase else text
    if hasher.analyzer == "char":
        yield from _across_words(_SPACES.sub(" ", text), *hasher.ngrams)
        return
    for word in text.split():
        yield from ((word, ngram) for ngram in analyzer(word))


def _across_words(text: str, shortest: int, longest: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of the words that an n-gram of characters has a part of, and the n-gram.

    An n-gram of white space alone is shown as it is.
    """
    words = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for n in range(shortest, longest + 1):
        for lo in range(len(text) - n + 1):
            ngram = text[lo : lo + n]
            touched = words[bisect_right(ends, lo) : bisect_left(starts, lo + n)]
            yield " ".join(text[start:end] for start, end in touched) or ngram, ngram
