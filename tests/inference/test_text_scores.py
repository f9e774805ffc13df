"""Scores of texts straight from their n-grams are those that scikit-learn's counts and numpy give."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

import bigmc
from bigmc.inference.samples import SampleReader
from bigmc.inference.text_scores import score_batches
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.model.linear import LinearModel
from bigmc.model.rounding import multiples_of, steps_of, weights_of
from bigmc.store.weighting import Weighting

WORDS = ["red", "apple", "pear", "Äpfel", "rosé", "smell", "sweet", "a", "the", "naïve"]
N_CLASSES = 5


def texts_of(random, n):
    return [
        "",
        "the the the the",
        *(" ".join(random.choice(WORDS, size)) for size in random.integers(1, 40, n)),
    ]


def model_of(random, hasher, weighting):
    """Return a model with random weights, rounded, at three quarters of the features."""
    n = hasher.n_features
    features = np.flatnonzero(random.random(n) < 0.75)
    coef = random.normal(size=(len(features), N_CLASSES)).astype(np.float32)
    step = steps_of(np.abs(coef).max(axis=0))
    coef = weights_of(multiples_of(coef, step), step)
    scale = random.uniform(0.5, 2, n).astype(np.float32) if weighting.idf else None
    return LinearModel(
        "sparse",
        np.arange(N_CLASSES),
        n,
        weighting=weighting,
        column_scale=scale,
        feature_spec=FeatureSpec(text=("text",), hasher=hasher).to_dict(),
        features=features,
        coef=coef,
        intercept=random.normal(size=N_CLASSES),
        step=step,
        certificate={"lower": 0, "upper": 1, "gap": 1},
    )


def expected(model, hasher, texts):
    """Return the scores by dense arithmetic on the counts of scikit-learn, explicit zeros as entries."""
    theirs = HashingVectorizer(
        analyzer=hasher.analyzer, ngram_range=hasher.ngrams, n_features=hasher.n_features, norm=None
    ).transform(texts)
    if model.weighting.binary:
        theirs.data[:] = 1
    values = theirs.toarray()
    if model.column_scale is not None:
        values = values * model.column_scale
    if model.weighting.l2:
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        values = values / np.where(norms > 0, norms, 1)
    return values[:, model.features] @ model.coef.astype(np.float64) + model.intercept


@pytest.mark.parametrize(
    ("analyzer", "ngrams"), [("word", (1, 1)), ("word", (1, 2)), ("char_wb", (1, 4)), ("char", (2, 3))]
)
@pytest.mark.parametrize(
    "weighting", [Weighting(l2=True, idf=True), Weighting(binary=True, l2=True), Weighting()]
)
@pytest.mark.parametrize("hash_bits", [4, 16])
def test_scores_are_those_of_dense_arithmetic(analyzer, ngrams, weighting, hash_bits):
    random = np.random.default_rng(hash_bits)
    hasher = TextHasher(analyzer, ngrams, hash_bits)
    model = model_of(random, hasher, weighting)
    texts = texts_of(random, 60)
    found = bigmc.SparseClassifier.from_model(model).decision_function(texts)
    np.testing.assert_allclose(found, expected(model, hasher, texts), rtol=2e-6, atol=2e-6)


def test_long_documents_are_scored_between_short_ones():
    random = np.random.default_rng(1)
    hasher = TextHasher("char_wb", (1, 3), 12)
    model = model_of(random, hasher, Weighting(l2=True))
    long = " ".join(random.choice(WORDS, 9000))
    texts = ["red apple", long, "sweet", " ".join(random.choice(WORDS, 1500)), "", long + " end"]
    found = bigmc.SparseClassifier.from_model(model).decision_function(texts)
    np.testing.assert_allclose(found, expected(model, hasher, texts), rtol=2e-6, atol=2e-6)


def test_labels_are_those_of_rows_of_counts():
    random = np.random.default_rng(2)
    model = model_of(random, TextHasher("word", (1, 2), 10), Weighting(l2=True, idf=True))
    reader = SampleReader.of(model)
    texts = texts_of(random, 5000)  # more than a batch
    rows = [model.scores(rows) for rows in reader.batches(texts)]
    found = list(score_batches(model, reader, texts))
    assert [len(scores) for scores in found] == [len(scores) for scores in rows]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(rows), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        bigmc.SparseClassifier.from_model(model).predict(texts), np.concatenate(rows).argmax(axis=1)
    )


def test_a_missing_text_is_refused_by_its_place():
    random = np.random.default_rng(3)
    model = model_of(random, TextHasher("word", (1, 1), 10), Weighting(l2=True))
    with pytest.raises(bigmc.errors.DataError, match="sample 1"):
        bigmc.SparseClassifier.from_model(model).predict(["a text", None])


def test_scales_below_zero_are_used_as_they_are():
    random = np.random.default_rng(4)
    hasher = TextHasher("word", (1, 1), 8)
    weighting = Weighting(idf=True)
    model = model_of(random, hasher, weighting)
    model.column_scale[::3] *= -1
    texts = texts_of(random, 20)
    found = bigmc.SparseClassifier.from_model(model).decision_function(texts)
    np.testing.assert_allclose(found, expected(model, hasher, texts), rtol=2e-6, atol=2e-6)
