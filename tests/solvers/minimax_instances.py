"""Small minimax problems, and their optimum by the whole linear program (6), solved by scipy."""

from itertools import combinations

import numpy as np
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def digits(n, below=10):
    X, y = load_digits(return_X_y=True)
    chosen = np.flatnonzero(y < below)[:n]
    return X[chosen] / 16, y[chosen]


#: name → (X, y, intercept, optimum at lambda0 = 0.01 found by linprog on the whole program elsewhere)
REFERENCES = {
    "iris": lambda: (standardised(load_iris().data), load_iris().target, True, 0.4037909913),
    "wine": lambda: (standardised(load_wine().data), load_wine().target, True, 0.2626167784),
    "breast_cancer": lambda: (
        standardised(load_breast_cancer().data), load_breast_cancer().target, True, 0.2477905737,
    ),
    "digits, 5 classes": lambda: (*digits(300, 5), False, 0.1218557603),
    "digits": lambda: (*digits(500), False, 0.2089776708),
}  # fmt: skip


def whole_program(X, y, lambda0, intercept):
    """Return the optimum of (6) with a row for every sample and label subset."""
    psi = np.column_stack([X, np.ones(len(X))]) if intercept else np.asarray(X, float)
    n, d = psi.shape
    n_classes = len(np.unique(y))
    codes = np.unique(y, return_inverse=True)[1]
    phi = np.zeros((n, n_classes, d))
    phi[np.arange(n), codes] = psi
    phi = phi.reshape(n, -1)
    tau, lam = phi.mean(axis=0), lambda0 * phi.std(axis=0)
    rows, bounds = [], []
    for size in range(1, n_classes + 1):
        for subset in combinations(range(n_classes), size):
            member = np.zeros(n_classes)
            member[list(subset)] = 1 / size
            rows.append(np.einsum("c,nd->ncd", member, psi).reshape(n, -1))
            bounds.append(np.full(n, 1 / size - 1))
    F, b = np.concatenate(rows), np.concatenate(bounds)
    A = np.hstack([F, -F, -np.ones((len(F), 1))])
    cost = np.concatenate([-(tau - lam), tau + lam, [1.0]])
    free = [(0, None)] * (2 * len(tau)) + [(None, None)]
    found = linprog(cost, A_ub=A, b_ub=b, bounds=free, method="highs")
    assert found.status == 0
    return found.fun
