"""The vectoriser is scikit-learn's to the bit, whichever of the two does the work."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer as Peer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from bigmc import HashingVectorizer
from bigmc.errors import DataError

TEXTS = [
    "The quick brown fox. The lazy dog!", "", "Straße ÄPFEL İstanbul ΣΊΣΥΦΟΣ", "a b cc 12 3_4 don't",
    "the the the", "日本語 テスト", "x" * 300, "tab\tand\nline\x00nul",
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ngram_range": (1, 3), "n_features": 2**10},
        {"analyzer": "char", "ngram_range": (2, 4), "n_features": 2**12},
        {"analyzer": "char_wb", "ngram_range": (1, 5), "lowercase": False},
        {"norm": None, "dtype": np.int32},
        {"norm": "l1", "dtype": np.float32, "binary": True},
        {"alternate_sign": False},
        {"n_features": 1000},
        {"stop_words": "english"},
        {"strip_accents": "unicode"},
        {"token_pattern": r"\w"},
        {"preprocessor": str.upper},
        {"tokenizer": str.split, "token_pattern": None},
        {"norm": "max"} | {"norm": None},
    ],
)
@pytest.mark.parametrize("form", [list, np.array, iter])
def test_every_bit_is_scikit_learns(options, form):
    mine, peer = HashingVectorizer(**options), Peer(**options)
    found, wanted = mine.fit_transform(form(TEXTS)), peer.fit_transform(list(TEXTS))
    assert type(found) is type(wanted)
    assert found.shape == wanted.shape
    for name in ("data", "indices", "indptr"):
        ours, theirs = getattr(found, name), getattr(wanted, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_bytes_are_decoded_as_scikit_learn_does():
    texts = [b"caf\xc3\xa9 noir", b"th\xc3\xa9"]
    assert (HashingVectorizer().transform(texts) != Peer().transform(texts)).nnz == 0
    with pytest.raises(UnicodeDecodeError):
        HashingVectorizer().transform([b"\xff"])


@pytest.mark.parametrize("samples", ["one text", [None], [1, 2], []])
def test_what_scikit_learn_refuses_is_refused_alike(samples):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 (whatever it is)
        Peer().transform(samples)
    with pytest.raises(type(theirs.value)):
        HashingVectorizer().transform(samples)


def test_names_of_features():
    mine = HashingVectorizer(n_features=2**16, keep_names=True, norm=None)
    matrix = mine.fit_transform(["red apple", "red rose"])
    names = mine.get_feature_names_out()
    assert len(names) == matrix.shape[1]
    assert {names[j] for j in matrix.indices} == {"red", "apple", "rose"}
    assert not hasattr(HashingVectorizer(), "get_feature_names_out")
    with pytest.raises(DataError, match="keep_names"):
        HashingVectorizer(stop_words="english", keep_names=True).fit(["a"])


def test_it_works_in_a_pipeline_and_is_cloned():
    texts, labels = ["good film", "bad film", "good plot", "bad plot"], [1, 0, 1, 0]
    pipeline = make_pipeline(HashingVectorizer(n_features=2**12), LinearSVC())
    assert clone(pipeline).fit(texts, labels).predict(["good", "bad"]).tolist() == [1, 0]
    assert set(HashingVectorizer().get_params()) == set(Peer().get_params()) | {"keep_names"}


@parametrize_with_checks([HashingVectorizer()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
