"""Weights of samples, put together shard by shard."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from bigmc.budget import MemoryLimitError
from bigmc.engine import Resources, ThreadEngine
from bigmc.errors import DataError
from bigmc.learners import learner_of
from bigmc.learners.weights import combined_weights
from bigmc.options.learners import BoostOptions, MinimaxOptions
from bigmc.store.dataset import Dataset

N, CLASSES = 200_000, np.array(["a", "b", "c"])
GENERATOR = np.random.default_rng(0)
CODES = GENERATOR.choice(3, N, p=[0.6, 0.3, 0.1])
X = scipy.sparse.csr_array((np.ones(N), (np.arange(N), CODES)), shape=(N, 4))


@pytest.fixture(scope="module")
def samples():
    return Dataset.from_arrays(X, CLASSES[CODES], shard_rows=10_000)


def test_without_weights_nothing_is_kept_for_a_sample(samples):
    combined_weights(None, None, samples)
    tracemalloc.start()
    assert combined_weights(None, None, samples) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * N  # a byte or two each: far less than the labels


def test_weights_of_samples_and_classes_are_multiplied(samples):
    given = GENERATOR.random(N)
    before = given.copy()
    by_name = combined_weights(given, {"a": 2.0, "c": 0.5}, samples)
    np.testing.assert_array_equal(by_name, given * np.array([2.0, 1.0, 0.5])[CODES])
    sums = np.bincount(CODES, given)
    balanced = combined_weights(given, "balanced", samples)
    np.testing.assert_allclose(balanced, given * (given.sum() / 3 / sums)[CODES], rtol=1e-12)
    np.testing.assert_array_equal(combined_weights(3.0, None, samples), np.full(N, 3.0))
    np.testing.assert_array_equal(given, before)


def test_what_cannot_be_learnt_from_is_refused(samples):
    one_class = np.where(CODES == 1, 1.0, 0.0)
    for weights, reason in (
        (np.ones(3), "has the shape"),
        (-np.ones(N), "negative"),
        (np.zeros(N), "every sample_weight is zero"),
        (one_class, r"one class \(b\)"),
    ):
        with pytest.raises(DataError, match=reason):
            combined_weights(weights, None, samples)
    with pytest.raises(DataError, match="no label"):
        combined_weights(None, None, Dataset.from_arrays(X, None, shard_rows=10_000))


def test_sets_need_a_sample_with_a_label_that_lacks_another():
    sets = np.array([[1, 1], [0, 0], [1, 0]])
    data = Dataset.from_arrays(np.eye(3), sets, shard_rows=1)
    assert combined_weights(None, None, data) is None
    with pytest.raises(DataError, match="nothing to learn"):
        combined_weights([1.0, 1.0, 0.0], None, data)
    with pytest.raises(DataError, match="class_weight"):
        combined_weights(None, "balanced", data)


def test_classes_are_counted_shard_by_shard(samples):
    assert samples.class_counts().tolist() == np.bincount(CODES).tolist()
    sets = GENERATOR.integers(0, 2, (50, 4))
    assert (
        Dataset.from_arrays(np.eye(50), sets, shard_rows=7).class_counts().tolist()
        == sets.sum(axis=0).tolist()
    )
    assert Dataset.from_arrays(np.eye(3), None).class_counts().tolist() == []


@pytest.mark.parametrize("options", [BoostOptions(), MinimaxOptions()])
def test_a_limit_too_small_is_refused_before_all_labels_are_read(options, samples, monkeypatch):
    def labels(dataset):
        raise AssertionError("the labels of all samples were read")

    monkeypatch.setattr(Dataset, "labels", labels)
    with pytest.raises(MemoryLimitError, match="training"):
        learner_of(options).train(samples, Resources(ThreadEngine(1), 1 << 20))
