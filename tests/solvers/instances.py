"""Small problems with known optima, and an independent solver for them."""

import numpy as np
from sklearn.datasets import load_digits, load_iris

from bigmc.store.dataset import Dataset
from bigmc.store.shards.memory_shard import MAX_ROWS, memory_shards
from bigmc.store.weighting import Weighting

ALPHAS = (0.1, 0.01, 0.001)
OPTIMA = {
    "iris": (1.265847962352, 0.441608794198, 0.148543875931),
    "digits": (1.510529888433, 0.250278922590, 0.031748166373),
    "arith": (2.558653865304, 2.042111451691, 1.895283837171),
}
NONZERO = {"iris": (2, 4, 4), "digits": (24, 34, 35), "arith": (7, 9, 10)}
LAMBDA_MAX = {"iris": 0.7391742014, "digits": 2.2098300745, "arith": 0.5017158060}

#: Factors that make the values of an instance whole numbers.
UNITS = {"iris": 80, "digits": 16, "arith": 16}

N_CLASSES = {"iris": 3, "digits": 10, "arith": 4}


def arith(n, d, m):
    i, j = np.arange(n)[:, None], np.arange(d)[None]
    X = ((7 * i + 13 * j + 5 * i * j) % 17) / 16.0
    X[(3 * i + 5 * j + i * j) % 4 != 0] = 0
    i = np.arange(n)
    return X, ((i * i + 3 * i) % (2 * m + 1)) % m


def instance(name):
    if name == "iris":
        data = load_iris()
        return data.data / 8, data.target
    if name == "digits":
        data = load_digits()
        return data.data[:300] / 16, data.target[:300]
    return arith(60, 20, N_CLASSES["arith"])


def whole_instance(name):
    """Return an instance in whole numbers, and the factor of alpha, squared that of a ridge, for its optima.

    Kernels are compiled for each type of values, and bytes are enough for these.
    """
    X, y = instance(name)
    return np.round(UNITS[name] * X), y, UNITS[name]


def label_sets(name):
    """Indicators of sets of labels for the samples of an instance, the empty and the full one among them."""
    y = instance(name)[1]
    i = np.arange(len(y))[:, None]
    if name == "digits":
        more = [y % 2 == 0, np.isin(y, (0, 6, 8, 9))]  # even, with a hole
        return np.hstack([y[:, None] == np.arange(10), np.array(more).T]).astype(int)
    r = np.arange(N_CLASSES[name])
    if name == "iris":
        sets = (y[:, None] == r) | ((i % 4 == 0) & ((y[:, None] + 1) % 3 == r))
        return ((sets & (i % 25 != 7)) | (i % 30 == 11)).astype(int)
    return ((i * i + 3 * i + 2 * r * i + r) % 7 < 3).astype(int)


def dataset_of(X, y, n_classes=None, shard_rows=MAX_ROWS):
    """Samples as a dataset of the classes 0, 1, …, also of those no sample has (arith has one)."""
    classes = np.arange(n_classes or y.max() + 1)
    codes = np.searchsorted(classes, y).astype(np.int32)
    shards = memory_shards(X, codes, np.arange(len(y)), shard_rows)
    return Dataset(list(shards), classes, X.shape[1], Weighting(), {})


def loss_and_gradient(X, y, W, b, weights):
    """Mean loss and its gradients, dense and straight from the definition."""
    scores = X @ W + b
    rows = np.arange(len(y))
    margins = np.maximum(1 - scores[rows, y][:, None] + scores, 0)
    margins[rows, y] = 0
    n = weights.sum()
    loss = (weights[:, None] * margins**2).sum() / n
    residual = 2 * weights[:, None] * margins / n
    residual[rows, y] = -residual.sum(axis=1)
    return loss, X.T @ residual, residual.sum(axis=0)


def fista(X, y, m, alpha, weights=None, intercept=False, n_iter=20000):
    """Optimum by accelerated proximal gradient with restarts; the intercept is not penalised."""
    weights = np.ones(len(y)) if weights is None else weights
    wide = np.hstack([X, np.ones((len(y), 1))]) if intercept else X
    step = weights.sum() / (2 * m * np.linalg.norm(np.sqrt(weights)[:, None] * wide, 2) ** 2)
    W, b = np.zeros((X.shape[1], m)), np.zeros(m)
    V, c, t, best, least = W, b, 1.0, np.inf, np.inf
    for _ in range(n_iter):
        _, G, g = loss_and_gradient(X, y, V, c, weights)
        Z = V - step * G
        norms = np.linalg.norm(Z, axis=1, keepdims=True)
        new_W = Z * np.maximum(1 - step * alpha / np.maximum(norms, 1e-300), 0)
        new_b = c - step * g if intercept else b
        value = (
            loss_and_gradient(X, y, new_W, new_b, weights)[0] + alpha * np.linalg.norm(new_W, axis=1).sum()
        )
        if value > best:
            if best >= least:  # nor did the last restart bring it down: what is left is rounding
                break
            V, c, t, best, least = W, b, 1.0, np.inf, best
            continue
        best, new_t = value, (1 + np.sqrt(1 + 4 * t * t)) / 2
        V, c = new_W + (t - 1) / new_t * (new_W - W), new_b + (t - 1) / new_t * (new_b - b)
        W, b, t = new_W, new_b, new_t
    return min(best, least)


def far_columns():
    """Return columns of which some vary little beside their mean."""
    generator = np.random.default_rng(6)
    X = generator.integers(-9, 10, (600, 8))
    y = np.argmax(X[:, :3] + 4 * generator.normal(size=(600, 3)), axis=1)
    X[:, [1, 4]] += 100
    return X.astype(np.int16), y


def table():
    """Return numbers, some of them 0, and three classes."""
    generator = np.random.default_rng(1)
    X = np.round(generator.normal(size=(400, 12)), 1) * (generator.random((400, 12)) < 0.7)
    return X, (X[:, 0] > 0.2).astype(int) + (X[:, 1] * X[:, 2] > 0)
