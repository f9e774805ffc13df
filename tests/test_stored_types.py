"""Small tables need the same compiled kernels, and give the same models, whatever type their values have."""

import sys

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from bigmc.engine import Resources, ThreadEngine
from bigmc.learners import learner_of
from bigmc.options.learners import BoostOptions, SparseOptions
from bigmc.store import block
from bigmc.store.block import dtype_in_memory
from bigmc.store.dataset import Dataset

OPTIONS = {
    "hinge": SparseOptions(alpha=0.01),
    "log loss": SparseOptions(alpha=0.0, ridge=0.01, loss="log_loss", fit_intercept=True),
    "stumps": BoostOptions(n_rounds=2, max_depth=1),
    "trees": BoostOptions(n_rounds=2, max_depth=2),
}
TYPES = {
    "int8": lambda X: np.rint(30 * X).clip(-128, 127).astype(np.int8),
    "int16": lambda X: np.rint(3000 * X).astype(np.int16),
    "int32": lambda X: np.rint(3e6 * X).astype(np.int32),
    "float32": lambda X: X.astype(np.float32),
}


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch):
    """Undo what `conftest.values_keep_their_types` does."""
    monkeypatch.setattr(block, "_MOST_WIDE_VALUES", 1 << 20)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 300)
    return rng.normal(size=(300, 6)) + np.eye(3, 6)[y], y


def _kernels():
    """Return the compiled kernels, each with the types of its arguments."""
    modules = [module for name, module in sys.modules.items() if name.startswith("bigmc.kernels.")]
    kernels = [(name, value) for module in modules for name, value in vars(module).items()]
    return {
        (name, str(types))
        for name, value in kernels
        if isinstance(value, Dispatcher)
        for types in value.signatures
    }


def _scores(dataset, options):
    """Return the scores that a model gives to the rows it was trained on."""
    resources = Resources(ThreadEngine(1), 500_000_000)
    return learner_of(options).train(dataset, resources).model.shard_scores(dataset, 0)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", OPTIONS)
def test_another_type_needs_no_other_kernel(table, name, kind):
    X, y = table
    values = TYPES[kind](X)
    first, second = (Dataset.from_arrays(V, y) for V in (values.astype(np.float64) + 0.1, values))
    assert (first.dtype, second.dtype) == (np.float64, kind)
    _scores(first, OPTIONS[name])
    before = _kernels()
    _scores(second, OPTIONS[name])
    assert before
    assert _kernels() - before == set()


@pytest.mark.parametrize("name", OPTIONS)
def test_scores_are_those_of_stored_values(table, name, monkeypatch):
    """Values of one byte, converted or not, give the same bits, since kernels compute with floats."""
    dataset = Dataset.from_arrays(TYPES["int8"](table[0]), table[1])
    converted = _scores(dataset, OPTIONS[name])
    monkeypatch.setattr(block, "_MOST_WIDE_VALUES", 0)
    assert dtype_in_memory(dataset, dataset.nnz, 1 << 40) == np.int8
    assert np.array_equal(_scores(dataset, OPTIONS[name]), converted)


def test_values_stay_as_stored_where_memory_is_short_or_features_are_many():
    dataset = Dataset.from_arrays(np.arange(1, 51, dtype=np.int8).reshape(10, 5), np.arange(10) % 2)
    further = 50 * (8 - 1)
    assert dtype_in_memory(dataset, 50, 16 * further) == np.float64
    assert dtype_in_memory(dataset, 50, 16 * further - 1) == np.int8
    assert dtype_in_memory(dataset, 3_000_000, 1 << 40) == np.int8
    texts = Dataset.from_arrays(np.ones((2, 1000), np.int8), np.arange(2))
    assert dtype_in_memory(texts, 2000, 1 << 40) == np.int8
